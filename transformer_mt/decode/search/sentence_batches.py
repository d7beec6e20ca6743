"""How many sentences are decoded at a time."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

from transformer_mt.errors import InputError, is_out_of_memory
from transformer_mt.model.transformer import Transformer

T = TypeVar("T")

_CPU_TOKENS = 8192
_MOST_TOKENS = 524288
"""On a GPU: 17,000 rows, if sentences have 30 tokens. A step of 4,000 fills it, but a batch soon
shrinks, and the last of many sentences cost no more time than those of few. Not measured."""
_SHARE = 0.5
"""Of a GPU's free memory."""


def decoding_tokens(models: Sequence[Transformer], itemsize: int) -> int:
    """Tokens, padding and beams included, that the memory of the models' device holds with ease.

    Args:
        models: All that translate together.
        itemsize: Bytes of an element of their keys and values.
    """
    device = models[0].embedding.weight.device
    if device.type != "cuda":
        return _CPU_TOKENS
    free, _ = torch.cuda.mem_get_info(device)
    # torch keeps what it has freed, of the training before a validation above all.
    free += torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    each = 0
    for model in models:
        config = model.config
        width = config.num_heads * (config.key_size + config.value_size)
        # The cache, and a larger one while it grows; six times the logits, in fp32, of a row that
        # stands for eight tokens (shorter sentences are rare): a recorded step has its own.
        each += 3 * config.num_decoder_layers * width * itemsize + 6 * 4 * model.vocab_size // 8
    return max(1, min(_MOST_TOKENS, int(_SHARE * free) // each))


def in_batches(
    sizes: Sequence[int], tokens: int, work: Callable[[list[int]], Sequence[T]]
) -> list[T]:
    """Does some work on items of similar size together.

    The largest come first: memory only falls after the first batch. Where it does not suffice, the
    batches of the rest are half as large.

    Args:
        sizes: Tokens of each item.
        tokens: Most tokens of a batch, all items counted as long as its longest.
        work: Gets the numbers of a batch's items; its result for each of them, in their order.

    Returns:
        The results, in the order of the items.

    Raises:
        InputError: A single item is too large.
    """
    order = sorted(range(len(sizes)), key=lambda i: -sizes[i])
    results: dict[int, T] = {}
    while order:
        number = max(1, tokens // sizes[order[0]])
        batch = order[:number]
        try:
            found = work(batch)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            if len(batch) == 1:
                raise InputError(
                    f"the device's memory does not hold a single sentence of {sizes[batch[0]]} "
                    "tokens, beams included: lower max_source_tokens or beam_size, or say "
                    "device=cpu"
                ) from error
            tokens = len(batch) * sizes[batch[0]] // 2
            found = None
        if found is None:  # here, where the error no longer holds what filled the memory
            torch.cuda.empty_cache()
            continue
        order = order[len(batch) :]
        results.update(zip(batch, found, strict=True))
    return [results[i] for i in range(len(sizes))]
