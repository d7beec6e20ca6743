"""What a person sees of a run: progress on stderr, TensorBoard, ``metrics.jsonl``."""

import json
import logging
import math
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch.utils.tensorboard import SummaryWriter
from tqdm import tqdm

from transformer_mt import run_layout
from transformer_mt.files import write_text
from transformer_mt.model.attention_maps import AttentionMaps
from transformer_mt.train import tensorboard as board
from transformer_mt.train.flops import FlopsMeter
from transformer_mt.train.metrics_log import read_records

log = logging.getLogger(__name__)

TIME_KEYS = ("time", "tokens_per_second", "mfu", "data_wait")
"""What of a record in ``metrics.jsonl`` depends on the clock; all else a resumed run repeats."""

WEEK = 7 * 24 * 3600
_LOG_WIDTH = 80


@dataclass(frozen=True)
class Shown:
    """What a person sees of a validation."""

    samples: list[tuple[str, str, str]]
    """Source, reference and translation of a few lines, at every validation the same ones."""
    attention: AttentionMaps | None = None
    """Of one of these lines and its translation."""
    src_pieces: list[str] = field(default_factory=list)
    """Its source tokens as text."""
    tgt_pieces: list[str] = field(default_factory=list)
    """The target tokens, as text, that the decoder read."""


class Monitor:
    """Records a run; only the main rank has one.

    Args:
        run_dir: Folder of ``metrics.jsonl`` and ``tensorboard/``.
        first_step: Updates done before; records of later ones, left by a run that was killed
            after its last checkpoint, are removed. A validation of this very step stays, and is
            not recorded again.
        max_steps: Updates in all.
        flops: For the devices' utilisation; None where their peak rate is not known.
    """

    def __init__(
        self, run_dir: Path, first_step: int, max_steps: int, flops: FlopsMeter | None = None
    ):
        self._max_steps, self._flops = max_steps, flops
        path = run_dir / run_layout.METRICS
        kept = [record for record in read_records(run_dir) if record["step"] <= first_step]
        write_text(path, "".join(json.dumps(record) + "\n" for record in kept))
        self._validated = max((r["step"] for r in kept if r["split"] == "valid"), default=None)
        self._file = path.open("a", encoding="utf-8")
        self._board = SummaryWriter(
            str(run_dir / run_layout.TENSORBOARD), purge_step=first_step + 1
        )
        self._bar = tqdm(
            total=max_steps,
            initial=first_step,
            disable=not sys.stderr.isatty(),
            dynamic_ncols=True,
            bar_format="{n_fmt}/{total_fmt} {bar}{desc}",
        )
        self._since, self._since_step = time.perf_counter(), first_step
        self._estimates: list[float] = []

    def update(self, step: int) -> None:
        """Counts one update. Call it for every one; it waits for nothing.

        From the second and third update of this process comes a first estimate of the time left.
        """
        self._bar.update(1)
        if len(self._estimates) < 3:
            self._estimates.append(time.perf_counter())
            if len(self._estimates) == 3:
                seconds = (self._estimates[2] - self._estimates[0]) / 2
                self._warn_if_weeks(seconds, self._max_steps - step)

    def training(self, step: int, targets: int, waited: float, values: dict[str, float]) -> None:
        """Records the updates since the last call.

        Args:
            step: The latest update.
            targets: Target tokens of those updates that this process has done.
            waited: Seconds of these updates spent waiting for data.
            values: ``loss``, ``nll``, ``lr``, ``grad_norm``, perhaps ``skipped``, the updates
                left out so far, and whatever else is to be recorded.
        """
        now = time.perf_counter()
        seconds, steps = now - self._since, step - self._since_step
        self._since, self._since_step = now, step
        rate = targets / seconds
        values = {**values, "ppl": perplexity(values["nll"]), "tokens_per_second": rate}
        if self._flops is not None:
            values["mfu"] = self._flops.mfu(rate)
        values["data_wait"] = waited / seconds
        self._record(step, "train", values)
        left = seconds / steps * (self._max_steps - step)
        progress = f"{step}/{self._max_steps}"
        if not self._bar.disable:
            width = os.get_terminal_size(sys.stderr.fileno()).columns or _LOG_WIDTH
            # Of the bar itself at least one character remains.
            text = fitting(values, left, width - len(f"{self._max_steps}/{self._max_steps} ") - 2)
            self._bar.set_description_str(f" {text}", refresh=False)
        self.note(f"{progress} {fitting(values, left, _LOG_WIDTH - len(progress) - 1)}")

    def validation(self, step: int, values: dict[str, float], shown: Shown | None = None) -> None:
        """Records a validation: ``loss``, ``nll``, perhaps ``bleu`` and more, and what to show."""
        if step == self._validated:
            return
        values = {**values, "ppl": perplexity(values["nll"])}
        self._record(step, "valid", values)
        if shown is not None:
            board.show_samples(self._board, step, shown.samples)
            if shown.attention is not None:
                pieces = shown.src_pieces, shown.tgt_pieces
                board.show_attention(self._board, step, shown.attention, *pieces)
            self._board.flush()
        bleu = f"  BLEU {values['bleu']:.2f}" if "bleu" in values else ""
        self.note(f"  validation: loss {values['loss']:.3f}  ppl {_short(values['ppl'])}{bleu}")

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Around what is not training, so that it does not count in tokens/s and time left."""
        begun = time.perf_counter()
        yield
        self._since += time.perf_counter() - begun

    def sync(self) -> None:
        """Has the records on the disk, before a checkpoint that counts on them is."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Flushes everything."""
        self._bar.close()
        self._file.close()
        self._board.close()

    def _record(self, step: int, split: str, values: dict[str, float]) -> None:
        record: dict[str, Any] = {"step": step, "split": split, "time": time.time(), **values}
        # JSON has no NaN: a number that there is none of is null.
        known = {
            k: v if not isinstance(v, float) or math.isfinite(v) else None
            for k, v in record.items()
        }
        self._file.write(json.dumps(known) + "\n")
        self._file.flush()
        for key, value in values.items():
            self._board.add_scalar(f"{split}/{key}", value, step)
        # Now, not in two minutes: a killed run goes on from a checkpoint and records no earlier
        # step again.
        self._board.flush()

    def note(self, line: str) -> None:
        """A line of the log; the bar goes on below it."""
        # The bar is taken away while the line is written, and put back below it.
        with tqdm.external_write_mode(file=sys.stderr):
            log.info("%s", line)

    def _warn_if_weeks(self, seconds: float, steps: int) -> None:
        if seconds * steps > WEEK:
            self.note(
                f"an update takes {seconds:.0f} s here: the {steps:,} that are left would take "
                f"{duration(seconds * steps)}. To see the whole pipeline in minutes: "
                "mt-train experiment=quickstart"
            )


