"""The translator, from strings to strings: one line out for each line in, in the same order."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from transformer_mt.config import DecodeConfig, TrainJob, TranslateJob
from transformer_mt.config.languages import word_separator
from transformer_mt.data.subwords.tokenizer import EOS, UNK, Tokenizer, one_line
from transformer_mt.data.text.lines import as_lines
from transformer_mt.data.text.normalization import Normalizer
from transformer_mt.data.text.tags import add_tag, check_tag, split_tag
from transformer_mt.decode.engine import (
    Engine,
    EngineRequest,
    Hypothesis,
    length_penalty,
    open_engine,
    torch_compute_type,
)
from transformer_mt.decode.lines.alignment import Link, align_words, same_words, word_indices
from transformer_mt.decode.lines.letter_case import recased, usual_case
from transformer_mt.decode.lines.sentences import segments, split_long
from transformer_mt.errors import InputError
from transformer_mt.protocols import Translation

if TYPE_CHECKING:
    from transformer_mt.distributed.world import World
    from transformer_mt.model.transformer import Transformer


_MIN_TOKENS, _MIN_SHARE = 24, 0.5
"""A translation with less than this share of the tokens of its line, if that has as many, is
counted as short. No reference of Multi30k's test set is that short, and 3 of 3,003 of newstest2014
are (``scripts/bench/RESULTS.md``)."""


class _Part(NamedTuple):
    """A sentence, or a part of one that is longer than ``max_source_tokens``."""

    source: tuple[int, ...]
    """Its token ids, the tag's included."""
    tag: str
    """Tag of the line; may be empty."""
    prefix: str
    """Beginning of its translation; may be empty. A part without tokens is copied: its prefix is
    its translation."""


