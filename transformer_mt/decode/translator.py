"""Strings → strings: batches by length, keeps the order, gives one line for each line."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Any

import torch

from transformer_mt import files
from transformer_mt.batch import Packed
from transformer_mt.config import DecodeConfig
from transformer_mt.data.subwords.tokenizer import BOS, EOS, UNK, Tokenizer, one_line
from transformer_mt.data.text.normalization import Normalizer
from transformer_mt.decode.lines.alignment import WORD, Link, align_words
from transformer_mt.decode.search.beam_search import beam_search
from transformer_mt.decode.search.constraints import Constrained, Constraints
from transformer_mt.decode.search.ensemble import open_search
from transformer_mt.decode.search.hypothesis import Hypothesis, length_penalty
from transformer_mt.decode.search.sampling import sample
from transformer_mt.decode.search.scoring import score_targets
from transformer_mt.decode.search.sentence_batches import decoding_tokens, in_batches
from transformer_mt.distributed import World, pick_device
from transformer_mt.errors import InputError
from transformer_mt.model.inference import for_inference
from transformer_mt.model.transformer import Transformer
from transformer_mt.model_folder import load_model


@dataclass(frozen=True)
class Translation:
    """One translation of one line."""

    text: str
    score: float
    """Length-normalised log-probability, summed over the parts of a line that was cut; 0 for an
    empty line."""
    tokens: int
    """Tokens produced, end symbols not counted."""
    log_prob: float = 0.0
    """Log-probability of all pieces, end symbols included."""
    pieces: list[str] = field(default_factory=list)
    """The tokens and, after each part of the line, an end symbol."""
    piece_log_probs: list[float] = field(default_factory=list)
    """The log-probability of each piece; empty where it was not asked for, or CTranslate2 does not
    give it: it does in float32."""
    alignment: list[Link] | None = None
    """For each word of the translation, the word of the line that it comes from, where asked for;
    words are what spaces part in the line as the model reads it (``data.normalization``), counted
    from 0."""

    @classmethod
    def joined(cls, parts: Sequence["Translation"], space: str = " ") -> "Translation":
        """The translation of a line from those of its parts; it has no alignment."""
        return cls(
            space.join(part.text for part in parts if part.text),
            sum(part.score for part in parts),
            sum(part.tokens for part in parts),
            sum(part.log_prob for part in parts),
            [piece for part in parts for piece in part.pieces],
            [value for part in parts for value in part.piece_log_probs],
        )


class Translator:
    """Translates lines with a model, or with several of one vocabulary.

    Lines of similar length share a batch; none changes another's translation.

    Args:
        model: The model, in ``eval`` mode, on the device it is to run on; its weights are read at
            the first translation.
        tokenizer: Its vocabulary.
        config: Search settings.
        normalizer: What the model's training text went through (``data.normalization``); lines
            go through the same.
        others: More models with the same vocabulary, on the same device: the probability of a
            token is the mean of all.
        dtype: What to compute in.
    """

    def __init__(
        self,
        model: Transformer,
        tokenizer: Tokenizer,
        config: DecodeConfig,
        normalizer: Normalizer,
        *,
        others: Sequence[Transformer] = (),
        dtype: torch.dtype = torch.float32,
    ):
        self._model, self._tokenizer, self._config = model, tokenizer, config
        self._normalizer, self._dtype = normalizer, dtype
        self._all = [model, *others]
        bounds = [m.config.max_positions for m in self._all if m.config.positions == "learned"]
        self._max_target = min(bounds) - 1 if bounds else None
        """Most tokens of a sentence besides its start or end symbol."""
        self._max_source = min([config.max_source_tokens, *(bound - 1 for bound in bounds)])
        self.cut_lines = 0
        """Lines so far that were longer than ``max_source_tokens`` and translated in parts."""

    @classmethod
    def load(cls, folder: str | Path, *, device: str = "auto", **settings: Any) -> "Translator":
        """Opens a model folder; nothing in it is run as code.

        Args:
            folder: The ``run_dir`` of a training.
            device: ``auto``, ``cpu`` or ``cuda``.
            settings: Those of the search that are not to be the folder's own, by their names in
                ``DecodeConfig``: ``beam_size=1``.

        Raises:
            InputError: The folder, or something in it, is missing or damaged.
        """
        model, tokenizer, job = load_model(files.expand_user(folder))
        normalizer = Normalizer.of(job.data)
        config = replace(job.decode, **settings)
        return cls(model.to(pick_device(device)), tokenizer, config, normalizer)

    @property
    def model(self) -> Transformer:
        """The (first) model."""
        return self._model

    def translate(self, lines: Sequence[str]) -> list[str]:
        """The best translation of each line; an empty or blank line gives an empty one."""
        return [best[0].text for best in self.translate_nbest(lines, 1)]

    @torch.inference_mode()
    def translate_nbest(
        self,
        lines: Sequence[str],
        nbest: int,
        *,
        prefixes: Sequence[str] | None = None,
        align: bool = False,
    ) -> list[list[Translation]]:
        """Up to ``nbest`` translations of each line, best first; or as many drawn at random.

        A line longer than ``max_source_tokens`` is translated in parts, the best of each joined.

        Args:
            lines: The lines.
            nbest: Translations of each.
            prefixes: For each line, text that its translation begins with; it may be empty.
            align: Say which words belong together.

        Raises:
            InputError: A prefix is longer than the model's positions, or cannot be spelled.
            TypeError: ``lines`` is a single text.
        """
        lines = _as_list(lines)
        given = self._encode_targets(prefixes) if prefixes is not None else [[] for _ in lines]
        jobs: dict[tuple[tuple[int, ...], tuple[int, ...]], int] = {}  # (part, prefix) → number
        owners: list[list[int]] = []  # for each line, the jobs that its parts are
        for ids, prefix in zip(self._encode_sources(lines), given, strict=True):
            cut = self._cut(ids)
            self.cut_lines += len(cut) > 1
            beginnings = [self._sayable(self._checked(prefix)), *([] for _ in cut[1:])]
            # What comes twice, as headings do and the parts of an endless "aaaa", is done once.
            owners.append(
                [
                    jobs.setdefault((tuple(part), tuple(beginning)), len(jobs))
                    for part, beginning in zip(cut, beginnings, strict=False)  # a line may be empty
                ]
            )
        parts = [list(part) for part, _ in jobs]
        if prefixes is None and self._config.plain:
            found = self._search(parts, nbest)
        else:
            found = self._search_all(parts, nbest, [list(beginning) for _, beginning in jobs])
        chosen = [_chosen([found[job] for job in own]) for own in owners]
        translations = [[self._translation(each) for each in best] for best in chosen]
        if not align:
            return translations
        pairs = [
            [(parts[job], hypothesis.tokens) for job, hypothesis in zip(own, each, strict=True)]
            for own, best in zip(owners, chosen, strict=True)
            for each in best
        ]
        links = iter(align_words(self._fast[0], self._tokenizer, pairs, self._batch_tokens))
        return [[replace(each, alignment=next(links)) for each in best] for best in translations]

    def score(self, sources: Sequence[str], targets: Sequence[str]) -> list[Translation]:
        """What the model gives translations that are there already.

        Raises:
            InputError: A line is longer than the model's positions; it cannot be scored in parts.
            TypeError: One side is a single text.
        """
        sources, targets = _as_list(sources), _as_list(targets)
        src, tgt = (
            [self._checked(ids) for ids in side]
            for side in (self._encode_sources(sources), self._encode_targets(targets))
        )
        found = score_targets(self._fast, src, tgt, self._batch_tokens)
        scored = []
        for text, ids, values in zip(targets, tgt, found, strict=True):
            log_prob = sum(values)
            score = log_prob / length_penalty(len(values), self._config.length_penalty)
            pieces = self._tokenizer.pieces([*ids, EOS])
            scored.append(Translation(text, score, len(ids), log_prob, pieces, values))
        return scored

    def _encode_sources(self, lines: Sequence[str]) -> list[list[int]]:
        return self._tokenizer.encode([self._normalizer.src(line) for line in lines])

    def _encode_targets(self, lines: Sequence[str]) -> list[list[int]]:
        return self._tokenizer.encode([self._normalizer.tgt(line) for line in lines])

    def _checked(self, ids: list[int]) -> list[int]:
        if self._max_target is not None and len(ids) > self._max_target:
            text = self._tokenizer.decode([ids])[0]
            raise InputError(
                f"{len(ids)} tokens are more than the {self._max_target} that this model has "
                f"positions for: {text[:40]!r}…"
            )
        return ids

    def _sayable(self, ids: list[int]) -> list[int]:
        if UNK in ids:
            raise InputError(
                "a prefix has characters that this model's vocabulary does not spell: "
                f"{self._tokenizer.decode([ids])[0]!r}"
            )
        return ids

    @cached_property
    def _fast(self) -> list[Transformer]:
        """The models made ready for decoding."""
        return [for_inference(model, self._dtype) for model in self._all]

    @cached_property
    def _batch_tokens(self) -> int:
        given = self._config.batch_tokens
        return given or decoding_tokens(self._all, self._dtype.itemsize)

    def _cut(self, ids: list[int]) -> list[list[int]]:
        """Parts of a sentence that fit the model, cut before a word where there is one."""
        parts = []
        while len(ids) > self._max_source:
            pieces = self._tokenizer.pieces(ids[: self._max_source + 1])
            words = [i for i, piece in enumerate(pieces) if i and piece.startswith(WORD)]
            at = words[-1] if words else self._max_source
            parts.append(ids[:at])
            ids = ids[at:]
        return [*parts, ids] if ids else parts

    def _search(self, sources: list[list[int]], nbest: int) -> list[list[Hypothesis]]:
        """Plain beam search, which another engine may do in its own way."""
        return self._search_all(sources, nbest, [[] for _ in sources])

    def _search_all(
        self, sources: list[list[int]], nbest: int, prefixes: list[list[int]]
    ) -> list[list[Hypothesis]]:
        beams = nbest if self._config.sampling else max(self._config.beam_size, nbest)
        return in_batches(
            [(len(source) + 1) * beams for source in sources],
            self._batch_tokens,
            lambda batch: self._search_batch(
                [sources[i] for i in batch], beams, nbest, [prefixes[i] for i in batch]
            ),
        )

    def _search_batch(
        self, sources: list[list[int]], beams: int, nbest: int, prefixes: list[list[int]]
    ) -> list[list[Hypothesis]]:
        config, device = self._config, self._model.embedding.weight.device
        src = Packed.from_sequences([[*ids, EOS] for ids in sources]).to(device)
        model = open_search(self._fast, src, beams)
        limits = [
            max(self._longest(source), len(prefix))
            for source, prefix in zip(sources, prefixes, strict=True)
        ]
        if config.min_length or config.no_repeat_ngram or any(prefixes):
            rules = [
                Constraints(prefix, min(config.min_length, limit), config.no_repeat_ngram)
                for prefix, limit in zip(prefixes, limits, strict=True)
            ]
            model = Constrained(model, rules, EOS)
        if config.sampling:
            return sample(
                model,
                limits,
                [[Random(f"{config.seed} {n} {ids}") for n in range(nbest)] for ids in sources],
                temperature=config.temperature,
                top_k=config.top_k,
                top_p=config.top_p,
                alpha=config.length_penalty,
                bos=BOS,
                eos=EOS,
                device=device,
            )
        return beam_search(
            model,
            limits,
            beam_size=beams,
            alpha=config.length_penalty,
            bos=BOS,
            eos=EOS,
            nbest=nbest,
            device=device,
        )

    def _longest(self, source: Sequence[int]) -> int:
        """Most tokens of a translation, end symbol not counted."""
        limit = max(len(source) + self._config.max_extra_tokens, self._config.min_length)
        bounds = (limit, self._config.max_length, self._max_target)
        return min(bound for bound in bounds if bound is not None)

    def _translation(self, hypotheses: Sequence[Hypothesis]) -> Translation:
        """The translation of a line from those of its parts."""
        if not hypotheses:
            return Translation("", 0.0, 0)
        texts = self._tokenizer.decode([h.tokens for h in hypotheses])
        # Byte pieces can spell a line break; one line in is one line out.
        return Translation(
            " ".join(self._normalizer.restore(one_line(text).strip()) for text in texts),
            sum(h.score for h in hypotheses),
            sum(len(h.tokens) for h in hypotheses),
            sum(h.log_prob for h in hypotheses),
            self._tokenizer.pieces([token for h in hypotheses for token in (*h.tokens, EOS)]),
            [value for h in hypotheses for value in h.token_log_probs],
        )


def _as_list(lines: Iterable[str]) -> list[str]:
    if isinstance(lines, str):
        raise TypeError("a single text: give a list of lines, [text]")
    return list(lines)


def _chosen(found: Sequence[list[Hypothesis]]) -> list[Sequence[Hypothesis]]:
    """For each translation of a line, best first, those of its parts; nothing if it has none.

    Args:
        found: The best of each part. Of several parts the best are put together.
    """
    if len(found) == 1:
        return [[hypothesis] for hypothesis in found[0]]
    return [[best[0] for best in found]]


def translate_sharded(translator: Translator, lines: Sequence[str], world: World) -> list[str]:
    """``Translator.translate``, the lines dealt out to the ranks; every rank gets them all."""
    result = [""] * len(lines)
    mine = translator.translate(lines[world.rank :: world.size])
    for rank, translations in enumerate(world.gather(mine)):
        result[rank :: world.size] = translations  # raises if the numbers differ
    return result
