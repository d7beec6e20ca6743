"""The folder of a run: what may be resumed in it, what it begins with, who may write to it."""

import json
import logging
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from transformer_mt import checkpoint as ckpt
from transformer_mt import files, model_folder, run_layout
from transformer_mt.config import TrainJob, dotted
from transformer_mt.data.prepare import Prepared
from transformer_mt.data.store import cache
from transformer_mt.data.text.sources import Pair
from transformer_mt.errors import InputError
from transformer_mt.evaluate import metrics

# What a run may be resumed with and stay the same run.
_MAY_CHANGE = (
    "run_dir",
    "cache_dir",
    "distributed.",
    "decode.",
    "data.train",  # where they lie; what they hold is checked by open_run
    "data.valid",
    "data.test",
    "train.max_steps",
    "train.max_epochs",
    "train.max_hours",
    "train.max_skipped",
    "train.patience",
    "train.max_tokens_per_device",
    "train.compile",
    "data.workers",
    "stage",
    "train.device",
    "train.log_every",
    "train.validate_every",
    "train.checkpoint_every",
    "train.average_checkpoints",
    "train.final",
)
# What the final model, and the scores of a finished run, come from beside its checkpoints.
_SCORED_BY = ("decode.", "data.test", "train.average_checkpoints", "train.final")


def with_absolute_paths(job: TrainJob) -> TrainJob:
    """The job with paths that hold wherever its folder is opened from."""
    data = replace(
        job.data,
        train=[source.with_absolute_paths() for source in job.data.train],
        valid=[source.with_absolute_paths() for source in job.data.valid],
        test=[source.with_absolute_paths() for source in job.data.test],
    )
    tokenizer = job.tokenizer
    if tokenizer.path is not None:
        tokenizer = replace(tokenizer, path=str(files.expand_user(tokenizer.path).resolve()))
    train = job.train
    if train.init_from is not None:
        train = replace(train, init_from=str(files.expand_user(train.init_from).resolve()))
    run_dir = str(files.expand_user(job.run_dir).resolve())
    return replace(job, run_dir=run_dir, data=data, tokenizer=tokenizer, train=train)


@contextmanager
def lock(run_dir: Path) -> Iterator[None]:
    """Keeps a second run out of the folder."""
    if run_dir.exists() and not run_dir.is_dir():
        raise InputError(f"run_dir={run_dir} is a file: name a folder")
    run_dir.mkdir(parents=True, exist_ok=True)
    held = FileLock(run_dir / run_layout.LOCK, timeout=0)
    try:
        held.acquire()
    except Timeout:
        raise InputError(
            f"another mt-train is at work in {run_dir}: choose another run_dir, or stop it first"
        ) from None
    try:
        yield
    finally:
        held.release()


def refuse_other_run(run_dir: Path, job: TrainJob) -> None:
    """Never mixes two runs in one folder.

    Raises:
        InputError: The folder holds something else than an earlier part of this run.
    """
    if not (run_dir / run_layout.CONFIG).exists():
        for name in (
            run_layout.WEIGHTS,
            run_layout.TOKENIZER,
            run_layout.CHECKPOINTS,
            run_layout.METRICS,
            run_layout.TEST_SCORES,
        ):
            if (run_dir / name).exists():
                raise InputError(
                    f"{run_dir} holds a {name} but no {run_layout.CONFIG}: it is no run of "
                    "mt-train; choose another run_dir"
                )
        return
    differ = {
        key: values
        for key, values in _differences(run_dir, job).items()
        if not key.startswith(_MAY_CHANGE)
    }
    if job.tokenizer.path is not None:  # its content decides, and says how many pieces it has
        differ.pop("tokenizer.vocab_size", None)
    if differ:
        first = list(differ.items())[:3]
        shown = ", ".join(f"{key} was {old}, now {new}" for key, (old, new) in first)
        more = f" and {len(differ) - 3} more" if len(differ) > 3 else ""
        raise InputError(
            f"{run_dir} was begun with another configuration ({shown}{more}): choose another "
            "run_dir, or delete that folder"
        )


def changed_search(run_dir: Path, job: TrainJob) -> str:
    """What is new in the search of a run that has been validated; empty if nothing is."""
    if not ckpt.steps(run_dir) or not (run_dir / run_layout.CONFIG).exists():
        return ""
    return ", ".join(
        f"{key} was {old}, now {new}"
        for key, (old, new) in _differences(run_dir, job).items()
        if key.startswith("decode.") and key != "decode.batch_tokens"
    )


