"""Record of a run: sums of metrics, log lines, progress bar, metrics.jsonl, TensorBoard."""

import contextlib
import io
import json
import logging
import math
import os
import pty
import re
import struct
import sys
import termios
import time
from fcntl import ioctl
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tensorboard import plugin_util  # type: ignore[import-untyped]
from tensorboard.backend.event_processing.event_accumulator import (  # type: ignore[import-untyped]
    EventAccumulator,
)
from torch import Tensor

from transformer_mt.config import TrainConfig, TrainJob
from transformer_mt.distributed.world import World
from transformer_mt.model.attention_maps import AttentionMaps, heat_map
from transformer_mt.progress_reporter import log_to
from transformer_mt.training.metrics_log import TIME_KEYS
from transformer_mt.training.monitor import MetricSums, Monitor, format_values, perplexity
from transformer_mt.training.progress import StoppingCriteria, TrainingState
from transformer_mt.training.step import StepResult
from transformer_mt.training.trackers import TrackedRun, Trackers, open_trackers
from transformer_mt.training.validation import ValidationResult

TRAIN = {"loss": 2.5, "nll": 2.0, "lr": 1e-3, "grad_norm": 0.5}


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> Any:
    # A command run in this process may have cut the package's log off from the root, and left it
    # handlers whose streams are closed by now.
    monkeypatch.setattr(logging.getLogger("transformer_mt"), "propagate", True)
    monkeypatch.setattr(logging.getLogger("transformer_mt"), "handlers", [])
    caplog.set_level(logging.INFO, logger="transformer_mt")
    return lambda: [record.getMessage() for record in caplog.records]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    return now


def tensorboard(folder: Path, steps_done: int = 0) -> Trackers:
    return Trackers(["tensorboard"], TrackedRun(folder, {}, steps_done))


def open_monitor(
    folder: Path, steps_done: int, max_steps: int, max_seconds: float | None = None, **options: Any
) -> Monitor:
    max_hours = None if max_seconds is None else max_seconds / 3600
    criteria = StoppingCriteria(TrainConfig(max_steps=max_steps, max_hours=max_hours), 1)
    return Monitor(folder, TrainingState(step=steps_done), criteria, **options)


def events(folder: Path, monitor: Monitor) -> Any:
    """What TensorBoard reads after the end of a run."""
    monitor.close()
    monitor._trackers.close(True)
    return EventAccumulator(str(folder / "tensorboard")).Reload()


