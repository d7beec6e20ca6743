"""The training benchmark is fair: its peers compute the same function of the same pairs."""

import importlib

import numpy as np
import pytest
import torch
from support.random_weights import random_transformer
from support.stores import random_store

from transformer_mt.config import ModelConfig, OptimizerConfig
from transformer_mt.conversion.transformers_model import LAYER_NORM_EPS, sines_first
from transformer_mt.data.batching.micro_batches import collate
from transformer_mt.distributed.world import World
from transformer_mt.training.step import TrainStep

peers = importlib.import_module("peers")

CPU = torch.device("cpu")
VOCABULARY = 29
CONFIG = ModelConfig(
    d_model=16, d_ff=24, num_heads=4, num_encoder_layers=2, num_decoder_layers=3, dropout=0.1,
    layer_norm_eps=LAYER_NORM_EPS,
)  # fmt: skip


RAGGED = random_store(5, VOCABULARY)


@pytest.mark.parametrize("peer_class", ["TorchPeer", "MarianPeer"])
def test_loss_and_gradient_equal_the_peers(peer_class: str) -> None:
    if peer_class == "MarianPeer":
        pytest.importorskip("transformers")
    ours = random_transformer(CONFIG, VOCABULARY).float().eval()
    peer = getattr(peers, peer_class)(ours).eval()
    pairs = np.arange(5)
    targets = len(RAGGED.tgt.tokens)

    step = TrainStep(ours, OptimizerConfig(), 0.1, "fp32", World(CPU))
    loss = step([collate(RAGGED, [pairs])], targets, lr=0.0, seed=0).loss
    padded = peers.PaddedPairs.collate(RAGGED, pairs)
    peer_loss = peers.peer_loss(peer, padded, 0.1, "fp32", "sum")
    (peer_loss / targets).backward()

    torch.testing.assert_close(loss / targets, peer_loss / targets, rtol=0, atol=1e-5)
    # The gradient of the embedding depends on all layers: output layer and both inputs.
    (gradient,) = (p.grad for p in peer.parameters() if p.shape == (VOCABULARY, CONFIG.d_model))
    expected = ours.embedding.weight.grad
    assert expected is not None
    if peer_class == "MarianPeer":
        expected = expected[:, sines_first(CONFIG.d_model)]
    torch.testing.assert_close(gradient, expected, rtol=0, atol=1e-5)
