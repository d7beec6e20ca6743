"""What a run leaves for people and programs to read."""

import json
import logging
import time
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import (  # type: ignore[import-untyped]
    EventAccumulator,
)

from transformer_mt.train.monitor import Monitor, duration, perplexity

TRAIN = {"loss": 2.5, "nll": 2.0, "lr": 1e-3, "grad_norm": 0.5}


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> Any:
    # A command run in this process may have cut the package's log off from the root.
    monkeypatch.setattr(logging.getLogger("transformer_mt"), "propagate", True)
    caplog.set_level(logging.INFO, logger="transformer_mt")
    return lambda: [record.getMessage() for record in caplog.records]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    return now


def records(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_a_record_is_in_the_file_on_the_board_and_on_the_screen(
    tmp_path: Path, lines: Any, clock: list[float]
) -> None:
    monitor = Monitor(tmp_path, 0, 100)
    clock[0] += 2.0
    monitor.training(10, 5000, 0.5, TRAIN)
    monitor.validation(10, {"loss": 2.2, "nll": 1.0, "bleu": 12.345})
    monitor.close()
    train, valid = records(tmp_path)
    assert (train["step"], train["split"], valid["split"]) == (10, "train", "valid")
    assert train["ppl"] == pytest.approx(7.389056)  # e²
    assert valid["ppl"] == pytest.approx(2.718282)
    assert train["tokens_per_second"] == 2500
    assert train["data_wait"] == 0.25  # half a second of two
    assert {k: train[k] for k in TRAIN} == TRAIN
    assert valid["bleu"] == 12.345
    shown = lines()
    assert "step 10/100  loss 2.500  ppl 7.39" in shown[0]
    assert "2,500 tokens/s  0:00:18 left" in shown[0]  # 90 updates of 0.2 s
    assert shown[1] == "  validation: loss 2.200  ppl 2.72  BLEU 12.35"
    board = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    for split, record in (("train", train), ("valid", valid)):
        for key in record.keys() - {"step", "split", "time"}:
            (event,) = board.Scalars(f"{split}/{key}")
            assert event.step == 10
            assert event.value == pytest.approx(record[key], rel=1e-6)


def test_time_that_is_not_training_does_not_count(
    tmp_path: Path, lines: Any, clock: list[float]
) -> None:
    monitor = Monitor(tmp_path, 0, 100)
    clock[0] += 1.0
    monitor.training(10, 1000, 0.0, TRAIN)
    with monitor.paused():
        clock[0] += 50.0  # a validation
    clock[0] += 1.0
    monitor.training(20, 1000, 0.0, TRAIN)
    monitor.close()
    assert [record["tokens_per_second"] for record in records(tmp_path)] == [1000, 1000]


def test_what_a_killed_run_recorded_after_its_checkpoint_is_forgotten(tmp_path: Path) -> None:
    first = Monitor(tmp_path, 0, 100)
    for step in (10, 20, 30):
        first.training(step, 100, 0.0, {**TRAIN, "loss": float(step)})
    first.close()
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 40, "spl')  # the kill came here
    second = Monitor(tmp_path, 20, 100)
    second.training(30, 100, 0.0, {**TRAIN, "loss": 3.0})
    second.close()
    assert [(r["step"], r["loss"]) for r in records(tmp_path)] == [(10, 10), (20, 20), (30, 3)]
    board = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert [(e.step, e.value) for e in board.Scalars("train/loss")] == [(10, 10), (20, 20), (30, 3)]


def test_the_records_are_never_written_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 10}\n{"step": 20}\n')
    before = path.stat().st_ino
    Monitor(tmp_path, 10, 100).close()
    assert path.read_text() == '{"step": 10}\n'
    assert path.stat().st_ino != before  # another file took its name


@pytest.mark.parametrize(("seconds", "warned"), [(60.0, True), (0.5, False)])
def test_a_run_of_weeks_is_announced_after_three_updates(
    tmp_path: Path, lines: Any, clock: list[float], seconds: float, warned: bool
) -> None:
    monitor = Monitor(tmp_path, 0, 100_000)
    for step in range(1, 6):
        clock[0] += 500.0 if step == 1 else seconds  # the first update compiles
        monitor.update(step)
    monitor.close()
    warnings = [line for line in lines() if "experiment=quickstart" in line]
    assert len(warnings) == warned
    if warned:
        assert "60 s" in warnings[0]
        assert "10 weeks" in warnings[0]  # 100,000 minutes


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0:00:00"), (59.6, "0:01:00"), (90_061, "1 day, 1:01:01"), (1_814_400, "3 weeks")],
)
def test_durations_as_people_say_them(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_perplexity_of_a_hopeless_model_is_a_number() -> None:
    assert perplexity(0.0) == 1.0
    assert 1e300 < perplexity(1e9) < float("inf")
