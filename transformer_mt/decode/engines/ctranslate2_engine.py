"""The CTranslate2 engine: its beam search, with the scores and results of ``search.beam_search``.

Both searches consider the 2W best continuations in each step, take those of the best W that end as
finished, continue with the best W that do not end, and stop once W have finished. The differences
are compensated here:

* CTranslate2 divides log-probabilities by |Y|^p, ours are divided by ((5 + |Y|) / 6)^α. Its scores
  are converted back to log-probabilities and then to ours, and the hypotheses are sorted again.
* When more than W have finished it drops the worst by its own score. A dropped hypothesis could be
  the best by ours only if it could reach ``_bound_of_dropped``.
* It cuts translations off at the maximum length, without an end symbol; ours, where the maximum
  depends on the sentence, end with one.
* It may generate special symbols, which ours rules out. A trained model gives them almost no
  probability.

In the last three cases, all rare, the PyTorch engine translates the sentence instead. So the best
translation is the same, ties and rounding aside; an n-best list may lack a dropped hypothesis.
PyTorch is loaded only when one of these cases occurs.
"""

import math
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformer_mt.config import DecodeConfig, ModelConfig
from transformer_mt.config.decode import COMPUTE_TYPES
from transformer_mt.data.subwords.tokenizer import BOS, EOS, PAD, UNK, Tokenizer
from transformer_mt.decode.engines.converted_models import SINUSOIDS
from transformer_mt.decode.engines.engine import (
    CPU_BATCH_TOKENS,
    Hypothesis,
    Link,
    Prefix,
    TokenPair,
    UnavailableError,
    WordIds,
    length_penalty,
    max_output_tokens,
    max_tokens,
)
from transformer_mt.errors import require_utf8
from transformer_mt.kernels import hardware

if TYPE_CHECKING:
    from transformer_mt.decode.engines.torch_engine import TorchEngine

