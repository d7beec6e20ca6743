"""The CTranslate2 engine: its own beam search, and the n best ordered by our length penalty.

As in ``search.beam_search``, a search ends once W hypotheses have finished, so translations are
the same but for rounding and ties, and for these differences:

* Where more than W hypotheses have finished, CTranslate2 drops those of the lowest probability.
* A translation that reaches its maximum length is cut off there, without an end symbol.
* Special symbols are ruled out before the softmax, not after it.
"""

import math
import os
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformer_mt.config import DecodeConfig, ModelConfig
from transformer_mt.config.translate import COMPUTE_TYPES
from transformer_mt.data.subwords.tokenizer import BOS, EOS, PAD, UNK, Tokenizer
from transformer_mt.decode.engine import (
    BATCH_TOKENS,
    NAN_MESSAGE,
    SINUSOIDS,
    Engine,
    Hypothesis,
    UnavailableError,
    length_penalty,
    max_output_tokens,
    max_tokens,
)
from transformer_mt.errors import InputError
from transformer_mt.kernels import hardware

_MAX_BATCH_SENTENCES = 32
"""With larger batches a worker waits for another at the end, which costs int8 a tenth of its speed
on 1,000 lines; with smaller ones float32 is slower."""
_NO_PENALTY = 1e-9
"""CTranslate2's own length penalty: its scores are log-probabilities, and ours is applied to them.
At 0 it would stop at the first translation that ends."""
_SAME_LIMIT = 16
"""Sentences whose lengths round up to the same multiple of this are translated in one call, which
has one maximum length: so a translation does not depend on the other sentences."""


def check_available(compute_type: str, device: str) -> None:
    """Raises ``UnavailableError`` if CTranslate2 is missing, or lacks a type or device here."""
    try:
        from ctranslate2 import get_supported_compute_types

        supported = get_supported_compute_types(device)
    except (ImportError, RuntimeError, ValueError) as error:  # an AMD GPU, which PyTorch can use
        raise UnavailableError(
            f"engine=ctranslate2 does not work on this {device} ({error}): pip install "
            "ctranslate2, or set engine=torch or device=cpu"
        ) from None
    if compute_type not in supported:
        choice = ", ".join(name for name in COMPUTE_TYPES if name in supported)
        raise UnavailableError(
            f"compute_type={compute_type} is not supported on this {device}: choose from {choice}"
        )


class CTranslate2Engine(Engine):
    """Beam search by CTranslate2; see ``Engine``.

    Args:
        converted: Folder of the converted model (``converted_models.find_or_convert``).
        tokenizer: The model's vocabulary.
        model: The shape of the model.
        config: Search settings.
        compute_type: Data type of the computation (``check_available``).
        device: ``cpu`` or ``cuda``.
    """

    name = "ctranslate2"

    def __init__(
        self,
        converted: Path,
        tokenizer: Tokenizer,
        model: ModelConfig,
        config: DecodeConfig,
        *,
        compute_type: str = "float32",
        device: str = "cpu",
    ):
        import ctranslate2

        self.compute_type, self._config = compute_type, config
        self.max_tokens = min(max_tokens(model), SINUSOIDS - 1)
        self._pieces, tgt_pieces = tokenizer.vocabulary, tokenizer.tgt.vocabulary
        self._ids = {piece: i for i, piece in enumerate(tgt_pieces)}
        self._special = [[tgt_pieces[i]] for i in (PAD, UNK, BOS)]
        # One worker per core, with one thread each: workers share nothing, so none waits.
        self._workers = _num_threads() if device == "cpu" else 1
        torch = sys.modules.get("torch")
        torch_threads = torch.get_num_threads() if torch is not None else 0
        try:
            self._translator = ctranslate2.Translator(
                str(converted),
                device=device,
                compute_type=compute_type,
                inter_threads=self._workers,
                intra_threads=1,
            )
        except RuntimeError as error:
            raise UnavailableError(
                f"CTranslate2 cannot use {converted} ({error}): delete that folder, or set "
                "engine=torch"
            ) from None
        finally:  # CTranslate2 sets OpenMP's number of threads to 1 in this process
            if torch is not None:
                torch.set_num_threads(torch_threads)

    def search(
        self,
        sources: Sequence[list[int]],
        nbest: int,
        prefixes: Sequence[Sequence[int]] | None = None,
    ) -> list[list[Hypothesis]]:
        """See ``Engine``.

        CTranslate2 shares out the sentences of a call to its workers, those of similar length
        together; batches are small if workers would be idle.
        """
        if prefixes is not None:
            self._refuse("forced beginnings of translations")
        calls = defaultdict[int, list[int]](list)  # maximum length → indices of sentences
        for i, source in enumerate(sources):
            longest = -(-len(source) // _SAME_LIMIT) * _SAME_LIMIT
            calls[max_output_tokens(self._config, longest, self.max_tokens)].append(i)
        answers = dict[int, Any]()
        for limit, indices in sorted(calls.items(), reverse=True):  # the longest first
            started = self._translate([sources[i] for i in indices], limit, len(sources))
            answers.update(zip(indices, started, strict=True))
        return [
            self._hypotheses(
                answers[i].result(), max_output_tokens(self._config, len(source), self.max_tokens)
            )[:nbest]
            for i, source in enumerate(sources)
        ]

    def _translate(self, sources: Sequence[list[int]], limit: int, total: int) -> list[Any]:
        """Starts the translation of sentences, of ``total`` ones; returns a result for each."""
        config = self._config
        tokens = (config.batch_tokens or BATCH_TOKENS["cpu"]) // config.beam_size
        size = tokens // (max(map(len, sources)) + 1)
        answers: list[Any] = self._translator.translate_batch(
            [list(map(self._pieces.__getitem__, source)) for source in sources],
            max_batch_size=max(1, min(size, -(-total // self._workers), _MAX_BATCH_SENTENCES)),
            beam_size=config.beam_size,
            num_hypotheses=config.beam_size,
            length_penalty=_NO_PENALTY,
            suppress_sequences=self._special,
            max_input_length=0,
            min_decoding_length=0,  # its default, 1, changes probabilities in the first step
            max_decoding_length=limit + 1,  # the end symbol
            return_scores=True,
            return_end_token=True,
            asynchronous=True,
        )
        return answers

    def _hypotheses(self, result: Any, limit: int) -> list[Hypothesis]:
        """CTranslate2's hypotheses for a sentence, best first by our score."""
        hypotheses = []
        for pieces, log_prob in zip(result.hypotheses, result.scores, strict=True):
            if math.isnan(log_prob):
                raise InputError(NAN_MESSAGE)
            tokens = [self._ids[piece] for piece in pieces]
            score = log_prob / length_penalty(len(tokens), self._config.length_penalty)
            if tokens[-1] == EOS:
                tokens.pop()
            hypotheses.append(Hypothesis(tokens[:limit], log_prob, score))
        return sorted(hypotheses, key=lambda each: -each.score)


def _num_threads() -> int:
    """Number of worker threads: as many as torch uses by default, which is not loaded for it."""
    given = os.environ.get("OMP_NUM_THREADS", "")
    return max(1, int(given)) if given.isdecimal() else hardware.physical_cores()
