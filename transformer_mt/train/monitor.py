"""What a person sees of a run: progress on stderr, TensorBoard, ``metrics.jsonl``."""

import json
import logging
import math
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from torch.utils.tensorboard import SummaryWriter
from tqdm import tqdm

from transformer_mt.checkpoint import write_text

log = logging.getLogger(__name__)

WEEK = 7 * 24 * 3600


class Monitor:
    """Records a run; only the main rank has one.

    Args:
        run_dir: Folder of ``metrics.jsonl`` and ``tensorboard/``.
        first_step: Updates done before; records of later ones, left by a run that was killed
            after its last checkpoint, are removed.
        max_steps: Updates in all.
    """

    def __init__(self, run_dir: Path, first_step: int, max_steps: int):
        self._max_steps = max_steps
        self._path = run_dir / "metrics.jsonl"
        _forget_after(self._path, first_step)
        self._file = self._path.open("a", encoding="utf-8")
        self._board = SummaryWriter(str(run_dir / "tensorboard"), purge_step=first_step + 1)
        self._bar = tqdm(
            total=max_steps,
            initial=first_step,
            unit="step",
            disable=not sys.stderr.isatty(),
            dynamic_ncols=True,
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
            targets: Target tokens of these updates.
            waited: Seconds of these updates spent waiting for data.
            values: ``loss``, ``nll``, ``lr``, ``grad_norm``.
        """
        now = time.perf_counter()
        rate = targets / (now - self._since)
        left = (now - self._since) / (step - self._since_step) * (self._max_steps - step)
        values = {
            **values,
            "ppl": perplexity(values["nll"]),
            "tokens_per_second": rate,
            "data_wait": waited / (now - self._since),
        }
        self._since, self._since_step = now, step
        self._record(step, "train", values)
        self._bar.set_postfix_str(f"loss {values['loss']:.3f}, {rate:,.0f} tokens/s", refresh=False)
        self._say(
            f"step {step:,}/{self._max_steps:,}  loss {values['loss']:.3f}  "
            f"ppl {values['ppl']:.2f}  lr {values['lr']:.2e}  {rate:,.0f} tokens/s  "
            f"{duration(left)} left",
        )

    def validation(self, step: int, values: dict[str, float]) -> None:
        """Records a validation: ``loss``, ``nll`` and perhaps ``bleu``."""
        values = {**values, "ppl": perplexity(values["nll"])}
        self._record(step, "valid", values)
        bleu = f"  BLEU {values['bleu']:.2f}" if "bleu" in values else ""
        self._say(f"  validation: loss {values['loss']:.3f}  ppl {values['ppl']:.2f}{bleu}")

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Around what is not training, so that it does not count in tokens/s and time left."""
        begun = time.perf_counter()
        yield
        self._since += time.perf_counter() - begun

    def close(self) -> None:
        """Flushes everything."""
        self._bar.close()
        self._file.close()
        self._board.close()

    def _record(self, step: int, split: str, values: dict[str, float]) -> None:
        record: dict[str, Any] = {"step": step, "split": split, "time": time.time(), **values}
        self._file.write(json.dumps(record) + "\n")
        self._file.flush()
        for key, value in values.items():
            self._board.add_scalar(f"{split}/{key}", value, step)

    def _say(self, line: str) -> None:
        # The bar is taken away while the line is written, and put back below it.
        with tqdm.external_write_mode(file=sys.stderr):
            log.info("%s", line)

    def _warn_if_weeks(self, seconds: float, steps: int) -> None:
        if seconds * steps > WEEK:
            self._say(
                f"an update takes {seconds:.0f} s here: the {steps:,} that are left would take "
                f"{duration(seconds * steps)}. To see the whole pipeline in minutes: "
                "mt-train experiment=quickstart"
            )


def perplexity(nll: float) -> float:
    """Perplexity: e to the power of the mean negative log-likelihood of a target token."""
    return math.exp(min(nll, 700.0))


def duration(seconds: float) -> str:
    """A length of time as a person says it."""
    if seconds >= 2 * WEEK:
        return f"{seconds / WEEK:.0f} weeks"
    return str(timedelta(seconds=round(seconds)))


def _forget_after(path: Path, step: int) -> None:
    if not path.exists():
        return
    kept = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            if json.loads(line)["step"] <= step:
                kept.append(line + "\n")
        except (ValueError, KeyError):  # the line that a kill cut short
            continue
    write_text(path, "".join(kept))
