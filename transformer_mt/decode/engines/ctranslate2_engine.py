"""The CTranslate2 engine: its beam search, with the scores and results of ``search.beam_search``.

Both searches consider the 2W best continuations in each step, take those of the best W that end as
finished, continue with the best W that do not end, and stop once W have finished. In float32 the
differences are compensated, so that the best translation is the same, ties and rounding aside:

* CTranslate2 divides log-probabilities by |Y|^p, ours are divided by ((5 + |Y|) / 6)^α. Its scores
  are converted back to log-probabilities and then to ours, and the hypotheses are sorted again.
* When more than W have finished it drops the worst by its own score. With our choice of p that is
  never the best by ours (``_ctranslate2_penalty``), but an n-best list may lack one.
* It cuts translations off at the maximum length, without an end symbol; in ours, where the maximum
  depends on the sentence, all hypotheses that are left end there. Such a sentence is searched again
  up to its own maximum, and CTranslate2 scores the end symbols.
* It may generate special symbols, which ours rules out. A trained model gives them almost no
  probability. The PyTorch engine translates such sentences instead.

Other types are not exact anyway; in these, special symbols are suppressed.
"""

import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from transformer_mt.config import DecodeConfig, ModelConfig
from transformer_mt.config.translate import COMPUTE_TYPES
from transformer_mt.data.subwords.tokenizer import BOS, EOS, PAD, UNK, Tokenizer
from transformer_mt.decode.engine import (
    CPU_BATCH_TOKENS,
    SINUSOIDS,
    Hypothesis,
    Link,
    TokenPair,
    UnavailableError,
    WordIds,
    length_penalty,
    max_output_tokens,
    max_tokens,
)
from transformer_mt.kernels import hardware

if TYPE_CHECKING:
    from transformer_mt.decode.engines.torch_engine import TorchEngine

_MAX_BATCH_SENTENCES = 32
"""With larger batches a worker waits for another at the end, which costs int8 a tenth of its speed
on 1,000 lines; with smaller ones float32 is slower."""


class _Found(NamedTuple):
    """A hypothesis of CTranslate2."""

    pieces: list[str]
    """With the end symbol, unless the translation was cut off."""
    log_prob: float
    score: float
    """``log_prob`` divided by our length penalty."""


def check_available(compute_type: str, device: str) -> None:
    """Raises ``UnavailableError`` without CTranslate2, or if it does not support a type here."""
    kind, index = _split_device(device)
    try:
        from ctranslate2 import get_supported_compute_types

        supported = get_supported_compute_types(kind, index)
    except ImportError as error:
        raise UnavailableError(
            f"engine=ctranslate2 needs CTranslate2: pip install ctranslate2 ({error})"
        ) from None
    except (RuntimeError, ValueError) as error:  # as on an AMD GPU, which PyTorch can use
        message = f"CTranslate2 cannot use this {kind} ({error}): set engine=torch or device=cpu"
        raise UnavailableError(message) from None
    if compute_type not in supported:
        choice = ", ".join(name for name in COMPUTE_TYPES if name in supported)
        raise UnavailableError(
            f"compute_type={compute_type} is not supported on this {kind}: choose from {choice}"
        )


def _split_device(device: str) -> tuple[str, int]:
    """Type and index of a device, ``cuda:1`` for example."""
    kind, _, index = device.partition(":")
    return kind, int(index or 0)


