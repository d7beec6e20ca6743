"""Batches of sentences for decoding: by number of tokens, halved when memory runs out."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

from transformer_mt.decode.engines.engine import CPU_BATCH_TOKENS
from transformer_mt.errors import InputError, is_out_of_memory
from transformer_mt.model.transformer import Transformer

T = TypeVar("T")

_MAX_GPU_TOKENS = 524288
"""17,000 rows of 30 tokens. A step of 4,000 rows fills a GPU, but batches shrink as sentences
finish. Not measured."""
_MEMORY_SHARE = 0.5
"""Share of a GPU's free memory to use."""


def default_batch_tokens(models: Sequence[Transformer], itemsize: int) -> int:
    """The number of tokens, padding and beams included, that easily fits the device's memory.

    The key/value caches of the models have elements of ``itemsize`` bytes.
    """
    device = models[0].embedding.weight.device
    if device.type != "cuda":
        return CPU_BATCH_TOKENS
    free, _ = torch.cuda.mem_get_info(device)
    # torch keeps freed memory, above all that of the training before a validation.
    free += torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    bytes_per_token = 0
    for model in models:
        config = model.config
        width = config.num_heads * (config.key_size + config.value_size)
        # The cache, and a larger one while it grows; six times the fp32 logits of a row, one for
        # every eight tokens (shorter sentences are rare): a captured step has its own.
        bytes_per_token += 3 * config.num_decoder_layers * width * itemsize
        bytes_per_token += 6 * 4 * model.vocab_size // 8
    return max(1, min(_MAX_GPU_TOKENS, int(_MEMORY_SHARE * free) // bytes_per_token))


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

    Raises:
        InputError: A single item does not fit the device's memory.
    """
    order = sorted(range(len(sizes)), key=lambda i: -sizes[i])
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