_SPECIAL = {PAD, UNK, BOS}
_MAX_BATCH_SENTENCES = 32
"""With larger batches a worker waits for another at the end, which costs int8 a tenth of its speed
on 1,000 lines; with smaller ones float32 is slower."""


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
        self._pieces = tokenizer.vocabulary
        self._ids = {piece: i for i, piece in enumerate(tokenizer.tgt.vocabulary)}
        self._num_positions = min(self.max_tokens + 1, SINUSOIDS)
        kind, index = _split_device(device)
        # One worker per core, with one thread each: workers share nothing, so none waits.
        self._workers = _num_threads() if kind == "cpu" else 1
        torch = sys.modules.get("torch")
        torch_threads = torch.get_num_threads() if torch is not None else 0
        require_utf8(converted)  # it may be in a cache elsewhere
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
        prefixes: Sequence[Prefix] | None = None,
        *,
        token_scores: bool = True,
    ) -> list[list[Hypothesis]]:
        """See ``Engine``.

        Searches with prefixes are left to the PyTorch engine. CTranslate2 gives no scores of
        tokens: for float32 the PyTorch model computes them; other types have none.
        """
        if prefixes is not None:
            return self._fallback.search(sources, nbest, prefixes)
        beams = max(self._config.beam_size, nbest)
        found: dict[int, list[Hypothesis]] = {}
        for i, answer in self._submit(sources, beams).items():
            with self._errors_explained():  # some libraries are loaded only when they are needed
                result = answer.result()
            if hypotheses := self._hypotheses(result, sources[i]):
                found[i] = hypotheses[:nbest]
        if missing := [i for i in range(len(sources)) if i not in found]:
            others = self._fallback.search([sources[i] for i in missing], nbest)
            found.update(zip(missing, others, strict=True))
        results = [found[i] for i in range(len(sources))]
        if not token_scores or self.compute_type != "float32":
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

    def _submit(self, sources: Sequence[list[int]], beams: int) -> dict[int, Any]:
        """Starts the translation, by the workers, of the sources that the model has positions for.

        Sentences of similar length share a batch, the longest first; batches are small if workers
        would be idle.
        """
        short = [i for i, ids in enumerate(sources) if len(ids) < self._num_positions]
        order = sorted(short, key=lambda i: -len(sources[i]))
        max_size = min(-(-len(order) // self._workers), _MAX_BATCH_SENTENCES)
        batch_tokens = self._config.batch_tokens or CPU_BATCH_TOKENS
        pending: dict[int, Any] = {}
        while order:
            rows = batch_tokens // ((len(sources[order[0]]) + 1) * beams)
            size = min(max_size, max(1, rows))
            batch, order = order[:size], order[size:]
            longest = max(self._max_output_tokens(sources[i]) for i in batch)
            answers = self._translator.translate_batch(
                [[self._pieces[token] for token in sources[i]] for i in batch],
                beam_size=beams,
                num_hypotheses=beams,
                length_penalty=_ctranslate2_penalty(self._config.length_penalty),
                max_input_length=0,
                min_decoding_length=0,  # its default, 1, changes probabilities in the first step
                max_decoding_length=longest + 1,
                return_scores=True,
                return_end_token=True,
                asynchronous=True,
            )
            pending.update(zip(batch, answers, strict=True))
        return pending

    def _max_output_tokens(self, source: list[int]) -> int:
        """Maximum number of tokens that CTranslate2 may generate, end symbol not counted."""
        return max_output_tokens(self._config, source, self._num_positions - 1)

    def _hypotheses(self, result: Any, source: list[int]) -> list[Hypothesis]:
        """The hypotheses of CTranslate2, rescored and sorted; none if ours could find a better."""
        alpha = self._config.length_penalty
        exponent = _ctranslate2_penalty(alpha)
        hypotheses = []
        for pieces, score in zip(result.hypotheses, result.scores, strict=True):
            if math.isnan(score):
                return []  # the PyTorch engine reports it
            *tokens, last = (self._ids[piece] for piece in pieces)
            if (
                last != EOS
                or len(pieces) > self._max_output_tokens(source)
                or _SPECIAL.intersection(tokens)
            ):
                return []
            log_prob = score * len(pieces) ** exponent
            penalty = length_penalty(len(pieces), alpha)
            hypotheses.append(Hypothesis(tokens, log_prob, log_prob / penalty))
        hypotheses.sort(key=lambda h: -h.score)
        if len(hypotheses) > 1 and hypotheses[0].score < _bound_of_dropped(result, alpha):
            return []
        return hypotheses


def _bound_of_dropped(result: Any, alpha: float) -> float:
    """Upper bound of our score of a hypothesis that CTranslate2 dropped.

    By CTranslate2's score it was no better than any that was kept, and it is no longer than the
    longest of these, with which the search ended. For n symbols, its score and ours differ by the
    factor n^p / ((5 + n) / 6)^α. Its minimum, which maximises a negative score, is at an end of
    the range of n.
    """
    longest = max(map(len, result.hypotheses))
    factor = longest ** _ctranslate2_penalty(alpha) / length_penalty(longest, alpha)
    return float(min(result.scores)) * min(1.0, factor)


def _ctranslate2_penalty(alpha: float) -> float:
    """CTranslate2's ``length_penalty`` p for ours, α.

    n^0.4 is 0.8 to 1.2 times (5 + n) / 6 up to 20 symbols: close enough that ``_bound_of_dropped``
    rarely exceeds the best score (on Multi30k's test set in 1 of 1,000 sentences; with 0.6 in 4 of
    10). At 0 CTranslate2 would stop at the first translation that ends.
    """
    return max(0.4 * alpha, 1e-9)


def _num_threads() -> int:
    """Number of worker threads: as many as torch would use, which is not loaded for it."""
    given = os.environ.get("OMP_NUM_THREADS", "")
    if (torch := sys.modules.get("torch")) is not None:
        threads = int(torch.get_num_threads())
        return threads if given else min(threads, hardware.available_cores())
    return max(1, int(given)) if given.isdecimal() else hardware.physical_cores()
