"""The PyTorch engine: beam search or sampling, with forced prefixes and ensembles."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from transformer_mt.batch import Packed
from transformer_mt.config import DecodeConfig
from transformer_mt.config.checks import require
from transformer_mt.data.subwords.tokenizer import BOS, EOS, PAD, UNK, Tokenizer
from transformer_mt.decode.engine import (
    BATCH_TOKENS,
    NAN_MESSAGE,
    Engine,
    EngineRequest,
    Hypothesis,
    max_output_tokens,
    max_tokens,
    torch_compute_type,
)
from transformer_mt.decode.search.beam_search import beam_search
from transformer_mt.decode.search.sampling import sample
from transformer_mt.errors import InputError, is_out_of_memory
from transformer_mt.kernels import hardware
from transformer_mt.model.attention_maps import attention_maps, layer_maps
from transformer_mt.model.transformer import Transformer, for_inference

_LOGIT_ROWS = 1024
"""Rows of logits held at a time, in forced decoding."""

T = TypeVar("T")


class ModelStep:
    """The step function of one model, or of an ensemble that averages probabilities.

    The models are in ``eval`` mode and share a vocabulary; ``src`` is packed as one bucket.
    """

    def __init__(self, models: Sequence[Transformer], src: Packed, beam_size: int):
        self._models = models
        self._states = [model.init_decoder_state(src, beam_size) for model in models]

    def step(self, tokens: Tensor, parents: Tensor) -> Tensor:
        """See ``StepFunction``."""
        members = []
        for model, state in zip(self._models, self._states, strict=True):
            log_probs = model.decode_step(tokens, parents, state).float().log_softmax(-1)
            # Never part of a translation. Ruled out after the softmax, in which training gave them
            # probability.
            for token in (PAD, UNK, BOS):
                log_probs[..., token].fill_(-torch.inf)
            members.append(log_probs)
        return log_probs if len(members) == 1 else log_mean_exp(members)

    def keep(self, sentences: Sequence[int]) -> None:
        """See ``StepFunction``."""
        for state in self._states:
            state.keep(sentences)


def log_mean_exp(log_probs: Sequence[Tensor]) -> Tensor:
    """The logarithm of the mean of probabilities that are given as logarithms."""
    return torch.stack(list(log_probs)).logsumexp(0) - math.log(len(log_probs))


class TorchEngine(Engine):
    """Translates with a model, or with an ensemble; see ``Engine``.

    Sentences of similar length share a batch, which does not change their translations.

    Args:
        models: One model, or an ensemble with the same vocabulary, of which the probabilities of
            the next token are averaged; in ``eval`` mode, on the device to translate on. Their
            weights must not change afterwards.
        config: Search settings.
        compute_type: Data type of the computation: ``float32``, ``bfloat16`` or ``float16``.

    Raises:
        InputError: The vocabulary is too small for the beam.
    """

    def __init__(
        self, models: Sequence[Transformer], config: DecodeConfig, compute_type: str = "float32"
    ):
        largest = models[0].vocab_size // 2
        require(
            config.beam_size <= largest,
            f"beam_size={config.beam_size}: this vocabulary allows at most {largest}",
        )
        self.name, self.compute_type = "torch", compute_type
        self.max_tokens = min([max_tokens(each.config) for each in models])
        self.device = models[0].embedding.weight.device
        self._config = config
        self._batch_tokens = config.batch_tokens or BATCH_TOKENS[self.device.type]
        self.models = [for_inference(each, getattr(torch, compute_type)) for each in models]

    @torch.inference_mode()
    def search(
        self,
        sources: Sequence[list[int]],
        nbest: int,
        prefixes: Sequence[Sequence[int]] | None = None,
    ) -> list[list[Hypothesis]]:
        """See ``Engine``."""
        config, device = self._config, self.device
        limits = [max_output_tokens(config, len(source), self.max_tokens) for source in sources]
        if prefixes is not None:
            limits = list(map(max, limits, map(len, prefixes)))
        beams = nbest if config.sampling else config.beam_size

        def search(batch: list[int]) -> list[list[Hypothesis]]:
            src = Packed.from_sequences([[*sources[i], EOS] for i in batch]).to(device)
            max_lengths = [limits[i] for i in batch]
            step = ModelStep(self.models, src, beams)
            starts = None if prefixes is None else [prefixes[i] for i in batch]
            find: Callable[..., list[list[Hypothesis]]]
            if config.sampling:
                # A sample depends on the seed and its own source, not on the rest of the batch.
                generators = [
                    [Random(f"{config.seed} {n} {sources[i]}") for n in range(nbest)] for i in batch
                ]
                find = partial(sample, generators=generators, config=config)
            else:
                alpha = config.length_penalty
                find = partial(beam_search, beam_size=beams, alpha=alpha, nbest=nbest)
            return find(step, max_lengths, bos=BOS, eos=EOS, prefixes=starts, device=device)

        sizes = [(len(source) + 1) * beams for source in sources]
        return map_batches(search, sizes, self._batch_tokens)

    @torch.inference_mode()
    def score(
        self, sources: Sequence[list[int]], targets: Sequence[list[int]]
    ) -> list[list[float]]:
        """See ``Engine``: forced decoding.

        Raises:
            InputError: The model's output is not a number.
        """

        def score(batch: list[int]) -> list[list[float]]:
            src = Packed.from_sequences([[*sources[i], EOS] for i in batch]).to(self.device)
            tgt_in = Packed.from_sequences([[BOS, *targets[i]] for i in batch]).to(self.device)
            tgt_out = torch.tensor([token for i in batch for token in (*targets[i], EOS)])
            log_probs = self._log_probs(src, tgt_in, tgt_out.to(self.device))
            if log_probs.isnan().any():
                raise InputError(NAN_MESSAGE)
            return [
                values.tolist() for values in log_probs.split([len(targets[i]) + 1 for i in batch])
            ]

        sizes = [max(len(s), len(t)) + 1 for s, t in zip(sources, targets, strict=True)]
        return map_batches(score, sizes, self._batch_tokens)

    def _log_probs(self, src: Packed, tgt_in: Packed, tgt_out: Tensor) -> Tensor:
        """[N] log-probabilities of the packed target tokens of a batch."""
        members = []
        for model in self.models:
            hidden = model.decode(tgt_in, model.encode(src), src)
            parts = [
                model.logits(rows).float().log_softmax(-1).gather(1, tokens[:, None])[:, 0]
                for rows, tokens in zip(
                    hidden.split(_LOGIT_ROWS), tgt_out.split(_LOGIT_ROWS), strict=True
                )
            ]
            members.append(torch.cat(parts))
        return members[0] if len(members) == 1 else log_mean_exp(members)

    @torch.inference_mode()
    def align(self, pairs: Sequence[tuple[list[int], list[int]]]) -> list[NDArray[np.float32]]:
        """See ``Engine``; an ensemble aligns with its first model.

        The weights are the cross-attention of the last layer but one, averaged over its heads, at
        the step that predicts the target token, which Garg et al. 2019 ("Jointly Learning to Align
        and Translate with Transformer Models") find best. On a small model of ours it agreed with
        IBM Model 1 on 7 of 10 words; other layers agreed less often, and the step that reads the
        token, which Chen et al. 2020 prefer, rarely. Attention to the end symbol of the source is
        left out.
        """
        decoder = self.models[0].decoder
        layer = decoder[max(len(decoder) - 2, 0)].get_submodule("cross_attention")

        def align(batch: list[int]) -> list[NDArray[np.float32]]:
            src, tgt_in = [[*pairs[i][0], EOS] for i in batch], [[BOS, *pairs[i][1]] for i in batch]
            (maps,) = layer_maps(self.models[0], [layer], src, tgt_in)
            return [weights.mean(0)[:-1, :-1].float().numpy(force=True) for weights in maps]

        return map_batches(align, [max(map(len, pair)) + 1 for pair in pairs], self._batch_tokens)

    def attention_maps(
        self, source: Sequence[int], target: Sequence[int], tokenizer: Tokenizer
    ) -> tuple[dict[str, list[Tensor]], list[str], list[str]]:
        """The first model's attention weights for a sentence and its translation, as token ids.

        Neither has an end symbol; ``tokenizer`` is the model's.

        Returns:
            The weights (``model.attention_maps``); the S pieces that the encoder reads; and T + 1
            pieces, of which the decoder reads all but the last and predicts all but the first.
        """
        src, tgt = [*source, EOS], [BOS, *target, EOS]
        maps = attention_maps(self.models[0], src, tgt[:-1])
        return maps, tokenizer.pieces(src), tokenizer.tgt.pieces(tgt)


def map_batches(
    function: Callable[[list[int]], Sequence[T]], sizes: Sequence[int], batch_tokens: int
) -> list[T]:
    """Results of a function, applied to batches of items of similar size, in the items' order.

    The largest items come first, so memory use only falls after the first batch. When memory runs
    out, this batch and the following ones are halved.

    Args:
        function: Takes the indices of a batch's items and returns their results in this order.
        sizes: Number of tokens of each item.
        batch_tokens: Maximum number of tokens of a batch, each item counted as the largest.
    """
    order = sorted(range(len(sizes)), key=sizes.__getitem__, reverse=True)
    results: dict[int, T] = {}
    while order:
        batch = order[: max(1, batch_tokens // sizes[order[0]])]
        try:
            batch_results = function(batch)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            if len(batch) == 1:
                raise InputError(
                    f"a single sentence of {sizes[batch[0]]} tokens, beams included, does not fit "
                    "the device's memory: lower max_source_tokens or beam_size, or set device=cpu"
                ) from error
            batch_tokens = len(batch) * sizes[batch[0]] // 2
            batch_results = None
        if batch_results is None:  # outside the handler: the error keeps the memory occupied
            torch.cuda.empty_cache()
            continue
        order = order[len(batch) :]
        results.update(zip(batch, batch_results, strict=True))
    return [results[i] for i in range(len(sizes))]


def build(request: EngineRequest) -> TorchEngine:
    """Builds the PyTorch engine."""
    compute_type = request.compute_type
    if compute_type == "int8":
        because = f", which does not support {', '.join(request.torch_only)}"
        raise InputError(
            f"compute_type=int8 needs engine=ctranslate2{because if request.torch_only else ''}: "
            "set compute_type=float32 or bfloat16"
        )
    if compute_type == "float16" and request.device == "cpu":
        raise InputError("compute_type=float16 needs a GPU: set compute_type=float32 or bfloat16")
    hardware.set_up(request.device)
    models = [folder.load_model().to(request.device) for folder in request.folders]
    compute_type = torch_compute_type(compute_type, request.device)
    return TorchEngine(models, request.config, compute_type)
