"""Experiment trackers of a run, whose packages write in the background what they are given.

A tracker is a class with the methods of ``TensorBoardTracker``, in ``registries.TRACKERS``. It
imports its package itself, and may raise and print anything: ``Trackers`` is its only caller.
"""

import csv
import io
import logging
import math
import os
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, redirect_stdout
from dataclasses import asdict
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from pkgutil import resolve_name
from string import punctuation
from typing import Any

from transformer_mt import run_layout
from transformer_mt.config import TrainJob
from transformer_mt.config.checks import dotted
from transformer_mt.errors import InputError
from transformer_mt.files import write_text
from transformer_mt.registries import TRACKERS

PROJECT = "transformer_mt"
"""Project or experiment of all runs, unless a tracker's own environment variable names another."""

_GROUPS = {
    **dict.fromkeys(("data_wait", "tokens_per_second"), "wall_clock"),
    **dict.fromkeys(("grad_norm", "lr", "skipped"), "weight_updates"),
}
"""Groups of curves that follow ``train`` and ``valid`` in the alphabet: TensorBoard opens on loss,
perplexity and validation scores."""
_LITERAL = {ord(sign): f"&#{ord(sign)};" for sign in punctuation}
"""For ``str.translate``: Markdown then renders the text as it is, also in a table."""

log = logging.getLogger(__name__)


def check_installed(names: Sequence[str]) -> None:
    """Raises ``InputError`` if a tracker's package is not installed; imports none."""
    for name in names:
        if not getattr(find_spec(name), "origin", None):  # a folder of this name has none
            raise InputError(f"trackers=[{name}] needs {name}: pip install {name}")


class Trackers(AbstractContextManager["Trackers"]):
    """The trackers of a run, open within ``with``; None has none, as all ranks but one.

    A tracker that raises is switched off with one warning. What it prints is dropped, because
    standard output is for results.
    """

    def __init__(self, job: TrainJob | None = None, steps_done: int = 0):
        self._opened: dict[str, Any] = {}
        for name in job.trackers if job else ():
            with self._guarding(name):
                self._opened[name] = resolve_name(TRACKERS[name])(job, steps_done)

    def __exit__(self, error: object, *_: object) -> None:
        self._call("close", error is None)

    def log_scalars(self, split: str, step: int, values: Mapping[str, float]) -> None:
        """Logs metrics of ``train``, ``valid`` or ``test`` by name, except NaN and infinity."""
        finite = {key: x for key, x in values.items() if math.isfinite(x)}
        self._call("log", split, step, finite)

    def log_samples(self, step: int, samples: Sequence[Sequence[str]]) -> None:
        """Logs sample translations of a validation: source, reference, translation."""
        table = [["source", "reference", "translation"], *map(list, samples)]
        self._call("log_samples", step, table)

    def _call(self, method: str, *arguments: object) -> None:
        for name, tracker in [*self._opened.items()]:
            with self._guarding(name):
                getattr(tracker, method)(*arguments)

    @contextmanager
    def _guarding(self, name: str) -> Iterator[None]:
        try:
            with redirect_stdout(io.StringIO()):
                yield
        except (Exception, SystemExit) as error:
            self._opened.pop(name, None)
            reason = " ".join(str(error).split()) or type(error).__name__
            log.warning("warning: the tracker %s is switched off: %s", name, reason)


def flat_settings(job: TrainJob) -> dict[str, float | str]:
    """The settings of a job by dotted names; all but numbers are text."""
    values = dotted(asdict(job)).items()
    return {key: x if type(x) in (int, float) else str(x) for key, x in values}


def local_store(job: TrainJob, tracker: str) -> tuple[Path, str]:
    """A tracker's folder, and the run's identifier in it: random, the same for all starts."""
    folder = Path(job.run_dir) / run_layout.TRACKERS / tracker
    folder.mkdir(parents=True, exist_ok=True)
    if not (entry := folder / "entry").exists():
        write_text(entry, secrets.token_hex(4))
    return folder, entry.read_text("ascii")


class TensorBoardTracker:
    """Writes TensorBoard event files; events after ``steps_done`` updates are purged."""

    def __init__(self, job: TrainJob, steps_done: int):
        writer = import_module("torch.utils.tensorboard").SummaryWriter
        usual = flat_settings(TrainJob(run_dir=job.run_dir, cache_dir=job.cache_dir))
        self._settings = {k: x for k, x in flat_settings(job).items() if x != usual.get(k)}
        folder = str(Path(job.run_dir) / run_layout.TENSORBOARD)
        # Flushed soon: a killed run resumes from a checkpoint and never logs the steps before it.
        self._writer: Any = writer(folder, purge_step=steps_done + 1, flush_secs=1)

    def log(self, split: str, step: int, values: Mapping[str, float]) -> None:
        """Adds points to curves; scores of ``test`` are columns of the tab HPARAMS instead."""
        if split == "test":  # not that tab's own metrics, which have to be curves
            scores = {f"{key} (test)": value for key, value in values.items()}
            # In this folder: a subfolder would be shown as another run.
            self._writer.add_hparams({**scores, **self._settings}, {}, run_name=".")
            return
        for key, value in values.items():
            self._writer.add_scalar(f"{_GROUPS.get(key, split)}/{key}", value, step)

    def log_samples(self, step: int, table: list[list[str]]) -> None:
        """Adds a table, of column names and rows of text."""
        names, *rows = [" | ".join(cell.translate(_LITERAL) for cell in row) for row in table]
        lines = [names, "--- | --- | ---", *rows]
        self._writer.add_text("valid/translations", "\n".join(f"| {x} |" for x in lines), step)

    def close(self, finished: bool) -> None:
        """Writes the rest; other trackers also record whether the run has finished."""
        self._writer.close()


