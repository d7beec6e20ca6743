"""The compiled training step for buffers of a fixed shape, on a CPU."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from support.models import tiny_config
from support.stores import random_store
from torch._dynamo.utils import counters

from transformer_mt.config import OptimizerConfig
from transformer_mt.data.batching.micro_batches import micro_batches
from transformer_mt.data.batching.plan import BatchPlan
from transformer_mt.data.batching.static_batches import buffered_batches, plan_buffers
from transformer_mt.distributed.world import World
from transformer_mt.model.transformer import Transformer
from transformer_mt.training.step import TrainStep

VOCABULARY = 131
STORE = random_store(1200, 20)
"""Pairs of a few of the pieces: a model learns which."""
CPU = torch.device("cpu")
OPTIONS: dict[str, Any] = {"attention_bias": True, "output_bias": True, "activation": "swish"}
"""Options that add to the step: without them it does a part of the same work."""


@pytest.fixture(autouse=True)
def fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()


def model(dropout: float, reserve: int, **options: Any) -> Transformer:
    torch.manual_seed(1)
    config = tiny_config(d_model=16, d_ff=32, dropout=dropout, **options)
    made = Transformer(config, VOCABULARY)
    for embedding in {made.source_embedding, made.embedding}:
        embedding.reserve(reserve)
    return made


def step(of: Transformer, compiled: bool) -> TrainStep:
    return TrainStep(of, OptimizerConfig(), 0.1, "fp32", World(CPU), compiled=compiled)


def test_100_updates_compile_once_and_equal_the_eager_step() -> None:
    plan = BatchPlan(STORE, 100, 1)
    assert 50 < plan.steps_per_epoch < 100  # they go beyond an epoch
    shape = plan_buffers(plan, STORE.max_length, 80)  # two buffers an update
    assert shape.parts == 2
    eager, compiled = (model(0.0, shape.max_length, **OPTIONS) for _ in range(2))
    by_pairs, by_buffers = step(eager, False), step(compiled, True)
    losses = []
    for number in range(100):
        batch = plan[number]
        results = (
            by_pairs(micro_batches(batch, 10**6), batch.num_targets, 1e-3, number),
            by_buffers(buffered_batches(batch, shape), batch.num_targets, 1e-3, number),
        )
        losses.append([float(result.loss) / batch.num_targets for result in results])
    assert counters["stats"]["unique_graphs"] == 1  # the whole step, and never again
    assert not counters["graph_break"]
    mine, theirs = np.array(losses).T
    np.testing.assert_allclose(mine, theirs, rtol=2e-3)  # rounding grows over the updates
    np.testing.assert_allclose(mine[:5], theirs[:5], rtol=1e-5)
    assert mine[-20:].mean() < mine[:20].mean() - 0.5  # it learns


def test_dropout_depends_on_the_seed_of_each_update(monkeypatch: pytest.MonkeyPatch) -> None:
    # The seed is set outside the graph, so any backend will do, and this one compiles no C++.
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    monkeypatch.setattr(torch._dynamo.config, "recompile_limit", 1)
    plan = BatchPlan(STORE, 100, 1)
    shape = plan_buffers(plan, plan.store.max_length, 160)
    buffers, targets = buffered_batches(plan[0], shape), plan[0].num_targets
    for dropout in ("dropout", "attention_dropout"):  # as two jobs of a sweep: two graphs
        trained = step(model(**{"dropout": 0.0, dropout: 0.3, "reserve": shape.max_length}), True)
        first, second, again = (float(trained(buffers, targets, 0.0, s).loss) for s in (1, 2, 1))
        assert first == again
        assert first != second
