"""The losses of §5.4 from their definition: one pair at a time, by full logits."""

from collections.abc import Iterable

import numpy as np
import torch

from transformer_mt.data.batching.micro_batches import micro_batches
from transformer_mt.data.batching.plan import GlobalBatch
from transformer_mt.data.store.token_store import TokenStore
from transformer_mt.model.transformer import Transformer


@torch.no_grad()
def mean_losses(
    model: Transformer, store: TokenStore, pairs: Iterable[int], smoothing: float
) -> tuple[float, float]:
    """Mean loss and negative log-likelihood per target token of some pairs, without padding.

    The loss of a token is (1 − ε) · −log p(target) + ε · the mean of −log p over the vocabulary.
    """
    losses: list[float] = []
    nlls: list[float] = []
    for pair in pairs:
        (batch,) = micro_batches(GlobalBatch(store, (np.array([pair]),), 1), 10**6)
        logits = model.logits(model(batch)).double()
        surprisal = logits.exp().sum(1, keepdim=True).log() - logits  # [T, V] −log p
        for row, target in zip(surprisal, store.tgt[pair].tolist(), strict=False):
            nlls.append(row[target].item())
            losses.append((1 - smoothing) * nlls[-1] + smoothing * row.mean().item())
    return sum(losses) / len(losses), sum(nlls) / len(nlls)
