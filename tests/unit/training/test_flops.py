"""FLOPs against PyTorch's counter, and peak rates by device name."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from support.models import tiny_config
from support.stores import store_of_lengths
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from transformer_mt.config import ModelConfig
from transformer_mt.data.batching.micro_batches import collate
from transformer_mt.model.transformer import Transformer
from transformer_mt.training.flops import peak_rate, peak_token_rate, update_flops

V = 50


@pytest.mark.parametrize(
    "changes",
    [{}, {"norm": "pre"}, {"d_k": 3, "d_v": 7}, {"num_encoder_layers": 1, "num_decoder_layers": 4}],
)
def test_flops_equal_the_count_of_pytorch(changes: dict[str, Any]) -> None:
    config = tiny_config(**{"num_encoder_layers": 2, "num_decoder_layers": 3, **changes})
    model = Transformer(config, V)
    # Equal lengths, since the counter would count padding.
    pairs, S, T = 3, 7, 5
    store = store_of_lengths(np.full(pairs, S), np.full(pairs, T))
    batch = collate(store, [np.arange(pairs)])
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        model.logits(model(batch)).sum().backward()
    heads = config.num_heads * (config.key_size + config.value_size)
    masked = T * T - T * (T + 1) // 2  # computed by causal attention, but masked
    extra = pairs * 6 * heads * config.num_decoder_layers * masked
    own = update_flops(config, V, store.src.lengths, store.tgt.lengths)
    assert own + extra == counter.get_total_flops()


@pytest.mark.parametrize(
    ("name", "precision", "tera"),
    [
        ("NVIDIA H200", "fp32", 67),
        ("NVIDIA H100 80GB HBM3", "bf16", 989.4),
        ("NVIDIA H100 PCIe", "fp16", 756.5),
        ("NVIDIA A100-PCIE-40GB", "bf16", 312),
        ("NVIDIA L40S", "bf16", 362),
        ("Tesla V100-SXM2-16GB", "bf16", None),  # not supported
        ("NVIDIA GeForce RTX 4090", "bf16", 165.2),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", "bf16", None),  # a different chip
        ("NVIDIA H200 MIG 1g.18gb", "bf16", None),  # a slice
    ],
)
def test_peak_rates_by_name(name: str, precision: str, tera: float | None) -> None:
    rate = peak_rate(name, precision)
    assert rate == (None if tera is None else pytest.approx(tera * 1e12))


def test_peak_token_rate_averages_the_corpus_and_counts_all_devices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config, store = ModelConfig(), store_of_lengths(np.array([10, 20]), np.array([5, 10]))
    gpu: Any = SimpleNamespace(device=torch.device("cuda"), size=8)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "Some GPU")
    assert peak_token_rate(config, V, store, "bf16", gpu) is None
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "NVIDIA H200")
    total = update_flops(config, V, store.src.lengths, store.tgt.lengths)
    # At this rate the 15 target tokens take as long as on 8 devices at their peak rate.
    expected = 15 / (total / (8 * 989.4e12))
    assert peak_token_rate(config, V, store, "bf16", gpu) == pytest.approx(expected)