def records(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_bleu_of_lower_case_tokens_has_its_own_name_everywhere(tmp_path: Path, lines: Any) -> None:
    options = {"trackers": tensorboard(tmp_path), "bleu": "lowercase_tokens"}
    monitor = open_monitor(tmp_path, 0, 100, **options)
    monitor.log_validation(10, ValidationResult({"loss": 2.2, "nll": 1.0, "bleu": 12.3}))
    (valid,) = records(tmp_path)
    assert valid.keys() >= {"lowercase_tokens", "nll"}
    assert "bleu" not in valid
    assert "lower-case tokens" in lines()[0]
    board = events(tmp_path, monitor)
    assert board.Scalars("valid/lowercase_tokens")[0].value == pytest.approx(12.3)
    with pytest.raises(KeyError):
        board.Scalars("valid/bleu")


def test_a_record_is_in_metrics_jsonl_tensorboard_and_the_log(
    tmp_path: Path, lines: Any, clock: list[float]
) -> None:
    scores = {"bleu": 12.345, "chrf": 100.0, "new": 7.0}
    monitor = open_monitor(tmp_path, 0, 100, peak_rate=1e4, trackers=tensorboard(tmp_path))
    clock[0] += 2.0
    monitor.update(5000, 0.5)
    monitor.log_training(10, {**TRAIN, "skipped": 2, "extra": 7.5})
    monitor.log_validation(10, ValidationResult({"loss": 2.2, "nll": 1.0, **scores}))
    train, valid = records(tmp_path)
    assert (train["step"], train["split"], valid["split"]) == (10, "train", "valid")
    assert train["ppl"] == pytest.approx(7.389056)  # e²
    assert valid["ppl"] == pytest.approx(2.718282)
    assert train["tokens_per_second"] == 2500
    assert train["mfu"] == 0.25  # 2,500 times 10⁹ of 10¹³
    assert train["data_wait"] == 0.25  # half a second of two
    assert {k: train[k] for k in TRAIN} == TRAIN
    assert (train["skipped"], train["extra"]) == (2, 7.5)
    assert {name: valid[name] for name in scores} == scores
    assert lines() == [
        # 90 updates of 0.2 s remain.
        "10/100 loss 2.500 ppl 7.39 lr 1.0e-3 |g| 0.5 2.50k tok/s MFU 25% wait 25% skipped 2 "
        "<00:18",
        "  validation: loss 2.200  ppl 2.72  BLEU 12.35  chrF2 100.00  new 7.00",
    ]
    board = events(tmp_path, monitor)
    for split, record in (("train", train), ("valid", valid)):
        for key in record.keys() - {"step", "split", "time"}:
            (event,) = board.Scalars(f"{split}/{key}")
            assert event.step == 10
            assert event.value == pytest.approx(record[key], rel=1e-6)


def test_remaining_time_is_at_most_the_limit(
    tmp_path: Path, lines: Any, clock: list[float]
) -> None:
    day = 86400.0
    for limit, expected in ((day, ["<23:00:00"]), (30 * day, ["warning: an upd", "<719:00:00"])):
        before = len(lines())
        monitor = open_monitor(tmp_path, 0, 100_000, max_seconds=limit)
        for _ in range(3):
            clock[0] += 1200.0  # 100,000 would take 1,389 days
            monitor.update(100, 0.0)
        monitor.log_training(3, TRAIN)
        monitor.close()
        found = lines()[before:]
        assert len(found) == len(expected)
        assert all(text in line for text, line in zip(expected, found, strict=True))


def test_paused_time_does_not_count_in_the_rate(
    tmp_path: Path, lines: Any, clock: list[float]
) -> None:
    monitor = open_monitor(tmp_path, 0, 100)
    clock[0] += 1.0
    monitor.update(1000, 0.0)
    monitor.log_training(10, TRAIN)
    with monitor.paused():
        clock[0] += 50.0  # a validation
    clock[0] += 1.0
    monitor.update(1000, 0.0)
    monitor.log_training(20, TRAIN)
    monitor.close()
    assert [record["tokens_per_second"] for record in records(tmp_path)] == [1000, 1000]


def test_records_after_the_latest_checkpoint_are_removed_on_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = open_monitor(tmp_path, 0, 100, trackers=tensorboard(tmp_path))
    for step in (10, 20, 30):
        first.update(100, 0.0)
        first.log_training(step, {**TRAIN, "loss": float(step)})
    events(tmp_path, first)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 40, "spl')  # killed here
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + 2)  # event files are ordered by the second
    second = open_monitor(tmp_path, 20, 100, trackers=tensorboard(tmp_path, 20))
    second.update(100, 0.0)
    second.log_training(30, {**TRAIN, "loss": 3.0})
    assert [(r["step"], r["loss"]) for r in records(tmp_path)] == [(10, 10), (20, 20), (30, 3)]
    board = events(tmp_path, second)
    assert [(e.step, e.value) for e in board.Scalars("train/loss")] == [
        (10, 10),
        (20, 20),
        (30, 3),
    ]


