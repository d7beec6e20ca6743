"""The batches of an epoch follow the data configuration."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from transformer_mt.config import DataConfig, SourceConfig, TrainConfig, TrainJob
from transformer_mt.data.batching.batch_iterator import BatchIterator
from transformer_mt.data.store.token_store import Side, TokenStore
from transformer_mt.distributed import World

SIZES = (300, 100)


def store() -> TokenStore:
    rng = np.random.default_rng(0)

    def side() -> Side:
        return Side.from_lists([[*[4] * n, 3] for n in rng.integers(1, 9, sum(SIZES))])

    return TokenStore(side(), side(), source_sizes=SIZES)


@pytest.mark.parametrize(
    ("settings", "times"),
    [({}, (1, 1)), ({"weights": [0.5, 2]}, (0.5, 2)), ({"temperature": 1e9}, (1, 3))],
)
def test_sources_occur_as_often_as_configured(
    settings: dict[str, Any], times: tuple[float, float], tmp_path: Path
) -> None:
    sources = [SourceConfig(tsv="unused")] * 2
    data = DataConfig(src_lang="en", tgt_lang="de", train=sources, valid=sources, **settings)
    job = TrainJob(run_dir=str(tmp_path), data=data, train=TrainConfig(batch_tokens=50))
    batches = BatchIterator(job, store(), None, 50, False, World(torch.device("cpu")))
    steps = range(1, batches.epochs.steps_per_epoch + 1)
    seen = Counter(pair for step in steps for pair in batches.pair_indices(step))
    first = sum(count for pair, count in seen.items() if pair < SIZES[0])
    # Fractional weights are rounded to whole pairs: one more or less.
    assert first == pytest.approx(times[0] * SIZES[0], abs=1)
    assert seen.total() - first == pytest.approx(times[1] * SIZES[1], abs=1)
