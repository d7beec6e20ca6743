"""Complete runs of a tiny model: stopping, checkpoints, exact resuming, the final model."""

import itertools
import json
import logging
import math
import os
import re
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from support.errors import input_error
from support.losses import mean_losses
from support.models import tiny_config
from support.stores import one_shard, random_store
from torch import Tensor

from transformer_mt import checkpoint as ckpt
from transformer_mt.config import (
    CleaningConfig,
    DataConfig,
    ModelConfig,
    ScheduleConfig,
    SourceConfig,
    TrainConfig,
    TrainJob,
)
from transformer_mt.distributed.world import World
from transformer_mt.model.transformer import Transformer
from transformer_mt.training import trainer as trainer_module
from transformer_mt.training.interruptions import StoppedError
from transformer_mt.training.metrics_log import TIME_KEYS
from transformer_mt.training.monitor import Monitor
from transformer_mt.training.step import TrainStep
from transformer_mt.training.trainer import Trainer
from transformer_mt.training.validation import ValidationResult

V = 23
CPU = World(torch.device("cpu"))
SOURCE = SourceConfig(tsv="unused")
DATA = DataConfig(src_lang="en", tgt_lang="de", train=[SOURCE], valid=[SOURCE])
WARMUP = ScheduleConfig(warmup_steps=10)
PAIRS, VALID = random_store(60, V), random_store(7, V)


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    """A run leaves the signal handlers as they were, even one that a signal stopped."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [*map(signal.getsignal, numbers)]
    yield
    after = [*map(signal.getsignal, numbers)]
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)
    assert after == before


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
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(x).items() if k not in without} for x in lines]


def steps(folder: Path, split: str) -> list[int]:
    return [record["step"] for record in records(folder) if record["split"] == split]


def kept(folder: Path) -> list[int]:
    return [c.step for c in ckpt.valid_checkpoints(folder)]


def assert_mean(folder: Path, *steps: int) -> None:
    """The final weights are the mean of those of some steps."""
    parts = [weights(folder / f"checkpoints/step_{step:08d}") for step in steps]
    for name, tensor in weights(folder).items():
        mean = torch.stack([part[name].double() for part in parts]).mean(0)
        torch.testing.assert_close(tensor.double(), mean, rtol=1e-6, atol=1e-8)


SCORES = (1, 3, 2, 2.5)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An uninterrupted run."""
    folder = tmp_path_factory.mktemp("whole")
    trainer(folder, Bleu(*SCORES)).run()
    return folder


def assert_same_run(folder: Path, other: Path) -> None:
    assert_equal(weights(folder), weights(other))
    assert records(folder) == records(other)
    assert kept(folder) == kept(other)


@pytest.fixture
def messages(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "transformer_mt")
    return caplog


def test_an_uninterrupted_run(uninterrupted: Path) -> None:
    assert steps(uninterrupted, "train") == [1, 5, 10, 15, 20, 24]
    assert steps(uninterrupted, "valid") == [6, 12, 18, 24]
    # The last three averaged checkpoints, and the best, which was saved for a validation.
    assert kept(uninterrupted) == [12, 16, 20, 24]
    assert_mean(uninterrupted, 16, 20, 24)


class Killed(BaseException):
    """Simulated end of the process."""


def kill_at(monkeypatch: pytest.MonkeyPatch, moment: int) -> None:
    """Simulates a kill at the moment-th disk access."""
    count = 0

    def wrap(owner: Any, name: str) -> None:
        real = getattr(owner, name)

        def counted(*args: Any, **kwargs: Any) -> Any:
            nonlocal count
            count += 1
            if count >= moment:  # every later access fails as well
                raise Killed
            return real(*args, **kwargs)

        monkeypatch.setattr(owner, name, counted)

    wrap(ckpt, "save")
    wrap(ckpt, "write_json")
    wrap(os, "fsync")
    wrap(Path, "rename")


