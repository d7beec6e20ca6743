"""A run that is killed, stopped by a signal or by a limit resumes exactly."""

import errno
import itertools
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from safetensors.torch import load_file
from support.tiny_trainer import SCORES, Bleu, assert_equal, kept, records, steps, trainer, weights

from transformer_mt import checkpoint as ckpt
from transformer_mt.config import ScheduleConfig
from transformer_mt.model.transformer import Transformer
from transformer_mt.training.interruptions import StoppedError
from transformer_mt.training.monitor import Monitor
from transformer_mt.training.validation import ValidationResult


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


def test_an_uninterrupted_run(uninterrupted: Path) -> None:
    assert steps(uninterrupted, "train") == [1, 5, 6, 10, 12, 15, 18, 20, 24]
    assert steps(uninterrupted, "valid") == [6, 12, 18, 24]
    # The last three averaged checkpoints, and the best, which was saved for a validation.
    assert kept(uninterrupted) == [12, 16, 20, 24]


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


@pytest.mark.parametrize("moment", [*range(1, 30, 4), *range(30, 146, 29)])
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
        with pytest.raises(Killed):
            run.run()
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
    again = trainer(tmp_path, Bleu(*SCORES[min((validated - 1) // 6, 3) :]))
    assert again.state.step == step
    assert bool(again.finished) == (during == "record")
    again.run()
    assert_same_run(tmp_path, uninterrupted)


def test_patience(tmp_path: Path) -> None:
    translate = Bleu(1, 3, 2, 2.9, 0, 4, 3)  # 0: of the average
    trainer(tmp_path, translate, max_steps=1000, patience=2).run()
    assert steps(tmp_path, "valid") == [6, 12, 18, 24]  # best at 12, then two without improvement
    assert steps(tmp_path, "train")[-1] == 24
    assert trainer(tmp_path, translate, max_steps=1000, patience=2).finished
    more = trainer(tmp_path, translate, max_steps=1000, patience=3)
    assert not more.finished  # improves at 30, then three without improvement
    more.run()
    assert (steps(tmp_path, "valid")[-1], steps(tmp_path, "final")) == (48, [48])


def test_a_lost_checkpoint_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = Mock(side_effect=OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    monkeypatch.setattr(ckpt, "save_checkpoint", full)
    stop = Bleu(then=lambda _: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(OSError, match="No space left"):
        trainer(tmp_path, stop, checkpoint_every=100).run()


def test_intervals_end_in_validations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]

    def now(seconds: float = 1e-6) -> float:
        clock[0] += seconds
        return clock[0]

    monkeypatch.setattr(time, "perf_counter", now)
    slow = Bleu(then=lambda _: now(10.0))
    limits: dict[str, Any] = {"max_steps": 10**6, "max_hours": 200 / 3600, "validate_every": 2}
    run = trainer(tmp_path, slow, checkpoint_every=None, **limits)
    run.run()
    assert (run.state.step, run.state.num_regular) == (40, 19)


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
    assert trainer(tmp_path, schedule=linear, **limits).finished
    assert not trainer(tmp_path, schedule=linear, **{**limits, "max_hours": 1.0}).finished
    assert rates[20:] == sorted(rates[20:], reverse=True)  # a resumed run continues the decay
    assert rates[-1] < 0.05e-3