@pytest.mark.parametrize(
    ("damage", "left"), [("delete", []), ("overwrite", [20]), ("truncate", [10]), ("", [10, 20])]
)
def test_lost_records_are_left_out_on_resume(tmp_path: Path, damage: str, left: list[int]) -> None:
    monitor = open_monitor(tmp_path, 0, 100)
    for step in (10, 20):
        monitor.update(100, 0.0)
        monitor.log_training(step, TRAIN)
    monitor.update(100, 0.0)
    monitor.log_training(30, TRAIN)  # after the checkpoint: a resumed run repeats it
    monitor.close()
    path = tmp_path / "metrics.jsonl"
    first, second, third = path.read_text().splitlines(keepends=True)
    match damage:
        case "delete":
            path.unlink()
        case "overwrite":
            path.write_text("\x00" * 50 + "\n" + second + third)
        case "truncate":
            path.write_text(first + second[:-9])
    open_monitor(tmp_path, 20, 100).close()
    assert [record["step"] for record in records(tmp_path)] == left


def test_a_full_disk_names_metrics_jsonl(tmp_path: Path) -> None:
    monitor = open_monitor(tmp_path, 0, 100)
    (tmp_path / "metrics.jsonl").unlink()
    (tmp_path / "metrics.jsonl").symlink_to("/dev/full")
    monitor.update(100, 0.0)
    with pytest.raises(OSError, match=r"No space left on device: '.*metrics\.jsonl'"):
        monitor.log_training(10, TRAIN)
    monitor.close()


def test_metrics_jsonl_is_never_truncated_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "metrics.jsonl"
    first, second = (f'{{"step": {step}, "split": "train", "loss": 0.1}}\n' for step in (10, 20))
    path.write_text(first + second)
    before = path.stat().st_ino
    open_monitor(tmp_path, 10, 100).close()
    assert path.read_text() == first
    assert path.stat().st_ino != before  # another file took its name


@pytest.mark.parametrize(
    ("seconds", "updates", "per_update", "days"),
    [
        (60.0, 100_000, " 60.0 s ", " 69 days"),  # 100,000 minutes
        (1.44, 1_000_000, " 1.4 s ", " 17 days"),
        (0.0288, 30_000_000, " 29 ms ", " 10 days"),
        (0.5, 100_000, None, None),
    ],
)
def test_a_long_run_is_announced_after_three_updates(
    tmp_path: Path,
    lines: Any,
    clock: list[float],
    seconds: float,
    updates: int,
    per_update: str | None,
    days: str | None,
) -> None:
    monitor = open_monitor(tmp_path, 0, updates)
    for step in range(1, 6):
        clock[0] += 500.0 if step == 1 else seconds  # the first update compiles
        monitor.update(100, 0.0)
    monitor.close()
    warnings = [line for line in lines() if "experiment=quickstart" in line]
    assert len(warnings) == (per_update is not None)
    if per_update is not None and days is not None:
        assert per_update in warnings[0]
        assert days in warnings[0]


def test_perplexity_is_finite_for_any_loss() -> None:
    assert perplexity(0.0) == 1.0
    assert 1e300 < perplexity(1e9) < float("inf")


RECORD = {**TRAIN, "ppl": 10.43, "tokens_per_second": 325_400.0, "mfu": 0.34, "data_wait": 0.004}


def test_a_complete_line_of_a_long_gpu_run_fits_80_columns() -> None:
    line = f"99900/100000 {format_values({**RECORD, 'grad_norm': 0.3456})}"
    assert line == "99900/100000 loss 2.500 ppl 10.4 lr 1.0e-3 |g| 0.35 325k tok/s MFU 34%"
    assert len(f"{line} <2:30:00") <= 80


def test_waiting_and_skipped_updates_appear_only_if_they_occur() -> None:
    assert "wait" not in format_values(RECORD)
    assert "wait 12%" in format_values({**RECORD, "data_wait": 0.12})
    assert "skipped" not in format_values({**RECORD, "skipped": 0})
    assert "skipped 3" in format_values({**RECORD, "skipped": 3})


def written(terminal: int) -> str:
    """What was written to a pseudo-terminal whose other side is closed."""
    pieces = []
    with contextlib.suppress(OSError):  # the end
        while piece := os.read(terminal, 100_000):
            pieces.append(piece)
    os.close(terminal)
    return b"".join(pieces).decode()