class CTranslate2Engine:
    """Beam search by CTranslate2; see ``Engine``.

    Args:
        converted: Folder of the converted model (``converted_models.find_or_convert``).
        tokenizer: The model's vocabulary.
        model: The shape of the model.
        config: Search settings.
        fallback: Builds the PyTorch engine of the same model and settings, for the sentences,
            scores and alignments that CTranslate2 cannot do; called when first needed.
        compute_type: Data type of the computation (``check_available``).
        device: As PyTorch names it.

    Raises:
        UnavailableError: CTranslate2 cannot read the converted model.
    """

    def __init__(
        self,
        converted: Path,
        tokenizer: Tokenizer,
        model: ModelConfig,
        config: DecodeConfig,
        fallback: "Callable[[], TorchEngine]",
        *,
        compute_type: str = "float32",
        device: str = "cpu",
    ):
        import ctranslate2

        self._converted, self._config, self._build_fallback = converted, config, fallback
        self.name, self.compute_type = "ctranslate2", compute_type
        self.max_tokens = max_tokens(model)
        self._pieces, tgt_pieces = tokenizer.vocabulary, tokenizer.tgt.vocabulary
        self._ids = {piece: i for i, piece in enumerate(tgt_pieces)}
        self._end, self._special = tgt_pieces[EOS], {tgt_pieces[i] for i in (PAD, UNK, BOS)}
        self._is_exact = compute_type == "float32"
        # Changes the probabilities of other tokens, if only a little.
        self._suppressed = None if self._is_exact else [[piece] for piece in self._special]
        self._num_positions = min(self.max_tokens + 1, SINUSOIDS)
        kind, index = _split_device(device)
        # One worker per core, with one thread each: workers share nothing, so none waits.
        self._workers = _num_threads() if kind == "cpu" else 1
        torch = sys.modules.get("torch")
        torch_threads = torch.get_num_threads() if torch is not None else 0
        try:
            with self._errors_explained():
                self._translator = ctranslate2.Translator(
                    str(converted),
                    device=kind,
                    device_index=index,
                    compute_type=compute_type,
                    inter_threads=self._workers,
                    intra_threads=1,
                )
        finally:  # CTranslate2 sets OpenMP's number of threads to 1 in this process
            if torch is not None:
                torch.set_num_threads(torch_threads)

    @contextmanager
    def _errors_explained(self) -> Iterator[None]:
        try:
            yield
        except (RuntimeError, ValueError, IndexError, MemoryError) as error:
            if "cannot be loaded" in str(error):  # CUDA libraries of another version than torch's
                message = f"CTranslate2: {error}; set engine=torch, which does not need it"
                raise UnavailableError(message) from None
            raise UnavailableError(
                f"CTranslate2 cannot use {self._converted} ({error}): delete that folder, or set "
                "engine=torch"
            ) from None

    @cached_property
    def _fallback(self) -> "TorchEngine":
        loads_torch = "torch" not in sys.modules
        engine = self._build_fallback()
        if loads_torch and engine.device.type == "cpu":  # after CTranslate2 has set OpenMP's to 1
            sys.modules["torch"].set_num_threads(self._workers)
        return engine

    def search(
        self,
        sources: Sequence[list[int]],
        nbest: int,
        prefixes: Sequence[Sequence[int]] | None = None,
        *,
        token_scores: bool = True,
    ) -> list[list[Hypothesis]]:
        """See ``Engine``.

        Searches with prefixes are left to the PyTorch engine. CTranslate2 gives no scores of
        tokens: for float32 the PyTorch model computes them; other types have none.
        """
        if prefixes is not None:
            return self._fallback.search(sources, nbest, prefixes)
        limits = [max_output_tokens(self._config, ids, self._num_positions - 1) for ids in sources]
        best = self._search(sources, limits)
        found = {i: list(map(self._hypothesis, each[:nbest])) for i, each in best.items()}
        if missing := [i for i in range(len(sources)) if i not in found]:
            others = self._fallback.search([sources[i] for i in missing], nbest)
            found.update(zip(missing, others, strict=True))
        results = [found[i] for i in range(len(sources))]
        if not (token_scores and self._is_exact):
            return results
        pairs = [(ids, h.tokens) for ids, best in zip(sources, results, strict=True) for h in best]
        log_probs = iter(self._fallback.score([s for s, _ in pairs], [t for _, t in pairs]))
        return [[replace(h, token_log_probs=next(log_probs)) for h in best] for best in results]

    def score(
        self, sources: Sequence[list[int]], targets: Sequence[list[int]]
    ) -> list[list[float]]:
        """See ``Engine``; done by the PyTorch engine."""
        return self._fallback.score(sources, targets)

    def align(self, pairs: Sequence[TokenPair], words: Sequence[WordIds]) -> list[list[Link]]:
        """See ``Engine``; done by the PyTorch engine."""
        return self._fallback.align(pairs, words)

    def _search(
        self, sources: Sequence[list[int]], limits: Sequence[int]
    ) -> dict[int, list[_Found]]:
        """The hypotheses of each sentence whose best one is that of our search.

        For the arguments see ``_translations``.
        """
        found: dict[int, list[_Found]] = {}
        unfinished = []
        for i, hypotheses in self._translations(sources, limits, range(len(sources))):
            if all(self._ends(each) and len(each.pieces) <= limits[i] for each in hypotheses):
                found[i] = hypotheses
            else:
                unfinished.append(i)
        for i, hypotheses in self._translations(sources, limits, unfinished, own_limit=True):
            if ended := self._ended(sources[i], limits[i], hypotheses):
                found[i] = ended
        return found

    def _ended(self, source: list[int], limit: int, hypotheses: Sequence[_Found]) -> list[_Found]:
        """All hypotheses of a search up to the maximum length, where those that are left end.

        These are the best W after ``limit`` tokens that do not end. CTranslate2 gives the best W,
        some of which may end: what it lacks is no better than the worst of them. The result is
        empty if that could be the best translation.
        """
        alpha = self._config.length_penalty
        ended = [each for each in hypotheses if self._ends(each)]
        cut = [each.pieces for each in hypotheses if not self._ends(each)]
        pieces = [self._pieces[token] for token in source]
        scored = self._translator.score_batch([pieces] * len(cut), cut, max_input_length=0)
        for tokens, result in zip(cut, scored, strict=True):
            log_prob = sum(result.log_probs)
            score = log_prob / length_penalty(limit + 1, alpha)
            ended.append(_Found([*tokens, self._end], log_prob, score))
        ended.sort(key=lambda each: -each.score)
        if self._is_exact and len(cut) < self._config.beam_size:
            last = [each.log_prob for each in hypotheses if len(each.pieces) == limit]
            if ended[0].score < min(last, default=0.0) / length_penalty(limit + 1, alpha):
                return []
        return ended

    def _translations(
        self,
        sources: Sequence[list[int]],
        limits: Sequence[int],
        rows: Iterable[int],
        *,
        own_limit: bool = False,
    ) -> Iterator[tuple[int, list[_Found]]]:
        """Translates some of the sources by the workers; yields the hypotheses of each, best first.

        Left to the PyTorch engine are sentences that the converted model has no positions for,
        those with special symbols, and those with a score that is not a number, which it reports.
        Sentences of similar length share a batch, the longest first; batches are small if workers
        would be idle.

        Args:
            sources: All sources.
            limits: Maximum number of tokens of each translation, end symbol not counted.
            rows: The sources to translate.
            own_limit: Whether each search ends at its own maximum length, where CTranslate2 cuts
                translations off, and gives all hypotheses; otherwise it ends once W have finished,
                or one token behind the maximum length of the batch.
        """
        beams, alpha = self._config.beam_size, self._config.length_penalty
        exponent = _ctranslate2_penalty(alpha)
        order = [i for i in rows if len(sources[i]) < self._num_positions]
        order.sort(key=lambda i: -len(sources[i]))
        max_size = min(-(-len(order) // self._workers), _MAX_BATCH_SENTENCES)
        batch_tokens = self._config.batch_tokens or CPU_BATCH_TOKENS
        pending: dict[int, Any] = {}
        while order:
            size = batch_tokens // ((len(sources[order[0]]) + 1) * beams)
            batch = order[: min(max_size, max(1, size))]
            longest, patience = limits[batch[0]] + 1, 1
            if own_limit:
                longest, patience = limits[batch[0]], min(2, beams)
                batch = [i for i in batch if limits[i] == longest]
            order = order[len(batch) :]
            answers = self._translator.translate_batch(
                [list(map(self._pieces.__getitem__, sources[i])) for i in batch],
                beam_size=beams,
                patience=patience,
                num_hypotheses=beams * patience,
                length_penalty=exponent,
                suppress_sequences=self._suppressed,
                max_input_length=0,
                min_decoding_length=0,  # its default, 1, changes probabilities in the first step
                max_decoding_length=longest,
                return_scores=True,
                return_end_token=True,
                asynchronous=True,
            )
            pending.update(zip(batch, answers, strict=True))
        for i, answer in pending.items():
            with self._errors_explained():  # some libraries are loaded only when they are needed
                result = answer.result()
            found = []
            for pieces, own_score in zip(result.hypotheses, result.scores, strict=True):
                log_prob = own_score * len(pieces) ** exponent
                found.append(
                    _Found(pieces, log_prob, log_prob / length_penalty(len(pieces), alpha))
                )
            if not any(
                math.isnan(each.score) or not self._special.isdisjoint(each.pieces)
                for each in found
            ):
                found.sort(key=lambda each: -each.score)
                yield i, found

    def _ends(self, hypothesis: _Found) -> bool:
        return hypothesis.pieces[-1] == self._end

    def _hypothesis(self, found: _Found) -> Hypothesis:
        tokens = [self._ids[piece] for piece in found.pieces if piece != self._end]
        return Hypothesis(tokens, found.log_prob, found.score)


def _ctranslate2_penalty(alpha: float) -> float:
    """CTranslate2's ``length_penalty`` p for ours, α.

    Whatever p is, a hypothesis H of the length L with which the search ended is kept: fewer than W
    have finished before. By CTranslate2's score a dropped one, of n symbols, is no better than H.
    It is no better by ours if ((5 + n) / 6)^α / n^p is at most the same of L, so if this does not
    fall from n to L; its derivative is nowhere negative for p ≤ α / 6, the largest being closest to
    our penalty. At 0 CTranslate2 would stop at the first translation that ends.
    """
    return max(alpha / 6, 1e-9)


def _num_threads() -> int:
    """Number of worker threads: as many as torch would use, which is not loaded for it."""
    given = os.environ.get("OMP_NUM_THREADS", "")
    if (torch := sys.modules.get("torch")) is not None:
        threads = int(torch.get_num_threads())
        return threads if given else min(threads, hardware.available_cores())
    return max(1, int(given)) if given.isdecimal() else hardware.physical_cores()