def fitting(values: dict[str, float], seconds_left: float, width: int) -> str:
    """One line of what a training record says, the less important left out where it is narrow.

    Args:
        values: The record.
        seconds_left: Until the last update.
        width: Most characters.
    """
    # In this order; those of the highest number go first.
    parts = [
        (0, f"loss {values['loss']:.3f}"),
        (4, f"ppl {_short(values['ppl'])}"),
        (6, f"lr {values['lr']:.1e}".replace("e-0", "e-")),
        (5, f"|g| {values['grad_norm']:.2g}"),
        (1, f"{_short(values['tokens_per_second'])} tok/s"),
    ]
    if "mfu" in values:
        parts.append((4, f"MFU {values['mfu']:.0%}"))
    if values["data_wait"] >= 0.005:
        parts.append((3, f"wait {values['data_wait']:.0%}"))
    if values.get("skipped"):
        parts.append((3, f"skipped {values['skipped']:.0f}"))
    parts.append((2, f"{duration(seconds_left)} left"))
    while parts and len(line := " ".join(text for _, text in parts)) > width:
        parts.remove(max(parts, key=lambda part: part[0]))
    return line if parts else ""


def perplexity(nll: float) -> float:
    """E to the power of the mean negative log-likelihood of a target token (at most e⁷⁰⁰)."""
    return math.exp(min(nll, 700.0))


def duration(seconds: float) -> str:
    """A length of time as a person says it."""
    for least, unit, name in (
        (2 * WEEK, WEEK, " weeks"),
        (48 * 3600, 24 * 3600, "d"),
        (6000, 3600, "h"),
        (100, 60, "min"),
    ):
        if seconds >= least:
            amount = seconds / unit
            return f"{amount:.{1 if amount < 9.95 else 0}f}{name}"
    return f"{seconds:.0f}s"


def _short(number: float) -> str:
    """Three digits: 0.052, 12.3, 45.6k, 1.23M."""
    for unit, name in ((1e6, "M"), (1e3, "k")):
        if 0.9995 * unit <= number < 1e9:
            return f"{number / unit:.3g}{name}"
    return f"{number:.3g}"
