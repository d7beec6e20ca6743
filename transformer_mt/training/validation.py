"""Validation: its result, its loss, and the interface of the function that translates.

The function is passed to the trainer, so that training does not depend on decoding.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch

from transformer_mt.data.batching.micro_batches import micro_batches
from transformer_mt.data.batching.plan import GlobalBatch
from transformer_mt.data.store.token_store import TokenStore
from transformer_mt.distributed.world import World
from transformer_mt.model.transformer import Transformer
from transformer_mt.training.step import LossModule


@dataclass(frozen=True)
class ValidationResult:
    """Metrics of a model on the validation set, and examples of its output."""

    metrics: dict[str, float]
    """Scores by their name in ``train.best_by``, on every rank."""
    samples: list[tuple[str, str, str]] = field(default_factory=list)
    """Source, reference and translation of some lines, the same at every validation; empty on ranks
    other than the main one."""


Validator = Callable[[Transformer], ValidationResult]
"""Translates and scores the validation set with a model in ``eval`` mode; every rank calls it."""


@torch.no_grad()
def validation_loss(
    loss: LossModule, valid: TokenStore, max_tokens: int, world: World
) -> dict[str, float]:
    """Mean ``loss`` and ``nll`` per target token, computed by all ranks together.

    Args:
        loss: Loss of a model in ``eval`` mode.
        valid: Validation pairs.
        max_tokens: Maximum number of tokens, of either side, in one forward pass.
        world: Ranks that share the work.
    """
    sums = torch.zeros(2, device=world.device, dtype=torch.float64)
    order = np.argsort(valid.tgt.lengths, kind="stable")
    pairs = GlobalBatch(valid, (order,), len(valid.tgt.tokens))
    for part in micro_batches(pairs, max_tokens, world.rank, world.size):
        sums += torch.stack(loss(part.to(world.device)))
    mean_loss, mean_nll = (world.sum(sums) / len(valid.tgt.tokens)).tolist()
    return {"loss": mean_loss, "nll": mean_nll}
