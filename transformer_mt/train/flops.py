"""How much of the hardware a run uses: model FLOPs utilisation (MFU).

Counted is the arithmetic that the model needs, not what an implementation does: matrix products
only, a multiplication and an addition being two operations, no padding, and of causal attention
the pairs that its mask lets through. MFU is that count a second over the devices' peak rate, as in
PaLM (https://arxiv.org/abs/2204.02311, appendix B).
"""

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from transformer_mt.config import ModelConfig
from transformer_mt.data.store.token_store import TokenStore
from transformer_mt.distributed import World

# Name as torch has it, without the vendor's → TFLOP/s. Half precision is that of the tensor cores
# with dense operands (data sheets boast of twice that, with sparse ones) and fp32 sums; fp32 is
# without TF32, as PyTorch multiplies by default. From https://www.nvidia.com/en-us/data-center/
# (a100, h100, h200, l4, l40s, products/a10-gpu, v100, tesla-t4), and for the two cards from
# https://images.nvidia.com/aem-dam/Solutions/geforce/ada/nvidia-ada-gpu-architecture.pdf
_HALF = ("bf16", "fp16")
_PEAKS: dict[str, dict[str, float]] = {
    r"H200": {"fp32": 67, **dict.fromkeys(_HALF, 989.4)},
    r"H200 NVL": {"fp32": 60, **dict.fromkeys(_HALF, 835.5)},
    r"H100 80GB HBM3": {"fp32": 67, **dict.fromkeys(_HALF, 989.4)},  # SXM
    r"H100 PCIe": {"fp32": 51, **dict.fromkeys(_HALF, 756.5)},
    r"H100 NVL": {"fp32": 60, **dict.fromkeys(_HALF, 835.5)},
    r"A100[- ](SXM4|PCIE|PG509|[48]0GB)\b.*": {"fp32": 19.5, **dict.fromkeys(_HALF, 312)},
    r"L40S": {"fp32": 91.6, **dict.fromkeys(_HALF, 362)},
    r"L4": {"fp32": 30.3, **dict.fromkeys(_HALF, 121)},
    r"A10": {"fp32": 31.2, **dict.fromkeys(_HALF, 125)},
    r"V100-SXM2-.*": {"fp32": 15.7, "fp16": 125},
    r"V100-PCIE-.*": {"fp32": 14, "fp16": 112},
    r"T4": {"fp32": 8.1, "fp16": 65},
    r"RTX 3090": {"fp32": 35.6, **dict.fromkeys(_HALF, 71)},
    r"RTX 4090": {"fp32": 82.6, **dict.fromkeys(_HALF, 165.2)},
}

Lengths = npt.NDArray[Any]


@dataclass(frozen=True)
class FlopsMeter:
    """Turns target tokens a second into a share of what the devices could do."""

    per_target: float
    """Operations of an update for each of its target tokens, those for the source included: the
    mean over the training pairs."""
    peak: float
    """Operations a second that all devices together can do at most."""

    def mfu(self, targets_per_second: float) -> float:
        """Model FLOPs utilisation, 0 to 1."""
        return self.per_target * targets_per_second / self.peak


def flops_meter(
    config: ModelConfig, vocab_size: int, train: TokenStore, precision: str, world: World
) -> FlopsMeter | None:
    """A meter for training on these pairs, or None where the device's peak rate is not known.

    Args:
        config: The model.
        vocab_size: V.
        train: Training pairs.
        precision: ``fp32``, ``bf16`` or ``fp16``.
        world: The ranks; their devices are taken to be alike.
    """
    if world.device.type != "cuda":
        return None
    peak = peak_rate(torch.cuda.get_device_name(world.device), precision)
    if peak is None:
        return None
    flops = update_flops(config, vocab_size, train.src.lengths, train.tgt.lengths)
    return FlopsMeter(flops / len(train.tgt.tokens), peak * world.size)


def peak_rate(device_name: str, precision: str) -> float | None:
    """Peak operations a second of a device by its name in ``torch.cuda``; None if unknown.

    A slice of a device (MIG) is not known: its name does not tell its rate.
    """
    name = re.sub(r"^(NVIDIA |Tesla |GeForce )*", "", device_name)
    for pattern, rates in _PEAKS.items():
        if "MIG" not in name and re.fullmatch(pattern, name) and precision in rates:
            return rates[precision] * 1e12
    return None


def update_flops(
    config: ModelConfig, vocab_size: int, src_lengths: Lengths, tgt_lengths: Lengths
) -> float:
    """Operations of forward and backward on these pairs.

    A weight of a matrix product takes 6 operations for each token that it meets: 2 forward, 4
    backward, for the gradients of both factors. An attention layer adds 6·H·(d_k + d_v) for each
    query and key that see each other: two products, Q Kᵀ and the weights times V.

    Args:
        config: The model.
        vocab_size: V.
        src_lengths: [pairs] tokens that the encoder reads.
        tgt_lengths: [pairs] tokens that the decoder reads.
    """
    D, F = config.d_model, config.d_ff
    keys, values = config.num_heads * config.key_size, config.num_heads * config.value_size
    S, T = (lengths.astype(np.float64) for lengths in (src_lengths, tgt_lengths))
    encoder, decoder = config.num_encoder_layers, config.num_decoder_layers
    self_attention, feed_forward = D * 2 * (keys + values), 2 * D * F
    # The cross-attention's keys and values are of the source, queries and outputs of the target.
    cross = D * (keys + values)
    src_weights = encoder * (self_attention + feed_forward) + decoder * cross
    tgt_weights = decoder * (self_attention + cross + feed_forward) + D * vocab_size
    products = src_weights * S.sum() + tgt_weights * T.sum()
    seen = encoder * (S @ S) + decoder * ((T @ T + T.sum()) / 2 + T @ S)
    return float(6 * products + 6 * (keys + values) * seen)
