"""The losses of a validation against their definition."""

import pytest
import torch
from support.losses import mean_losses
from support.models import tiny_config
from support.stores import random_store

from transformer_mt.distributed.world import World
from transformer_mt.model.transformer import Transformer
from transformer_mt.training.step import LossModule
from transformer_mt.training.validation import validation_loss

V, SMOOTHING = 23, 0.1


@pytest.mark.parametrize("max_tokens", [10**6, 14])  # one batch, and several
def test_the_mean_is_over_target_tokens(max_tokens: int) -> None:
    store = random_store(11, V)
    assert len(store.src.tokens) != len(store.tgt.tokens) != len(store)
    torch.manual_seed(5)
    model = Transformer(tiny_config(), V).eval()
    found = validation_loss(
        LossModule(model, SMOOTHING, "fp32"), store, max_tokens, World(torch.device("cpu"))
    )
    loss, nll = mean_losses(model, store, range(11), SMOOTHING)
    assert found == {"loss": pytest.approx(loss, rel=1e-5), "nll": pytest.approx(nll, rel=1e-5)}
    assert loss != pytest.approx(nll, rel=1e-3)
