"""Sizes of batches that suit the device: what its memory holds, and few different shapes.

On a CPU every new shape costs time: oneDNN generates code for a 16-bit product of each new shape
and keeps 1,024 of them, and blocks of memory whose sizes never repeat fragment the heap, so that a
run gets slower and its memory grows. So the rows of flat tensors, and the buckets of sequences in
attention, are padded to sizes of a grid. The loss and attention ignore the padding.
"""

from itertools import pairwise

import numpy as np
import numpy.typing as npt
import torch

from transformer_mt.batch import Lengths
from transformer_mt.config import ModelConfig

_CPU_TOKENS = 8192

_LENGTHS = (16, 24, 32, 48, 64, 96, 128, 192, 256)
"""Lengths of sequences in attention; longer ones are multiples of the last. With AVX-512, the
softmax of fewer than 16 keys takes several times as long as that of 16."""

_BUCKET_COST = 5000
"""Pairs of positions whose attention costs as much as the kernels of one more bucket."""


def default_max_tokens(
    model: ModelConfig, device: torch.device, compiled_vocab: int | None = None
) -> int:
    """Default of ``train.max_tokens_per_device``: tokens of either side in one forward pass.

    Until the backward pass a token occupies up to 200 bytes for each layer and dimension; in a
    compiled step 39 (``tests/fake_gpu``), and 4 for each logit and its gradient, of which there are
    only a few rows at a time otherwise. As much is left for weights, optimizer state and temporary
    tensors.

    Args:
        model: Sizes of the model.
        device: Device of the training.
        compiled_vocab: Number of pieces of the target if the step is compiled.
    """
    if device.type != "cuda":
        return _CPU_TOKENS
    memory: int = torch.cuda.get_device_properties(device).total_memory
    layers = model.num_encoder_layers + model.num_decoder_layers
    saved, logits = (200, 0) if compiled_vocab is None else (39, 4 * compiled_vocab)
    return max(1024, memory // (2 * (saved * model.d_model * layers + logits)))


def padded_sizes(sizes: Lengths, steps: int) -> npt.NDArray[np.int64]:
    """The next larger numbers on a grid with ``steps`` of them from each power of two to the next.

    Args:
        sizes: Any shape; numbers of rows of flat tensors, or of sequences of a bucket.
        steps: With 16 the padding is about 3%.

    Returns:
        The same shape, each at least one more.
    """
    _, bits = np.frexp(sizes)
    unit = np.maximum(1, 2**bits // (2 * steps))
    return (sizes // unit + 1) * unit


def padded_lengths(lengths: Lengths) -> npt.NDArray[np.int64]:
    """The padded length of each sequence, such that few different ones occur.

    Args:
        lengths: [sequences] numbers of tokens.

    Returns:
        [sequences], each at least as long.
    """
    last = _LENGTHS[-1]
    grid = np.array([*_LENGTHS, *range(2 * last, int(lengths.max(initial=0)) + last, last)])
    level = np.searchsorted(grid, lengths)
    counts = np.bincount(level, minlength=len(grid))
    # A few sequences join the next longer ones: their padding costs less than one more bucket.
    target = np.arange(len(grid))
    for i, (length, longer) in enumerate(pairwise(grid.tolist())):
        if counts[i] * (longer**2 - length**2) < _BUCKET_COST and counts[i + 1 :].any():
            counts[i + 1] += counts[i]
            target[target == i] = i + 1
    return grid[target[level]]