def scores_stand(run_dir: Path, job: TrainJob, data: Prepared) -> bool:
    """Whether the scores in the folder are those that the job, when finished, would come to."""
    try:
        metrics.from_json((run_dir / run_layout.TEST_SCORES).read_text(encoding="utf-8"))
    except (OSError, ValueError, KeyError, TypeError):  # not there yet, or damaged
        return False
    if not (run_dir / run_layout.WEIGHTS).exists():
        return False
    differ = {key for key in _differences(run_dir, job) if key.startswith(_SCORED_BY)}
    if not data.test:  # nothing is to be scored: what was is not to be lost
        return differ <= {"data.test"}
    return not differ and "test" not in _other_data(run_dir, job, data)


def _differences(run_dir: Path, job: TrainJob) -> dict[str, tuple[Any, Any]]:
    """The settings, by dotted name, that the folder's run and the job differ in."""
    old, new = dotted(asdict(model_folder.read_config(run_dir))), dotted(asdict(job))
    return {
        key: (old.get(key), new.get(key))
        for key in sorted(old.keys() | new.keys())
        if old.get(key) != new.get(key)
    }


def refuse_other_data(run_dir: Path, job: TrainJob, data: Prepared) -> None:
    """Never goes on with other data.

    Raises:
        InputError: The run was begun with other training or validation data, or with another
            vocabulary.
    """
    if not (run_dir / run_layout.CONFIG).exists():
        return
    other = _other_data(run_dir, job, data)
    for key, name in (
        ("corpus", "training data, or its vocabulary,"),
        ("sources", "number of pairs in each source, which data.weights and temperature go by,"),
        ("valid", "validation data"),
    ):
        if key in other:
            raise InputError(
                f"the {name} has changed since {run_dir} was begun: choose another run_dir, or "
                "delete that folder"
            )


def open_run(run_dir: Path, job: TrainJob, data: Prepared) -> None:
    """Writes what the folder begins with; scores of an earlier end are no longer the model's."""
    _remove_unfinished(run_dir)
    (run_dir / run_layout.TEST_SCORES).unlink(missing_ok=True)
    model_folder.write_config(run_dir, job, data.tokenizer_model)
    with files.atomic(run_dir / run_layout.TOKENIZER) as temporary:
        shutil.copyfile(data.tokenizer_model, temporary)
    (run_dir / "data").mkdir(exist_ok=True)
    content = {**data.cleaning, **_identity(job, data)}
    files.write_text(run_dir / run_layout.CLEANING_REPORT, json.dumps(content, indent=2))


def _identity(job: TrainJob, data: Prepared) -> dict[str, str]:
    identity = {
        "corpus": data.train.fingerprint,
        "valid": cache.key(data.valid),
        "test": cache.key(data.test),
    }
    if job.data.weights or job.data.temperature > 1:  # else it does not matter how it is cut
        identity["sources"] = " ".join(map(str, data.train.source_sizes))
    return identity


def _other_data(run_dir: Path, job: TrainJob, data: Prepared) -> set[str]:
    """Which of a run's data are not what they were."""
    known = _known(run_dir)
    if not known:
        return set()
    identity = _identity(job, data)
    # Runs begun before 2026-11-21 tell their training data alone.
    known = {**identity, "corpus": None, **known}
    return {key for key in identity if known[key] != identity[key]}


def is_other(run_dir: Path, part: str, pairs: Sequence[Pair]) -> bool:
    """Whether a run's ``valid`` or ``test`` set was another one, as far as its folder tells."""
    return _known(run_dir).get(part) not in (None, cache.key(pairs))


def _known(run_dir: Path) -> dict[str, Any]:
    if not (run_dir / run_layout.CLEANING_REPORT).exists():
        return {}
    try:
        return dict(json.loads((run_dir / run_layout.CLEANING_REPORT).read_text(encoding="utf-8")))
    except (ValueError, TypeError):
        raise InputError(
            f"{run_dir / run_layout.CLEANING_REPORT} is damaged: delete it, and the data are "
            "taken for the same"
        ) from None


def _remove_unfinished(run_dir: Path) -> None:
    """Files that a kill left half written, under the names of ``files.atomic`` and safetensors."""
    for pattern in (".*.tmp", ".tmp*"):
        for path in [*run_dir.glob(pattern), *(run_dir / run_layout.CHECKPOINTS).rglob(pattern)]:
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)


def log_to(run_dir: Path) -> None:
    """Log lines go to stderr and, with the time, to ``train.log``."""
    run_dir.mkdir(parents=True, exist_ok=True)
    screen, file = (
        logging.StreamHandler(sys.stderr),
        logging.FileHandler(run_dir / run_layout.LOG, encoding="utf-8"),
    )
    screen.setFormatter(logging.Formatter("%(message)s"))
    file.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    package = logging.getLogger("transformer_mt")
    for handler in package.handlers:  # of the job before, in a sweep
        handler.close()
    package.handlers = [screen, file]
    package.setLevel(logging.INFO)
    package.propagate = False