@pytest.mark.parametrize("moment", [*range(1, 30, 4), *range(30, 120, 13)])
def test_a_run_killed_at_any_disk_access_resumes_exactly(
    uninterrupted: Path, tmp_path: Path, moment: int
) -> None:
    class ByStep(Bleu):
        """The scores of the uninterrupted run, by step."""

        def __call__(self, model: Transformer) -> ValidationResult:
            return ValidationResult({"bleu": SCORES[run.state.step // 6 - 1]})

    with pytest.MonkeyPatch.context() as patch:
        kill_at(patch, moment)
        run = trainer(tmp_path, ByStep())
        killed = False
        try:
            run.run()
        except Killed:
            killed = True
    assert killed or moment > 80
    run = trainer(tmp_path, ByStep())
    run.run()
    assert_same_run(tmp_path, uninterrupted)
    found, expected = map(ckpt.valid_checkpoints, (tmp_path, uninterrupted))
    for one, other in zip(found, expected, strict=True):
        for name in ("model.safetensors", "optimizer.safetensors"):
            assert_equal(load_file(one.path / name), load_file(other.path / name))
        differ = {k for k in one.state if one.state[k] != other.state[k]}
        assert differ <= {"seconds", "sha256"}


@pytest.mark.parametrize(
    ("number", "step", "during"),
    [
        (signal.SIGTERM, 6, "validation"),
        (signal.SIGINT, 12, "validation"),
        (signal.SIGHUP, 24, "validation"),
        (signal.SIGINT, 24, "record"),  # of the last validation
    ],
)
def test_a_signal_stops_a_run_which_resumes(
    uninterrupted: Path, tmp_path: Path, number: signal.Signals, step: int, during: str
) -> None:
    log_validation = Monitor.log_validation

    def interrupt(call: int) -> None:
        if (6 * call, during) == (step, "validation"):
            os.kill(os.getpid(), number)
            for _ in range(10**6):
                pass
            raise AssertionError("the validation continued")

    def recorded(*args: Any) -> None:
        log_validation(*args)
        if (run.state.step, during) == (step, "record"):
            os.kill(os.getpid(), number)

    run = trainer(tmp_path, Bleu(*SCORES, then=interrupt))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Monitor, "log_validation", recorded)
        with pytest.raises(StoppedError) as stopped:
            run.run()
    assert stopped.value.signal == number
    validated = step + (during == "record")
    assert steps(tmp_path, "valid") == [*range(6, validated, 6)]
    assert kept(tmp_path)[-1] == step
    again = trainer(tmp_path, Bleu(*SCORES[(validated - 1) // 6 :]))
    assert again.state.step == step
    assert again.is_finished == (during == "record")
    again.run()
    assert_same_run(tmp_path, uninterrupted)


def test_patience(tmp_path: Path) -> None:
    translate = Bleu(1, 3, 2, 2.9, 4)
    trainer(tmp_path, translate, max_steps=1000, patience=2).run()
    assert steps(tmp_path, "valid") == [6, 12, 18, 24]  # best at 12, then two without improvement
    assert steps(tmp_path, "train")[-1] == 20
    assert trainer(tmp_path, translate, max_steps=1000, patience=2).is_finished
    more = trainer(tmp_path, translate, max_steps=1000, patience=3)
    assert not more.is_finished  # improves at 30, then three without improvement
    more.run()
    assert steps(tmp_path, "valid")[-1] == 48


@pytest.mark.parametrize(
    ("config", "score", "calls", "averaged", "warned"),
    [
        ({}, 2.9, 5, [16, 20, 24], True),  # the fifth score is that of the average
        ({}, 3.1, 5, [16, 20, 24], False),
        ({}, 2.999, 5, [16, 20, 24], False),  # the log shows both as 3.00
        ({"average_checkpoints": 1}, 9, 4, [24], True),
        ({"final": "best"}, 9, 4, [12], False),
    ],
)
def test_the_final_model_is_returned_and_compared_with_the_best_checkpoint(
    tmp_path: Path,
    messages: pytest.LogCaptureFixture,
    config: dict[str, Any],
    score: float,
    calls: int,
    averaged: list[int],
    warned: bool,
) -> None:
    translate = Bleu(*SCORES, score)
    model = trainer(tmp_path, translate, **config).run()
    assert translate.calls == calls
    assert ("train.final=best" in messages.text) == warned
    assert_mean(tmp_path, *averaged)
    assert_equal({n: p.detach() for n, p in model.named_parameters()}, weights(tmp_path))
    assert not model.training
    assert "its warm-up" not in messages.text


def test_settings_reach_the_training_step(
    tmp_path: Path, messages: pytest.LogCaptureFixture
) -> None:
    """Each setting has its own test elsewhere; here, that the trainer passes it on."""

    def trained(name: str, **config: Any) -> tuple[float, float]:
        """The loss of one update, and the norm of Adam's first moment, which is (1-β1)·g."""
        folder = tmp_path / name
        trainer(folder, max_steps=1, checkpoint_every=1, log_every=1, **config).run()
        state = load_file(folder / "checkpoints/step_00000001/optimizer.safetensors")
        moments = [moment.flatten() for key, moment in state.items() if key.endswith("exp_avg")]
        (record,) = [record for record in records(folder) if record["split"] == "train"]
        return record["loss"], float(torch.cat(moments).norm()) / (1 - 0.9)

    loss, norm = trained("plain")
    assert norm > 2e-3
    assert trained("clipped", clip_norm=1e-3) == (loss, pytest.approx(1e-3, rel=1e-3))
    assert trained("smooth", label_smoothing=0.3)[0] != loss
    assert messages.text.count("its warm-up of 10") == 3  # each of them is that short


def test_a_validation_loss_that_is_not_finite_is_an_error_with_advice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {"loss": math.inf, "nll": 1.0}
    monkeypatch.setattr("transformer_mt.training.trainer.validation_loss", lambda *_: found)
    with input_error(r"validation loss is not finite after update 6: lower the learn"):
        trainer(tmp_path).run()


def test_recorded_figures_are_per_target_token_and_per_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against their definitions, with weights that do not change, on this clock.

    The data of an update take three seconds, its computation one.
    """
    clock, prefetch, update = [100.0], trainer_module.prefetch, TrainStep.__call__
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])

    def slow_data(batches: Any) -> Any:
        for item in prefetch(batches):
            clock[0] += 3.0
            yield item

    def slow_update(*args: Any) -> Any:
        clock[0] += 1.0
        return update(*args)

    monkeypatch.setattr(trainer_module, "prefetch", slow_data)
    monkeypatch.setattr(TrainStep, "__call__", slow_update)
    fixed = ScheduleConfig(name="inverse_sqrt", warmup_steps=1, peak_lr=1e-30)
    settings: dict[str, Any] = {"max_steps": 9, "log_every": 100, "seed": 2}
    run = trainer(tmp_path, schedule=fixed, model=tiny_config(dropout=0.0), **settings)
    run.run()
    plan = run._batches.plan
    first, *rest = ([*np.concatenate(plan[i].chunks)] for i in range(9))
    sets = (PAIRS, first), (PAIRS, [*itertools.chain(*rest)]), (VALID, range(len(VALID)))
    one, others = (record for record in records(tmp_path, ()) if record["split"] == "train")
    found = zip((one, others, records(tmp_path)[-1]), sets, (1, len(rest), 0), strict=True)
    for record, (store, pairs), updates in found:
        targets = sum(len(store.tgt[pair]) for pair in pairs)
        assert targets != sum(len(store.src[pair]) for pair in pairs)
        loss, nll = mean_losses(run.model.eval(), store, pairs, 0.1)
        expected = {"loss": loss, "nll": nll, "ppl": math.exp(nll)}
        assert {name: record[name] for name in expected} == pytest.approx(expected, rel=1e-5)
        if updates:
            assert record["tokens_per_second"] == pytest.approx(targets / (4.0 * updates))
            assert record["data_wait"] == pytest.approx(0.75)


def test_a_schedule_that_decays_to_zero_does_so_by_the_limit_of_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = itertools.count(0, 0.25)
    monkeypatch.setattr(time, "perf_counter", lambda: next(ticks))
    limits: dict[str, Any] = {"max_steps": 10**6, "max_hours": 100 / 3600, "log_every": 1}
    limits["checkpoint_every"] = None  # by the time, too
    linear = ScheduleConfig(name="linear", warmup_steps=10, peak_lr=1e-3)
    stop = Bleu(then=lambda _: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(StoppedError):
        trainer(tmp_path, stop, schedule=linear, validate_every=20, **limits).run()
    trainer(tmp_path, schedule=linear, validate_every=20, **limits).run()
    rates = [r["lr"] for r in records(tmp_path) if r["split"] == "train"]
    assert len(rates) > 30  # each update takes a second or two of this clock
    state = ckpt.valid_checkpoints(tmp_path)[-1].state
    assert (state["step"], state["seconds"] >= 100) == (len(rates), True)
    assert trainer(tmp_path, schedule=linear, **limits).is_finished
    assert not trainer(tmp_path, schedule=linear, **{**limits, "max_hours": 1.0}).is_finished
    assert rates[20:] == sorted(rates[20:], reverse=True)  # a resumed run continues the decay
    assert rates[-1] < 0.05e-3


def poison(run: Trainer, bad: Sequence[int]) -> None:
    """Makes the gradients of some updates NaN."""
    run.model.encoder[0].feed_forward.linear1.weight.register_hook(
        lambda grad: grad * math.nan if run.state.step in bad else grad
    )


def test_out_of_memory_advice_is_a_valid_setting(tmp_path: Path) -> None:
    run = trainer(tmp_path, data=replace(DATA, cleaning=CleaningConfig(max_tokens=10)))

    def lacks(*_: object) -> None:
        raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory")

    run._train_step = lacks  # type: ignore[assignment]
    with input_error(r"memory on a batch of \d+ tokens: set train") as error:
        run.run()
    size, less = map(int, re.findall(r"(?:of |device=)(\d+)", str(error.value)))
    assert 10 <= less <= size // 2
    replace(run._job, train=replace(run._job.train, max_tokens_per_device=less))


def test_updates_that_are_not_finite_are_skipped_and_counted(tmp_path: Path) -> None:
    run = trainer(tmp_path)
    poison(run, [2, 3, 7, 13, 14])
    run.run()
    skipped = [(r["step"], r["skipped"]) for r in records(tmp_path) if r["split"] == "train"]
    assert skipped == [(1, 0), (5, 2), (10, 3), (15, 5), (20, 5), (24, 5)]
    assert all(math.isfinite(r["loss"]) for r in records(tmp_path))


def test_too_many_skipped_updates_stop_the_run(tmp_path: Path) -> None:
    run = trainer(tmp_path, log_every=1)
    poison(run, range(9, 24))
    with input_error(r"by update 18 .* not finite in 10 updates in a row, .*: lower the learning"):
        run.run()
    assert kept(tmp_path) == [6, 8, 12, 16]
    assert all(bool(t.isfinite().all()) for t in weights(tmp_path).values())


def test_all_ranks_split_an_update_by_the_memory_of_the_smallest_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = replace(DATA, cleaning=CleaningConfig(max_tokens=20))

    def final(name: str, **config: Any) -> dict[str, Tensor]:
        trainer(tmp_path / name, data=data, max_steps=6, **config).run()
        return weights(tmp_path / name)

    small, large = final("small", max_tokens_per_device=20), final("large")
    monkeypatch.setattr(World, "gather", lambda _, value: [value, 20])
    shared = final("shared")
    assert_equal(shared, small)  # parts of the same size draw the same dropout masks
    assert not torch.equal(shared["embedding.weight"], large["embedding.weight"])