class Translator:
    """Translates lines of text.

    Args:
        engine: Translates token ids.
        tokenizer: The vocabulary of the engine's model.
        normalizer: Normalisation of the model's training text, applied to the lines too.
        config: Search settings of the engine.
    """

    def __init__(
        self, engine: Engine, tokenizer: Tokenizer, normalizer: Normalizer, config: DecodeConfig
    ):
        self.engine = engine
        self.tokenizer, self.normalizer, self._config = tokenizer, normalizer, config
        self.max_source_tokens = min(config.max_source_tokens, engine.max_tokens)
        """Maximum number of tokens that are translated at once, tag included."""
        self.cut_lines = 0
        """Number of lines so far with a sentence that exceeded ``max_source_tokens``."""
        self.short_translations = 0
        """Number of translations so far with less than half of the tokens of their line."""

    @classmethod
    def load(
        cls,
        folder: str | Path,
        *,
        device: str = "auto",
        engine: str = "auto",
        compute_type: str = "auto",
        step: int | None = None,
        ensemble: Sequence[str | Path] = (),
        **decode_settings: Any,
    ) -> "Translator":
        """Opens a model as ``mt-translate`` does; nothing in it is run as code.

        Args:
            folder: The ``run_dir`` of a training run, or ``hf://ORG/NAME[@REVISION]``: a repository
                of the Hugging Face Hub, which is downloaded.
            device: ``auto``, ``cpu`` or ``cuda``.
            engine: As in ``mt-translate``: ``torch``, ``ctranslate2`` or ``auto``. Prefixes,
                alignments, scores of given translations and ``Translation.piece_log_probs`` need
                ``torch``.
            compute_type: As in ``mt-translate``: ``auto`` is bfloat16 on a GPU that has it,
                otherwise float32; ``fast`` is int8 where CTranslate2 does the job.
            step: Step of the checkpoint to load; None loads the final, averaged weights.
            ensemble: More models with the same vocabulary; probabilities are averaged.
            decode_settings: Fields of ``DecodeConfig`` that differ from the folder's or from the
                defaults, for example ``beam_size=1``.

        Raises:
            InputError: Something in a folder is missing or damaged, a repository cannot be
                downloaded, the engine cannot be used, or a setting is invalid.
            TypeError: ``DecodeConfig`` has no such field.
        """
        DecodeConfig(**{key: v for key, v in decode_settings.items() if v is not None})
        job = TranslateJob(
            model=str(folder),
            device=device,
            engine=engine,
            compute_type=compute_type,
            step=step,
            ensemble=list(map(str, ensemble)),
            **decode_settings,
        )
        return cls.open(EngineRequest(job))

    @classmethod
    def open(cls, request: EngineRequest) -> "Translator":
        """A translator with the requested engine; see ``open_engine`` for the errors."""
        return cls(
            open_engine(request),
            request.tokenizer,
            Normalizer(request.trained.data),
            request.config,
        )

    @classmethod
    def of_model(cls, model: "Transformer", tokenizer: Tokenizer, job: TrainJob) -> "Translator":
        """A translator with a model in memory, in ``eval`` mode, and the settings of its job.

        The engine is PyTorch, with the data type that is the default of ``mt-translate``.
        """
        from transformer_mt.decode.engines.torch_engine import TorchEngine

        compute_type = torch_compute_type("auto", str(model.embedding.weight.device))
        config = job.decode.for_job()
        engine = TorchEngine([model], config, compute_type)
        return cls(engine, tokenizer, Normalizer(job.data), config)

    def translate(self, lines: Sequence[str], tag: str | None = None) -> list[str]:
        """The best translation of each line; an empty or blank line gives an empty one.

        See ``with_tag`` for the tag, and ``translate_nbest`` for the errors.
        """
        lines = self.with_tag(lines, tag)
        return [best[0].text for best in self.translate_nbest(lines, 1)]

    def with_tag(self, lines: Sequence[str], tag: str | None) -> list[str]:
        """The lines with a tag of the model's vocabulary, such as ``<2fr>``, before each.

        A line that starts with a tag keeps its own; without a tag they stay as they are.

        Raises:
            InputError: The vocabulary has no such tag.
            TypeError: ``lines`` is a single string.
        """
        lines = as_lines(lines)
        if tag is None:
            return lines
        tags = self.tokenizer.tags
        check_tag(tag, tags)
        return [line if split_tag(line, tags)[0] else add_tag(tag, line) for line in lines]

    def split_tag(self, line: str) -> tuple[str, str]:
        """The tag of a line, or "", and its text."""
        return split_tag(line, self.tokenizer.tags)

    def encode(self, line: str) -> list[int]:
        """Token ids of a line as it is translated: with its tag, and in its usual case."""
        tag, text = self.split_tag(line)
        usual = usual_case(text, self.tokenizer, self.normalizer.languages(tag)[0])
        return self.tokenizer.encode_source(add_tag(tag, usual), self.normalizer)

    def translate_nbest(
        self,
        lines: Sequence[str],
        nbest: int,
        *,
        prefixes: Sequence[str] | None = None,
        align: bool = False,
    ) -> list[list[Translation]]:
        """Up to ``nbest`` translations of each line, best first; or this many random samples.

        The sentences of a line without a prefix are translated one by one (``decode.split``), and
        the n-th best translation joins the n-th best ones of them. A line in capitals, title case
        or lower case without a prefix is translated in its usual case; translations of capitals are
        in capitals, too.

        Args:
            lines: The lines; each may start with a tag (``with_tag``).
            nbest: Number of translations of each line.
            prefixes: For each line, text that its translation starts with; may be empty.
            align: Whether to add word alignments. A line has none if one of its sentences exceeds
                ``max_source_tokens``, or if normalisation changes its words.

        Raises:
            InputError: ``nbest`` exceeds ``beam_size``, a prefix exceeds the model's positions or
                has characters outside its vocabulary, or the engine supports no prefixes or no
                alignment.
            TypeError: ``lines`` is a single string.
        """
        self._config.check_nbest(nbest)
        lines = as_lines(lines)
        beginnings = [""] * len(lines) if prefixes is None else as_lines(prefixes)
        languages, tagged = self.normalizer.languages, list(map(self.split_tag, lines))
        usual = [
            text if prefix else usual_case(text, self.tokenizer, languages(tag)[0])
            for (tag, text), prefix in zip(tagged, beginnings, strict=True)
        ]
        tags = [tag for tag, _ in tagged]
        split = list(map(self._split, tags, usual, beginnings))
        # Equal parts, as of headings or of an endless "aaaa", are translated once.
        unique = dict.fromkeys(chain.from_iterable(parts for parts, _ in split))
        parts = [part for part in unique if part.source]
        sources = [list(part.source) for part in parts]
        forced = None if prefixes is None else list(map(self._encode_prefix, parts))
        hypotheses = self.engine.search(sources, nbest, forced)
        links: Iterator[list[Link] | None] = repeat(None)
        if align:
            found = zip(sources, hypotheses, strict=True)
            pairs = [(source, each.tokens) for source, best in found for each in best]
            links = iter(align_words(self.engine, self.tokenizer, pairs))
        copied = unique.keys() - parts
        translated = {part: [Translation.copied(part.prefix, align)] * nbest for part in copied}
        for part, best in zip(parts, hypotheses, strict=True):
            translated[part] = [self._translation(each, next(links)) for each in best]
        results: list[list[Translation]] = []
        for (tag, given), text, (line_parts, starts) in zip(tagged, usual, split, strict=True):
            in_parts = [translated[part] for part in line_parts]
            translations, *others = in_parts or [[Translation.copied("", align)] * nbest]
            if others:
                space = word_separator(languages(tag)[1])
                words = word_indices(text, starts)
                nth_best = zip(translations, *others, strict=False)
                translations = [Translation.joined(nth, space, words) for nth in nth_best]
            if align and not same_words(self.tokenizer, self.normalizer, text, tag):
                translations = [replace(each, alignment=None) for each in translations]
            if text != given:
                translations = [replace(t, text=recased(given, t.text)) for t in translations]
            results.append(translations)
            num_tokens = sum(len(part.source) for part in line_parts)
            self.short_translations += (
                num_tokens >= _MIN_TOKENS
                and translations[0].text != ""
                and translations[0].tokens < num_tokens * _MIN_SHARE
            )
        return results

    def score(self, sources: Sequence[str], targets: Sequence[str]) -> list[Translation]:
        """Scores given translations of lines: the text of each result is the given one.

        Lines are scored whole and as written. ``translate`` splits them into sentences and lowers
        capitals, so lines of several sentences or in capitals score lower here.

        Args:
            sources: The lines; each may start with a tag (``with_tag``).
            targets: A translation of each line, as plain text.

        Raises:
            InputError: A line exceeds the model's positions (it cannot be scored in parts), the
                engine does not score, or the model's output is not a number.
            TypeError: ``sources`` or ``targets`` is a single string.
        """
        sources, targets = as_lines(sources), as_lines(targets)
        pairs = zip(sources, targets, strict=True)
        encoded = [*self.tokenizer.encode_pairs(pairs, self.normalizer)]
        src, tgt = [ids for ids, _ in encoded], [ids for _, ids in encoded]
        for text, ids in zip([*sources, *targets], [*src, *tgt], strict=True):
            self._check_length(text, ids)
        scored = []
        for text, ids, terms in zip(targets, tgt, self.engine.score(src, tgt), strict=True):
            log_prob = sum(terms)
            score = log_prob / length_penalty(len(terms), self._config.length_penalty)
            pieces = self.tokenizer.tgt.pieces([*ids, EOS])
            scored.append(Translation(text, score, len(ids), log_prob, pieces, terms))
        return scored

    def _split(self, tag: str, text: str, prefix: str) -> tuple[list[_Part], list[int]]:
        """The sentences of a text and their positions; no positions if one is in several parts."""
        encode = partial(self.tokenizer.encode_text, tag=tag, normalizer=self.normalizer)
        tag_ids = [self.tokenizer.tags[tag]] if tag else []
        limit = max(1, self.max_source_tokens - len(tag_ids))
        if (prefix or self._config.split == "none") and len(encode(text)) <= limit:
            spans = [(0, len(text), True)]
        else:
            # A prefix is of the whole translation, marks included.
            spans = list(segments(text, self.normalizer.languages(tag)[0], marks=not prefix))
        parts, starts = list[_Part](), list[int]()
        for start, end, is_text in spans:
            if not is_text:
                separator = word_separator(self.normalizer.languages(tag)[1])
                strip = str.strip if separator else str.lstrip  # then a mark keeps its own space
                parts.append(_Part((), tag, strip(text[start:end])))
                starts.append(start)
                continue
            for piece in split_long(encode(text[start:end]), limit, self.tokenizer):
                parts.append(_Part((*tag_ids, *piece), tag, "" if parts else prefix))
                starts.append(start)
        is_cut = len(set(starts)) < len(starts)
        self.cut_lines += is_cut
        return parts, [] if is_cut else starts

    def _encode_prefix(self, part: _Part) -> list[int]:
        """The token ids of a prefix."""
        tokenizer = self.tokenizer.tgt
        ids = tokenizer.encode(self.normalizer.tgt(part.prefix, part.tag))
        if UNK in ids:
            raise InputError(
                "a prefix has characters that are not in this model's vocabulary: "
                f"{tokenizer.decode(ids)!r}"
            )
        self._check_length(part.prefix, ids)
        return ids

    def _check_length(self, text: str, ids: list[int]) -> None:
        """Raises ``InputError`` for a text that is not translated in parts, and is too long."""
        if len(ids) > (limit := self.engine.max_tokens):
            raise InputError(
                f"a text of {len(ids)} tokens exceeds the {limit} positions of this model: shorten "
                f"it, or leave it out: {text[:40]!r}…"
            )

    def _translation(self, hypothesis: Hypothesis, alignment: list[Link] | None) -> Translation:
        """The translation of a part of a line."""
        tokens = hypothesis.tokens
        return Translation(
            # Byte pieces may decode to a line break; one line in is one line out.
            one_line(self.tokenizer.tgt.decode(tokens)).strip(),
            hypothesis.score,
            len(tokens),
            hypothesis.log_prob,
            self.tokenizer.tgt.pieces([*tokens, EOS]),
            hypothesis.token_log_probs,
            alignment,
        )


def translate_sharded(translator: Translator, lines: Sequence[str], world: "World") -> list[str]:
    """``Translator.translate`` with the lines divided among the ranks; every rank gets all."""
    result = [""] * len(lines)
    own = translator.translate(lines[world.rank :: world.size])
    for rank, translations in enumerate(world.gather(own)):
        result[rank :: world.size] = translations  # raises if the numbers differ
    return result
