"""The training benchmark is fair: its peers compute the same function, or are not measured."""

import importlib

import pytest
import torch
from support.random_weights import random_transformer
from support.stores import random_store

from transformer_mt.config import ModelConfig
from transformer_mt.conversion.transformers_model import LAYER_NORM_EPS
from transformer_mt.distributed.world import World
from transformer_mt.errors import InputError

bench_train = importlib.import_module("train")

VOCABULARY = 29
CONFIG = ModelConfig(
    d_model=16, d_ff=24, num_heads=4, num_encoder_layers=2, num_decoder_layers=3, dropout=0.1,
    layer_norm_eps=LAYER_NORM_EPS,
)  # fmt: skip


@pytest.mark.parametrize("name", ["torch-fp32", "marian-fp32"])
def test_only_models_with_equal_losses_are_measured(name: str) -> None:
    if name == "marian-fp32":
        pytest.importorskip("transformers")
    update = next(bench_train.plan_updates(random_store(5, VOCABULARY), 1000))
    assert update.padded.src_padding is not None
    initial, world = random_transformer(CONFIG, VOCABULARY).float(), World(torch.device("cpu"))
    ours, peer = (bench_train.build_one(each, initial, world) for each in ("ours-fp32", name))
    bench_train.check_losses([ours, peer], update)
    with torch.no_grad():
        next(peer.model.parameters())[::2] += 0.1
    with pytest.raises(InputError, match=rf"per token of {name} is .* models differ"):
        bench_train.check_losses([ours, peer], update)
