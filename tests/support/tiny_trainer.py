"""Complete runs of a tiny model in this process, and what they leave."""

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from support.models import tiny_config
from support.stores import one_shard, random_store
from transformer_mt import checkpoint as ckpt
from transformer_mt.config import (
    DataConfig,
    ModelConfig,
    ScheduleConfig,
    SourceConfig,
    TrainConfig,
    TrainJob,
)
from transformer_mt.distributed.world import World
from transformer_mt.model.transformer import Transformer
from transformer_mt.training.metrics_log import read_records
from transformer_mt.training.trainer import Trainer
from transformer_mt.training.validation import ValidationResult

V = 23
CPU = World(torch.device("cpu"))
SOURCE = SourceConfig(tsv="unused")
DATA = DataConfig(src_lang="en", tgt_lang="de", train=[SOURCE], valid=[SOURCE])
WARMUP = ScheduleConfig(warmup_steps=10)
PAIRS, VALID = random_store(60, V), random_store(7, V)
TIME_KEYS = ("time", "tokens_per_second", "data_wait")
"""Keys of ``metrics.jsonl`` that depend on the clock; a resumed run repeats all others exactly."""


class Bleu:
    """A validator with fixed scores, one at each validation; the last one repeats."""

    def __init__(self, *scores: float, then: Callable[[int], None] | None = None):
        self.scores, self.calls, self.then = scores or (0.0,), 0, then

    def __call__(self, model: Transformer) -> ValidationResult:
        assert not model.training
        self.calls += 1
        if self.then:
            self.then(self.calls)
        return ValidationResult({"bleu": self.scores[min(self.calls, len(self.scores)) - 1]})


def trainer(
    folder: Path,
    translate: Bleu | None = None,
    data: DataConfig = DATA,
    schedule: ScheduleConfig = WARMUP,
    model: ModelConfig | None = None,
    **config: Any,
) -> Trainer:
    settings: dict[str, Any] = {
        "batch_tokens": 40,
        "max_steps": 24,
        "log_every": 5,
        "checkpoint_every": 4,
        "validate_every": 6,
        "average_checkpoints": 3,
        "precision": "fp32",
        **config,
    }
    job = TrainJob(
        run_dir=str(folder),
        data=data,
        model=model or tiny_config(attention_dropout=0.1, activation_dropout=0.1),
        schedule=schedule,
        train=TrainConfig(**settings),
    )
    folder.mkdir(exist_ok=True)
    sets = {"train": one_shard(PAIRS), "valid_store": VALID}
    tokenizer = SimpleNamespace(vocab_size=V, tgt=SimpleNamespace(vocab_size=V))
    prepared: Any = SimpleNamespace(**sets, tokenizer=tokenizer)
    return Trainer(job, prepared, translate or Bleu(), CPU)


def weights(path: Path) -> dict[str, Tensor]:
    return load_file(path / "model.safetensors")


def assert_equal(a: Any, b: Any) -> None:
    torch.testing.assert_close(a, b, rtol=0, atol=0)


def records(folder: Path, without: Sequence[str] = TIME_KEYS) -> list[dict[str, Any]]:
    rows = read_records(folder)
    return [{k: v for k, v in row.items() if k not in without} for row in rows]


def steps(folder: Path, split: str) -> list[int]:
    return [record["step"] for record in records(folder) if record["split"] == split]


def kept(folder: Path) -> list[int]:
    return [c.step for c in ckpt.valid_checkpoints(folder)]


SCORES = (1, 3, 2, 2.5)
"""Of four validations."""
