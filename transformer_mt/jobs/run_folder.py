"""The folder of a run: its lock, its log and the files that it starts with."""

import json
import logging
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from filelock import FileLock, Timeout

from transformer_mt import files, hub_models, model_folder, run_layout
from transformer_mt.config import TrainJob
from transformer_mt.data.prepare import Prepared
from transformer_mt.errors import InputError


def with_absolute_paths(job: TrainJob) -> TrainJob:
    """The job with absolute paths, so that its run folder can be used from any working folder."""

    def absolute(path: str) -> str:
        return str(files.expand_user(path).resolve())

    data = replace(
        job.data,
        train=[source.with_absolute_paths() for source in job.data.train],
        valid=[source.with_absolute_paths() for source in job.data.valid],
        test=[source.with_absolute_paths() for source in job.data.test],
    )
    tokenizer, train = job.tokenizer, job.train
    if tokenizer.path is not None:
        tokenizer = replace(tokenizer, path=absolute(tokenizer.path))
    if train.init_from is not None and not hub_models.is_remote(train.init_from):
        train = replace(train, init_from=absolute(train.init_from))
    run_dir = absolute(job.run_dir)
    return replace(job, run_dir=run_dir, data=data, tokenizer=tokenizer, train=train)


@contextmanager
def lock(run_dir: Path) -> Iterator[None]:
    """Lock the folder against other runs.

    Raises:
        InputError: Another process holds the lock, or ``run_dir`` is a file.
    """
    if run_dir.exists() and not run_dir.is_dir():
        raise InputError(f"run_dir={run_dir} is a file: name a folder")
    run_dir.mkdir(parents=True, exist_ok=True)
    held = FileLock(run_dir / run_layout.LOCK, timeout=0)
    try:
        held.acquire()
    except Timeout:
        raise InputError(
            f"another mt-train is using {run_dir}: choose a different run_dir, or stop it first"
        ) from None
    try:
        yield
    finally:
        held.release()


@contextmanager
def logging_to(run_dir: Path) -> Iterator[None]:
    """Send the package's log to standard error and, with time stamps, to ``train.log``."""
    run_dir.mkdir(parents=True, exist_ok=True)
    screen = logging.StreamHandler(sys.stderr)
    file = logging.FileHandler(run_dir / run_layout.LOG, encoding="utf-8")
    screen.setFormatter(logging.Formatter("%(message)s"))
    file.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    package = logging.getLogger("transformer_mt")
    before = package.handlers, package.level, package.propagate
    package.handlers, package.propagate = [screen, file], False
    package.setLevel(logging.INFO)
    try:
        yield
    finally:
        package.handlers, level, package.propagate = before
        package.setLevel(level)
        file.close()


def write_start(run_dir: Path, job: TrainJob, data: Prepared) -> None:
    """Write what a run starts or resumes with: configuration, vocabulary and cleaning report.

    Scores of an earlier end of the run are deleted, because they will not be the final model's.
    """
    _remove_temporary_files(run_dir)
    (run_dir / run_layout.TEST_SCORES).unlink(missing_ok=True)
    model_folder.write_config(run_dir, job, data.tokenizer_model)
    with files.atomic(run_dir / run_layout.TOKENIZER) as temporary:
        shutil.copyfile(data.tokenizer_model, temporary)
    report = run_dir / run_layout.CLEANING_REPORT
    report.parent.mkdir(exist_ok=True)
    content = {**data.cleaning, **data.fingerprints}
    files.write_text(report, json.dumps(content, indent=2))


def _remove_temporary_files(run_dir: Path) -> None:
    """Remove files that a killed process has left, named by ``files.atomic`` and safetensors."""
    for pattern in (".*.tmp", ".tmp*"):
        for path in [*run_dir.glob(pattern), *(run_dir / run_layout.CHECKPOINTS).rglob(pattern)]:
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
