"""Strings → strings: batches by length, keeps the order, gives one line for each line."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from transformer_mt.config import DecodeConfig
from transformer_mt.data.normalization import Normalizer
from transformer_mt.data.packed import Packed
from transformer_mt.data.tokenizer import BOS, EOS, PAD, UNK, Tokenizer, one_line
from transformer_mt.decode.search import Hypothesis, beam_search
from transformer_mt.distributed import World
from transformer_mt.model.transformer import DecoderState, Transformer


@dataclass(frozen=True)
class Translation:
    """One translation of one line."""

    text: str
    score: float
    """Length-normalised log-probability, summed over the parts of a line that was cut; 0 for an
    empty line."""
    tokens: int
    """Tokens produced, end symbols not counted."""


class Translator:
    """Translates lines with a model.

    Lines of similar length share a batch; none changes another's translation.

    Args:
        model: The model, in ``eval`` mode, on the device it is to run on.
        tokenizer: Its vocabulary.
        config: Beam search settings.
        normalizer: What the model's training text went through (``data.normalization``); lines
            go through the same.
    """

    def __init__(
        self,
        model: Transformer,
        tokenizer: Tokenizer,
        config: DecodeConfig,
        normalizer: Normalizer,
    ):
        self._model, self._tokenizer, self._config = model, tokenizer, config
        self._normalizer = normalizer
        limit = config.max_source_tokens
        if model.config.positions == "learned":
            limit = min(limit, model.config.max_positions - 1)
        self._max_source = limit
        self._max_target = (
            model.config.max_positions - 1 if model.config.positions == "learned" else None
        )
        self.cut_lines = 0
        """Lines so far that were longer than ``max_source_tokens`` and translated in parts."""

    def translate(self, lines: Sequence[str]) -> list[str]:
        """The best translation of each line; an empty or blank line gives an empty one."""
        return [best[0].text for best in self.translate_nbest(lines, 1)]

    @torch.inference_mode()
    def translate_nbest(self, lines: Sequence[str], nbest: int) -> list[list[Translation]]:
        """Up to ``nbest`` translations of each line, best first.

        A line longer than ``max_source_tokens`` is translated in parts, the best of each joined.
        """
        parts: list[list[int]] = []  # every part of every line
        owners: list[list[int]] = []  # for each line, its parts
        for ids in self._tokenizer.encode([self._normalizer.src(line) for line in lines]):
            cut = self._cut(ids)
            self.cut_lines += len(cut) > 1
            owners.append(list(range(len(parts), len(parts) + len(cut))))
            parts.extend(cut)
        found = self._search(parts, nbest)
        return [self._join([found[part] for part in own]) for own in owners]

    def _cut(self, ids: list[int]) -> list[list[int]]:
        """Parts of a sentence that fit the model, cut before a word where there is one."""
        parts = []
        while len(ids) > self._max_source:
            pieces = self._tokenizer.pieces(ids[: self._max_source + 1])
            words = [i for i, piece in enumerate(pieces) if i and piece.startswith("▁")]
            at = words[-1] if words else self._max_source
            parts.append(ids[:at])
            ids = ids[at:]
        return [*parts, ids] if ids else parts

    def _search(self, sources: list[list[int]], nbest: int) -> list[list[Hypothesis]]:
        results: list[list[Hypothesis]] = [[] for _ in sources]
        # Longest first: the largest batch comes first, and memory only falls after it.
        order = sorted(range(len(sources)), key=lambda i: -len(sources[i]))
        beams = max(self._config.beam_size, nbest)
        start = 0
        while start < len(order):
            longest = len(sources[order[start]]) + 1
            size = max(1, self._config.batch_tokens // (longest * beams))
            batch = order[start : start + size]
            start += len(batch)
            for i, best in zip(
                batch, self._beam_search([sources[i] for i in batch], beams, nbest), strict=True
            ):
                results[i] = best
        return results

    def _beam_search(
        self, sources: list[list[int]], beams: int, nbest: int
    ) -> list[list[Hypothesis]]:
        device = self._model.embedding.weight.device
        src = Packed.of_sequences([[*ids, EOS] for ids in sources]).to(device)
        limits = [len(ids) + self._config.max_extra_tokens for ids in sources]
        if self._max_target is not None:
            limits = [min(limit, self._max_target) for limit in limits]
        return beam_search(
            _Steps(self._model, self._model.start(src, beams)),
            limits,
            beam_size=beams,
            alpha=self._config.length_penalty,
            bos=BOS,
            eos=EOS,
            nbest=nbest,
            device=device,
        )

    def _join(self, parts: list[list[Hypothesis]]) -> list[Translation]:
        if not parts:
            return [Translation("", 0.0, 0)]
        if len(parts) == 1:
            return [self._translation([hypothesis]) for hypothesis in parts[0]]
        return [self._translation([best[0] for best in parts])]

    def _translation(self, hypotheses: list[Hypothesis]) -> Translation:
        texts = self._tokenizer.decode([h.tokens for h in hypotheses])
        # Byte pieces can spell a line break; one line in is one line out.
        text = " ".join(self._normalizer.restore(one_line(text).strip()) for text in texts)
        return Translation(
            text, sum(h.score for h in hypotheses), sum(len(h.tokens) for h in hypotheses)
        )


def translate_sharded(translator: Translator, lines: Sequence[str], world: World) -> list[str]:
    """``Translator.translate``, the lines dealt out to the ranks; every rank gets them all."""
    result = [""] * len(lines)
    mine = translator.translate(lines[world.rank :: world.size])
    for rank, translations in enumerate(world.gather(mine)):
        result[rank :: world.size] = translations  # raises if the numbers differ
    return result


class _Steps:
    """The model as the search sees it."""

    def __init__(self, model: Transformer, state: DecoderState):
        self._model, self._state = model, state

    def step(self, tokens: Tensor) -> Tensor:
        logits = self._model.decode_step(tokens, self._state).float()
        log_probs = logits.log_softmax(-1)
        # No translation holds these; ruled out after the softmax, which training gave them a
        # share of.
        log_probs[..., [PAD, UNK, BOS]] = -torch.inf
        return log_probs

    def select(self, sentences: Tensor | None, beams: Tensor) -> None:
        self._state.select(sentences, beams)