class WandbTracker:
    """Online if there is an API key, otherwise for ``wandb sync``.

    ``WANDB_…`` variables set project, name, mode and folder.
    """

    def __init__(self, job: TrainJob, steps_done: int):
        self._package = wandb = import_module("wandb")
        (folder, entry), get = local_store(job, "wandb"), os.environ.get
        has_key = wandb.login(prompt=False, verify=False)
        self._run: Any = wandb.init(
            project=get("WANDB_PROJECT", PROJECT),
            name=get("WANDB_NAME", Path(job.run_dir).name),
            dir=get("WANDB_DIR", str(folder)),
            mode=get("WANDB_MODE", "online" if has_key else "offline"),
            id=entry,
            resume="allow",
            settings=wandb.Settings(console="off", silent=True),
        )
        self._run.config.update(flat_settings(job), allow_val_change=True)
        # Without it a step that is lower than an earlier one would be ignored.
        self._run.define_metric("update", hidden=True)
        self._run.define_metric("*", step_metric="update")
        upload = f"offline; to upload it: wandb sync {Path(self._run.dir).parents[1]}/*-{entry}"
        log.info("wandb: %s", upload if self._run.offline else self._run.url)

    def log(self, split: str, step: int, values: Mapping[str, float]) -> None:
        """Adds points to curves."""
        self._send(step, {f"{split}/{key}": value for key, value in values.items()})

    def log_samples(self, step: int, table: list[list[str]]) -> None:
        """Adds a table, of column names and rows of text."""
        samples = self._package.Table(columns=table[0], data=table[1:])
        self._send(step, {"valid/translations": samples})

    def _send(self, step: int, values: dict[str, Any]) -> None:
        self._run.log({**values, "update": step})

    def close(self, finished: bool) -> None:
        """Writes the rest and marks the run as finished or failed."""
        self._run.finish(exit_code=0 if finished else 1)


class TrackioTracker(WandbTracker):
    """A local store, or a Space or server that Trackio's environment variables name.

    ``TRACKIO_DIR`` sets a store that several runs share. Trackio reads it only once, when it is
    imported: the runs of a sweep share the store of the first.
    """

    def __init__(self, job: TrainJob, steps_done: int):
        folder, entry = local_store(job, "trackio")
        store = os.environ.setdefault("TRACKIO_DIR", str(folder))
        self._package = import_module("trackio")
        self._run = self._package.init(
            project=os.environ.get("TRACKIO_PROJECT", PROJECT),
            name=f"{Path(job.run_dir).name}-{entry}",  # by which alone a run is resumed
            resume="allow",
            config=flat_settings(job),
            embed=False,
        )
        log.info("trackio: %s", self._run.url or f"TRACKIO_DIR={store} trackio show")

    def _send(self, step: int, values: dict[str, Any]) -> None:
        self._run.log(values, step=step)

    def close(self, finished: bool) -> None:
        """Writes the rest, through the package, which otherwise repeats it at exit and prints."""
        self._package.finish()


class MlflowTracker:
    """Writes a run of MLflow; ``MLFLOW_TRACKING_URI`` and ``MLFLOW_EXPERIMENT_NAME`` are read."""

    def __init__(self, job: TrainJob, steps_done: int):
        mlflow = import_module("mlflow")
        (folder, entry), tag = local_store(job, "mlflow"), "transformer_mt.entry"
        uri = os.environ.get("MLFLOW_TRACKING_URI", local := f"sqlite:///{folder}/mlflow.db")
        self._client = client = mlflow.MlflowClient(uri)
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
        files = (folder / "artifacts").as_uri() if uri == local else None
        found = client.get_experiment_by_name(name)
        group = found.experiment_id if found else client.create_experiment(name, files)
        runs = client.search_runs([group], f"tags.`{tag}` = '{entry}'")
        if not runs:
            runs = [client.create_run(group, tags={tag: entry}, run_name=Path(job.run_dir).name)]
            # 500 characters are what servers of all versions accept.
            texts = {key: str(value)[:500] for key, value in flat_settings(job).items()}
            params = [mlflow.entities.Param(*item) for item in texts.items()]
            client.log_batch(runs[0].info.run_id, params=params)
        self._id: str = runs[0].info.run_id
        client.update_run(self._id, "RUNNING")
        page = f"{uri}/#/experiments/{group}/runs/{self._id}"
        view = page if uri.startswith("http") else f"mlflow ui --backend-store-uri {uri}"
        log.info("mlflow: %s", view)

    def log(self, split: str, step: int, values: Mapping[str, float]) -> None:
        """Adds points to curves in the background."""
        for name, value in values.items():
            key = re.sub(r"[^\w\-. /]", "_", f"{split}/{name}")
            self._client.log_metric(self._id, key, value, step=step, synchronous=False)

    def log_samples(self, step: int, table: list[list[str]]) -> None:
        """Writes a file with a table, of column names and rows of text."""
        csv.writer(file := io.StringIO(), lineterminator="\n").writerows(table)
        self._client.log_text(self._id, file.getvalue(), f"translations/{step:08}.csv")

    def close(self, finished: bool) -> None:
        """Writes the rest and marks the run as finished or killed."""
        self._client.set_terminated(self._id, "FINISHED" if finished else "KILLED")