@pytest.mark.parametrize("columns", [120, 80])
def test_each_line_of_the_log_has_a_row_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    """On a terminal, from start to end, whichever module writes it."""
    reader, writer = pty.openpty()
    ioctl(writer, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    monkeypatch.delenv("COLUMNS", raising=False)
    with os.fdopen(writer, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        with log_to():
            monitor = open_monitor(tmp_path, 0, 2)
            monitor._bar.mininterval = 0  # every update is drawn
            for _ in range(2):
                monitor.update(100, 0.0)
            logging.getLogger("transformer_mt.training.trainer").info("finished: it is")
            monitor.note("a note")
            monitor.close()
            logging.getLogger("transformer_mt.jobs.train").info("the model is here")
    screen = [""]
    for text in re.findall(r"[^\r\n]+|\r|\n", written(reader)):
        if text == "\n":
            screen.append("")
        elif text != "\r":  # it starts at the left, and leaves what it does not reach
            screen[-1] = text + screen[-1][len(text) :]
    rows = [row.rstrip() for row in screen]
    assert [*rows[:2], *rows[3:]] == ["finished: it is", "a note", "the model is here", ""]
    assert rows[2].startswith("2/2 ")


@pytest.mark.parametrize("columns", [200, 80, 40, 20])
def test_the_progress_bar_never_wraps(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    columns: int,
    lines: Any,
    clock: list[float],
) -> None:
    """In a real pseudo-terminal of that width: nothing longer ever stands on a line."""
    reader, writer = pty.openpty()
    ioctl(writer, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    monkeypatch.delenv("COLUMNS", raising=False)
    with os.fdopen(writer, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        monitor = open_monitor(tmp_path, 0, 100_000, peak_rate=1e6)
        monitor._bar.mininterval = 0  # every update is drawn
        for step in range(1, 4):
            clock[0] += 1.0
            monitor.update(325_000, 0.0)
            monitor.log_training(step, TRAIN)
        monitor.note("a note")
        monitor.close()
    drawn = written(reader)
    rows = [row.strip() for row in drawn.replace("\x1b[A", "\r").replace("\n", "\r").split("\r")]
    assert max(map(len, rows)) <= columns
    shown = next(row for row in rows if row.startswith("3/100000"))
    assert ("loss 2.500" in shown) == (columns > 20)
    assert ("|g| 0.5 325k tok/s MFU 32% <" in shown) == (columns > 40)
    assert lines()[-1] == "a note"


def test_training_goes_on_when_its_terminal_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: Any, clock: list[float]
) -> None:
    """As after ``disown`` and logging out: every access to the terminal is an error then."""
    reader, writer = pty.openpty()
    terminal = os.fdopen(writer, "w")
    monkeypatch.setattr(sys, "stderr", terminal)
    monitor = open_monitor(tmp_path, 0, 100)
    monitor._bar.mininterval = 0
    os.close(reader)
    clock[0] += 1.0
    monitor.update(1000, 0.0)
    monitor.log_training(1, TRAIN)
    monitor.note("a note")
    monitor.close()
    assert lines()[-1] == "a note"
    with contextlib.suppress(OSError):
        terminal.close()


def test_a_resumed_run_has_the_same_records_apart_from_times(tmp_path: Path) -> None:
    def monitored(folder: Path, first: int, steps: range) -> None:
        monitor = open_monitor(folder, first, 100)
        for step in steps:
            monitor.update(100, 0.0)
            monitor.log_training(step, {**TRAIN, "loss": 10 / step})
            monitor.log_validation(
                step, ValidationResult({"loss": 5 / step, "nll": 1 / step, "bleu": 2.0 * step})
            )
        monitor.close()

    def clockless(folder: Path) -> list[dict[str, Any]]:
        found = records(folder)
        assert all(record.keys() & set(TIME_KEYS) for record in found)
        return [{k: v for k, v in r.items() if k not in TIME_KEYS} for r in found]

    whole, parts = tmp_path / "whole", tmp_path / "parts"
    for folder in (whole, parts):
        folder.mkdir()
    monitored(whole, 0, range(1, 6))
    monitored(parts, 0, range(1, 5))
    monitored(parts, 2, range(3, 6))
    assert json.dumps(clockless(whole)) == json.dumps(clockless(parts))


def test_the_validation_of_the_resumed_step_is_recorded_once(tmp_path: Path, lines: Any) -> None:
    result = ValidationResult({"loss": 2.2, "nll": 1.0, "bleu": 12.3})
    monitor = open_monitor(tmp_path, 0, 100)
    monitor.update(100, 0.0)
    monitor.log_training(10, TRAIN)
    monitor.close()  # a kill, before the validation of this step was recorded
    for _ in range(2):  # and another, after it
        monitor = open_monitor(tmp_path, 10, 100)
        monitor.log_validation(10, result)
        monitor.close()
    assert [(r["step"], r["split"]) for r in records(tmp_path)] == [(10, "train"), (10, "valid")]
    assert len([line for line in lines() if "validation" in line]) == 1
    monitor = open_monitor(tmp_path, 10, 100)
    monitor.log_validation(20, result)
    monitor.close()
    assert [r["step"] for r in records(tmp_path)] == [10, 10, 20]


def test_a_validation_of_some_lines_says_so(tmp_path: Path, lines: Any) -> None:
    monitor = open_monitor(tmp_path, 0, 100)
    for step, number in ((1, 100), (2, None)):
        values = {"loss": 2.2, "nll": 1.0, "bleu": 0.05}
        sample = {} if number is None else {"lines": number}
        monitor.log_validation(step, ValidationResult({**values, **sample}))
    monitor.close()
    assert [line.partition("BLEU")[2] for line in lines()] == [" 0.05  (on 100 lines)", " 0.05"]


def test_a_time_limit_within_the_warm_up_is_announced_after_three_updates(
    tmp_path: Path, lines: Any, clock: list[float]
) -> None:
    for warmup in (300, 400):
        criteria = StoppingCriteria(TrainConfig(max_hours=1.0), 10**9, warmup)
        monitor = Monitor(tmp_path, TrainingState(), criteria)
        for _ in range(5):
            clock[0] += 10.0  # 360 updates in an hour
            monitor.update(100, 0.0)
        monitor.close()
        assert sum("schedule.warmup_steps" in line for line in lines()) == (warmup == 400)


@pytest.mark.parametrize(
    ("threads", "cores", "waited", "warned"),
    [
        (2, 1.9, 0.0, False),
        (2, 0.8, 0.0, True),
        (1, 0.4, 0.0, False),  # fewer are impossible
        (2, 0.8, 6.0, False),  # the rest of the time it waited for data
        (16, 3.4, 0.0, True),
    ],
)
def test_threads_that_get_little_cpu_time_for_a_minute_are_warned_about(
    tmp_path: Path,
    lines: Any,
    clock: list[float],
    monkeypatch: pytest.MonkeyPatch,
    threads: int,
    cores: float,
    waited: float,
    warned: bool,
) -> None:
    used = [50.0]
    monkeypatch.setattr(time, "process_time", lambda: used[0])
    monitor = open_monitor(tmp_path, 0, 1000, threads=threads)
    for update in range(1, 40):
        with monitor.paused():
            clock[0] += 30.0  # a checkpoint, with hardly any work of this process
        clock[0] += 10.0
        used[0] += 10.0 * cores
        monitor.update(100, waited)
        monitor.log_training(update, TRAIN)
        expected = warned and update >= 6
        advice = [line for line in lines() if f"OMP_NUM_THREADS={max(1, int(cores))} " in line]
        assert len(advice) == expected  # once
    monitor.close()


def test_tensorboard_events_are_flushed_with_every_record(tmp_path: Path) -> None:
    """A resumed run never records earlier steps again."""
    monitor = open_monitor(tmp_path, 0, 100, trackers=tensorboard(tmp_path))
    monitor.update(100, 0.0)
    monitor.log_training(10, TRAIN)
    board = events(tmp_path, monitor)
    assert [event.step for event in board.Scalars("train/loss")] == [10]


def test_a_number_that_is_not_finite_is_null_in_json(tmp_path: Path) -> None:
    monitor = open_monitor(tmp_path, 0, 100, trackers=tensorboard(tmp_path))
    monitor.update(0, 0.0)
    monitor.log_training(1, {**TRAIN, "loss": float("nan"), "grad_norm": float("inf")})
    monitor.close()
    text = (tmp_path / "metrics.jsonl").read_text()
    record = json.loads(text, parse_constant=lambda name: pytest.fail(name))
    assert (record["loss"], record["grad_norm"]) == (None, None)


class Cells(HTMLParser):
    """The text of each cell of a table."""

    def __init__(self, html: str):
        super().__init__()
        self.cells: list[str] = []
        self._open = False
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self._open = tag in ("td", "th")
        if self._open:
            self.cells.append("")

    def handle_endtag(self, tag: str) -> None:
        self._open = self._open and tag not in ("td", "th")

    def handle_data(self, data: str) -> None:
        if self._open:
            self.cells[-1] += data


SAMPLES = [
    ("a | b", "<b>x</b> & *y*", "`z` __u__ [l](m)"),
    ("# 1. \\ ~", "Ü ▁ „“ 中文 &amp;", ""),
    ("-", "| |", "$x$"),
]


def test_samples_are_rendered_literally(tmp_path: Path) -> None:
    """By TensorBoard's own renderer, whatever Markdown or HTML they contain."""
    monitor = open_monitor(tmp_path, 0, 100, trackers=tensorboard(tmp_path))
    monitor.log_validation(10, ValidationResult({"loss": 2.2, "nll": 1.0}, SAMPLES))
    board = events(tmp_path, monitor)
    (event,) = board.Tensors("valid/translations/text_summary")
    html = plugin_util.markdown_to_safe_html(event.tensor_proto.string_val[0])
    head, *rows = np.array(Cells(html).cells).reshape(-1, 3).tolist()
    assert head == ["source", "reference", "translation"]
    assert [tuple(row) for row in rows] == SAMPLES


def test_attention_maps_are_images_with_a_caption_of_tokens(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(1)
    shapes = [(2, 3, 4, 4), (5, 3, 6, 6), (5, 3, 6, 4)]
    kinds = [list(torch.rand(shape, generator=generator).softmax(-1)) for shape in shapes]
    attention = AttentionMaps(
        kinds[0], kinds[1], kinds[2], ["▁a", "<b>", "|", "</s>"], ["<s>", "▁x"]
    )
    monitor = open_monitor(tmp_path, 0, 100, trackers=tensorboard(tmp_path))
    monitor.log_validation(10, ValidationResult({"loss": 2.2, "nll": 1.0}, SAMPLES, attention))
    board = events(tmp_path, monitor)
    for kind, layers in zip(("encoder", "decoder", "cross"), kinds, strict=True):
        (event,) = board.Images(f"valid/attention_{kind}")
        assert event.step == 10
        pixels = np.asarray(Image.open(io.BytesIO(event.encoded_image_string)).convert("L"))
        assert (pixels == heat_map(layers).numpy()).all()
        H, T, S = layers[0].shape
        side, height, width = 120 // max(T, S), len(pixels) // len(layers), len(pixels[0]) // H
        for layer, weights in enumerate(layers):  # read the middle of every square back
            for head in range(H):
                for t in range(T):
                    for s in range(S):
                        y = layer * height + t * side + side // 2
                        x = head * width + s * side + side // 2
                        assert pixels[y, x] / 255 == pytest.approx(
                            1 - weights[head, t, s].item(), abs=2e-3
                        )
    (event,) = board.Tensors("valid/attention/text_summary")
    text = unescape(plugin_util.markdown_to_safe_html(event.tensor_proto.string_val[0]))
    assert "Source: ▁a <b> | </s></p>" in text
    assert "Target: <s> ▁x</p>" in text


def test_final_scores_are_logged_with_the_hyper_parameters(tmp_path: Path) -> None:
    from tensorboard.plugins.hparams import metadata  # type: ignore[import-untyped]

    with open_trackers(TrainJob(run_dir=str(tmp_path)), 100) as trackers:
        trackers.log_scalars("test", 100, {"BLEU": 27.5, "chrF2": 55.0})
    folder = tmp_path / "tensorboard"
    assert all(path.is_file() for path in folder.iterdir())  # no folder of its own
    board = EventAccumulator(str(folder)).Reload()
    assert [(e.step, e.value) for e in board.Scalars("test/BLEU")] == [(100, 27.5)]
    content = board.PluginTagToContent(metadata.PLUGIN_NAME)
    start = metadata.parse_session_start_info_plugin_data(content[metadata.SESSION_START_INFO_TAG])
    assert start.hparams["model.d_model"].number_value == 512
    assert start.hparams["schedule.name"].string_value == "noam"
    assert start.hparams["train.compile"].string_value == "None"
    experiment = metadata.parse_experiment_plugin_data(content[metadata.EXPERIMENT_TAG])
    assert {info.name.tag for info in experiment.metric_infos} == {"test/BLEU", "test/chrF2"}


CPU, NAN = World(torch.device("cpu")), math.nan
# (loss, nll, finite, target tokens) of some updates.
UPDATES = [
    (31.7, 20.1, True, 7),
    (1e9, 3.3, True, 11),
    (NAN, NAN, False, 5),
    (0.1, 0.2, True, 13),
    (math.inf, 1.0, False, 5),
    (1 / 3, 1 / 7, True, 17),
]


def result(loss: float, nll: float, finite: bool) -> StepResult:
    def scalar(value: float) -> Tensor:
        return torch.tensor(value, dtype=torch.float32)

    return StepResult(scalar(loss), scalar(nll), scalar(1.0 if finite else math.inf))


@pytest.mark.parametrize("cut", range(len(UPDATES) + 1))
def test_sums_are_exact_across_a_resume(cut: int) -> None:
    whole, first, second = (MetricSums(CPU, {}) for _ in range(3))
    for step, (loss, nll, finite, targets) in enumerate(UPDATES):
        whole.add(result(loss, nll, finite), targets)
        if step == cut:
            second = MetricSums(CPU, first.state())
        (first if step < cut else second).add(result(loss, nll, finite), targets)
    if cut == len(UPDATES):
        second = MetricSums(CPU, first.state())
    assert second.state() == whole.state()
    good = [update for update in UPDATES if update[2]]
    expected = [math.fsum(column) for column in zip(*good, strict=True)]
    sums = whole.read()
    assert sums["loss"] == pytest.approx(expected[0], rel=1e-7)
    assert sums["nll"] == pytest.approx(expected[1], rel=1e-7)
    assert (sums["targets"], sums["skipped"]) == (7 + 11 + 13 + 17, 2)
    assert whole.read() == sums
    whole.clear()
    assert set(whole.read().values()) == {0.0}


@pytest.mark.parametrize(
    ("pattern", "longest"),
    [
        ("....", 0),
        ("xx.xx.xx", 2),
        (".xxx", 3),
        ("xx.xxxx.", 4),  # reported later, although the row has ended
    ],
)
def test_the_longest_row_of_skipped_updates(pattern: str, longest: int) -> None:
    sums = MetricSums(CPU, {})
    for step, update in enumerate(pattern, 1):
        sums.add(result(1.0, 1.0, update == "."), 1)
        if step % 4 == 2:  # the interval is logged
            sums.clear()
    assert sums.most_skipped() == longest


def test_the_count_of_skipped_updates_continues_after_a_resume() -> None:
    before = MetricSums(CPU, {})
    for _ in range(2):
        before.add(result(1.0, 1.0, False), 1)
    after = MetricSums(CPU, before.state())
    after.add(result(1.0, 1.0, False), 1)
    assert after.most_skipped() == 3
