"""Model FLOPs utilisation (MFU), as in PaLM (https://arxiv.org/abs/2204.02311, appendix B).

MFU is the rate of floating-point operations (FLOPs) that the model needs over the peak rate of the
devices. Only matrix products count, with two operations for each multiplication and addition;
padding and masked pairs of causal attention do not.
"""

import re

import numpy as np
import torch

from transformer_mt.batch import Lengths
from transformer_mt.config import ModelConfig
from transformer_mt.data.store.token_store import TokenStore
from transformer_mt.distributed.world import World

# Device name in torch, without the vendor → TFLOP/s in each of _PRECISIONS. Half precision is the
# rate of tensor cores with dense operands and fp32 accumulation (data sheets also give twice that,
# for sparse operands); fp32 is without TF32, PyTorch's default.
# From https://www.nvidia.com/en-us/data-center/ (a100, h100, h200, l4, l40s, products/a10-gpu,
# v100, tesla-t4), and for the two cards from
# https://images.nvidia.com/aem-dam/Solutions/geforce/ada/nvidia-ada-gpu-architecture.pdf
_PRECISIONS = ("fp32", "bf16", "fp16")
_PEAKS: dict[str, tuple[float, float | None, float]] = {
    r"H200": (67, 989.4, 989.4),
    r"H200 NVL": (60, 835.5, 835.5),
    r"H100 80GB HBM3": (67, 989.4, 989.4),  # SXM
    r"H100 PCIe": (51, 756.5, 756.5),
    r"H100 NVL": (60, 835.5, 835.5),
    r"A100[- ](SXM4|PCIE|PG509|[48]0GB)\b.*": (19.5, 312, 312),
    r"L40S": (91.6, 362, 362),
    r"L4": (30.3, 121, 121),
    r"A10": (31.2, 125, 125),
    r"V100-SXM2-.*": (15.7, None, 125),
    r"V100-PCIE-.*": (14, None, 112),
    r"T4": (8.1, None, 65),
    r"RTX 3090": (35.6, 71, 71),
    r"RTX 4090": (82.6, 165.2, 165.2),
}


def peak_token_rate(
    config: ModelConfig, vocab_size: int, train: TokenStore, precision: str, world: World
) -> float | None:
    """Target tokens per second at which MFU is 1; None if the device's peak rate is unknown.

    Args:
        config: Sizes of the model.
        vocab_size: Number of pieces V.
        train: Training pairs, or a sample, whose mean number of FLOPs per target token is used.
        precision: ``fp32``, ``bf16`` or ``fp16``.
        world: Ranks, all assumed to have the same GPU.
    """
    peak = peak_rate(torch.cuda.get_device_name(world.device), precision)
    if peak is None:
        return None
    src, tgt = train.src.lengths, train.tgt.lengths
    return peak * world.size * int(tgt.sum()) / update_flops(config, vocab_size, src, tgt)


def peak_rate(device_name: str, precision: str) -> float | None:
    """Peak FLOP/s of a device by its name in ``torch.cuda``; None if unknown, as for MIG slices."""
    name = re.sub(r"^(NVIDIA |Tesla |GeForce )*", "", device_name)
    for pattern, rates in _PEAKS.items():
        if "MIG" not in name and re.fullmatch(pattern, name):
            rate = rates[_PRECISIONS.index(precision)]
            return rate and rate * 1e12
    return None


def update_flops(
    config: ModelConfig, vocab_size: int, src_lengths: Lengths, tgt_lengths: Lengths
) -> float:
    """FLOPs of the forward and backward pass on sentence pairs of the given lengths.

    Each weight of a matrix takes 6 FLOPs per token: 2 forward and 4 backward, for the gradients of
    both factors. An attention layer adds 6·H·(d_k + d_v) for each pair of query and key that is not
    masked, for the two products Q Kᵀ and softmax(…) V.

    Args:
        config: Sizes of the model.
        vocab_size: Number of pieces V.
        src_lengths: [number of pairs] source tokens.
        tgt_lengths: [number of pairs] target tokens.
    """
    D, F = config.d_model, config.d_ff
    keys, values = config.num_heads * config.key_size, config.num_heads * config.value_size
    S, T = (lengths.astype(np.float64) for lengths in (src_lengths, tgt_lengths))
    encoder, decoder = config.num_encoder_layers, config.num_decoder_layers
    self_attention, feed_forward = D * 2 * (keys + values), 2 * D * F
    # Cross-attention projects source tokens to keys and values, target tokens to queries.
    cross = D * (keys + values)
    src_weights = encoder * (self_attention + feed_forward) + decoder * cross
    tgt_weights = decoder * (self_attention + cross + feed_forward) + D * vocab_size
    products = src_weights * S.sum() + tgt_weights * T.sum()
    attended = encoder * (S @ S) + decoder * ((T @ T + T.sum()) / 2 + T @ S)
    return float(6 * products + 6 * (keys + values) * attended)
