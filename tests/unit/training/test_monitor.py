"""Record of a run: log lines, progress bar, metrics.jsonl, TensorBoard."""

import json
import logging
import re
import time
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from tensorboard import plugin_util  # type: ignore[import-untyped]
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # type: ignore[import-untyped]

from transformer_mt.config import TrainConfig, TrainJob
from transformer_mt.training.metrics_log import read_records
from transformer_mt.training.monitor import Monitor, perplexity
from transformer_mt.training.progress import StoppingCriteria, TrainingState
from transformer_mt.training.trackers import Trackers
from transformer_mt.training.validation import ValidationResult

TRAIN = {"loss": 2.5, "nll": 2.0, "lr": 1e-3, "grad_norm": 0.5}


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Any:
    caplog.set_level(logging.INFO, "transformer_mt")
    return lambda: caplog.messages


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    return now


def tensorboard(folder: Path, steps_done: int = 0) -> Trackers:
    return Trackers(TrainJob(run_dir=str(folder)), steps_done)


def open_monitor(
    folder: Path, steps_done: int, max_steps: int, max_seconds: float | None = None, **options: Any
) -> Monitor:
    max_hours = None if max_seconds is None else max_seconds / 3600
    criteria = StoppingCriteria(TrainConfig(max_steps=max_steps, max_hours=max_hours))
    return Monitor(folder, TrainingState(step=steps_done), criteria, **options)


def events(folder: Path, monitor: Monitor) -> Any:
    """What TensorBoard reads after the end of a run."""
    monitor.bar.close()
    with monitor._trackers:
        pass
    return EventAccumulator(str(folder / "tensorboard")).Reload()


def train(monitor: Monitor, *steps: int, tokens: int = 100) -> None:
    """Some updates, each of which is logged."""
    for step in steps:
        monitor.log_training(step, TRAIN, tokens, 0.0)


def test_a_record_is_in_metrics_jsonl_tensorboard_and_the_log(
    tmp_path: Path, lines: Any, clock: list[float]
) -> None:
    scores = {"bleu": 12.345, "chrf": 100.0, "new": 7.0}
    monitor = open_monitor(tmp_path, 0, 100, max_seconds=12.0, trackers=tensorboard(tmp_path))
    clock[0] += 2.0
    monitor.log_training(10, {**TRAIN, "skipped": 2, "extra": 7.5}, 5000, 0.5)
    monitor.log_validation(10, ValidationResult({"loss": 2.2, "nll": 1.0, **scores}))
    train, valid = read_records(tmp_path)
    assert (train["step"], train["split"], valid["split"]) == (10, "train", "valid")
    assert train["ppl"] == pytest.approx(7.389056)  # e²
    assert valid["ppl"] == pytest.approx(2.718282)
    assert train["tokens_per_second"] == 2500
    assert train["data_wait"] == 0.25  # half a second of two
    assert {k: train[k] for k in TRAIN} == TRAIN
    assert (train["skipped"], train["extra"]) == (2, 7.5)
    assert {name: valid[name] for name in scores} == scores
    assert lines() == [
        # 90 updates of 0.2 s remain, but only 10 seconds.
        "10/100 loss 2.500 ppl 7.39 lr 1.0e-3 |g| 0.5 2.50k tok/s wait 25% skipped 2 <00:10",
        "  validation: loss 2.200  ppl 2.72  BLEU 12.35  chrF2 100.00  new 7.00",
    ]
    board = events(tmp_path, monitor)
    for split, record in (("train", train), ("valid", valid)):
        for key in record.keys() - {"step", "split", "time"}:
            (event,) = board.Scalars(f"{split}/{key}")
            assert event.step == 10
            assert event.value == pytest.approx(record[key], rel=1e-6)


def test_paused_time_does_not_count_in_the_rate(
    tmp_path: Path, lines: Any, clock: list[float]
) -> None:
    monitor = open_monitor(tmp_path, 0, 100)
    for step in (10, 20):
        clock[0] += 1.0
        train(monitor, step, tokens=1000)
        with monitor.paused():
            clock[0] += 50.0  # a validation
    monitor.bar.close()
    assert [record["tokens_per_second"] for record in read_records(tmp_path)] == [1000, 1000]
    assert lines()[-1].endswith("<00:08")  # 80 updates of 0.1 s


def test_records_after_the_latest_checkpoint_are_removed_on_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = open_monitor(tmp_path, 0, 100, trackers=tensorboard(tmp_path))
    for step in (10, 20, 30):
        first.log_training(step, {**TRAIN, "loss": float(step)}, 100, 0.0)
    events(tmp_path, first)
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + 2)  # event files are ordered by the second
    second = open_monitor(tmp_path, 20, 100, trackers=tensorboard(tmp_path, 20))
    second.log_training(30, {**TRAIN, "loss": 3.0}, 100, 0.0)
    board = events(tmp_path, second)
    curve = [(event.step, event.value) for event in board.Scalars("train/loss")]
    assert curve == [(10, 10), (20, 20), (30, 3)]
    assert [(r["step"], r["loss"]) for r in read_records(tmp_path)] == curve


def test_a_truncated_record_is_left_out_on_resume(tmp_path: Path) -> None:
    monitor = open_monitor(tmp_path, 0, 100)
    train(monitor, 10, 20)
    monitor.bar.close()
    path = tmp_path / "metrics.jsonl"
    before = path.stat().st_ino
    path.write_text(path.read_text()[:-9])
    open_monitor(tmp_path, 20, 100).bar.close()
    assert [record["step"] for record in read_records(tmp_path)] == [10]
    assert path.stat().st_ino != before  # never truncated in place: another file took its name


def test_a_full_disk_names_metrics_jsonl(tmp_path: Path) -> None:
    monitor = open_monitor(tmp_path, 0, 100)
    (tmp_path / "metrics.jsonl").unlink()
    (tmp_path / "metrics.jsonl").symlink_to("/dev/full")
    with pytest.raises(OSError, match=r"No space left on device: '.*metrics\.jsonl'"):
        train(monitor, 10)
    monitor.bar.close()


def test_a_number_that_is_not_finite_is_null_in_json(tmp_path: Path) -> None:
    monitor = open_monitor(tmp_path, 0, 100, trackers=tensorboard(tmp_path))
    monitor.log_training(1, {**TRAIN, "loss": float("nan"), "grad_norm": float("inf")}, 0, 0.0)
    monitor.bar.close()
    text = (tmp_path / "metrics.jsonl").read_text()
    record = json.loads(text, parse_constant=lambda name: pytest.fail(name))
    assert (record["loss"], record["grad_norm"]) == (None, None)
    assert perplexity(0.0) == 1.0
    assert 1e300 < perplexity(1e9) < float("inf")


def test_samples_are_rendered_literally(tmp_path: Path) -> None:
    """By TensorBoard's own renderer, whatever Markdown or HTML they contain."""
    sample = ("a | <b>x</b> & *y* $x$", "`z` __u__ [l](m) ~", "# 1. \\ „“ 中文 &amp;")
    monitor = open_monitor(tmp_path, 0, 100, trackers=tensorboard(tmp_path))
    monitor.log_validation(10, ValidationResult({"loss": 2.2, "nll": 1.0}, [sample]))
    (event,) = events(tmp_path, monitor).Tensors("valid/translations/text_summary")
    html = str(plugin_util.markdown_to_safe_html(event.tensor_proto.string_val[0]))
    cells = re.findall("<t[dh]>(.*?)</t[dh]>", html, re.DOTALL)
    text = [unescape(re.sub("<.*?>", "", cell)) for cell in cells]
    assert text == ["source", "reference", "translation", *sample]
