"""Checks of a run folder on resume: the configuration and the data must be those it was started
with.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from transformer_mt import checkpoint as ckpt
from transformer_mt import model_folder, run_layout
from transformer_mt.config import TrainJob, dotted
from transformer_mt.data.prepare import Prepared
from transformer_mt.data.store import cache
from transformer_mt.data.text.sources import Pair
from transformer_mt.errors import InputError
from transformer_mt.evaluation.scores import read_scores
from transformer_mt.files import read_regular

_MAY_CHANGE = (
    "run_dir",
    "cache_dir",
    "card.",
    "distributed.",
    "decode.",
    "data.train",  # the paths; the content is checked by check_data
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
    "trackers",
    "train.device",
    "train.log_every",
    "train.validate_every",
    "train.checkpoint_every",
    "train.average_checkpoints",
    "train.final",
)
"""Prefixes of the settings that may differ when a run resumes."""

_MAX_REPORT_BYTES = 2**20

_SCORES_DEPEND_ON = ("decode.", "data.test", "train.average_checkpoints", "train.final")
"""Prefixes of the settings that the final scores depend on, given the checkpoints."""


def check_config(run_dir: Path, job: TrainJob) -> None:
    """Raise ``InputError`` unless the folder has no run, or an earlier part of the same run."""
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
                    f"{run_dir} contains {name} but no {run_layout.CONFIG}, so it is not a run of "
                    "mt-train: choose a different run_dir"
                )
        return
    differ = {
        key: values
        for key, values in _differences(run_dir, job).items()
        if not key.startswith(_MAY_CHANGE)
    }
    if job.tokenizer.path is not None:  # the vocabulary's content determines its size
        differ.pop("tokenizer.vocab_size", None)
    if differ:
        first = list(differ.items())[:3]
        shown = ", ".join(f"{key} was {old}, now {new}" for key, (old, new) in first)
        more = f" and {len(differ) - 3} more" if len(differ) > 3 else ""
        raise InputError(
            f"{run_dir} was started with a different configuration ({shown}{more}): choose a "
            "different run_dir, or delete that folder"
        )


def check_data(run_dir: Path, data: Prepared) -> None:
    """Raise ``InputError`` if the training data, vocabulary or validation data have changed."""
    if not (run_dir / run_layout.CONFIG).exists():
        return
    changed = _changed_data(run_dir, data)
    for key, name in (
        ("corpus", "training data or its vocabulary has"),
        ("sources", "number of pairs of a source, which data.weights and temperature use, has"),
        ("valid", "validation data has"),
    ):
        if key in changed:
            raise InputError(
                f"the {name} changed since {run_dir} was started: choose a different run_dir, or "
                "delete that folder"
            )


def check_weights(run_dir: Path, step: int) -> None:
    """Raise ``InputError`` if there is a model but no intact checkpoint, that is, ``step`` is 0."""
    if step == 0 and (run_dir / run_layout.WEIGHTS).exists():
        raise InputError(
            f"{run_dir} contains a model but no intact checkpoint to resume from: choose a "
            "different run_dir, or delete that folder"
        )


def changed_decoding(run_dir: Path, job: TrainJob) -> str:
    """The decoding settings that differ from those of earlier validations; empty if none do."""
    if not ckpt.steps(run_dir) or not (run_dir / run_layout.CONFIG).exists():
        return ""
    return ", ".join(
        f"{key} was {old}, now {new}"
        for key, (old, new) in _differences(run_dir, job).items()
        if key.startswith("decode.") and key != "decode.batch_tokens"
    )


def scores_are_current(run_dir: Path, job: TrainJob, data: Prepared) -> bool:
    """Whether the scores in the folder are still those of the job, whose training is finished."""
    has_scores = read_scores(run_dir / run_layout.TEST_SCORES) is not None
    if not (has_scores and (run_dir / run_layout.WEIGHTS).exists()):
        return False
    differ = {key for key in _differences(run_dir, job) if key.startswith(_SCORES_DEPEND_ON)}
    if not data.test:  # keep the scores of a test set that is no longer given
        return differ <= {"data.test"}
    return not differ and "test" not in _changed_data(run_dir, data)


def evaluation_data_differs(run_dir: Path, part: str, pairs: Sequence[Pair]) -> bool:
    """Whether a run's ``valid`` or ``test`` set had other pairs, as far as its folder records."""
    return _recorded_checksums(run_dir).get(part) not in (None, cache.key(pairs))


def _differences(run_dir: Path, job: TrainJob) -> dict[str, tuple[Any, Any]]:
    """The settings, by dotted name, that differ between the folder's run and the job."""
    old, new = dotted(asdict(model_folder.read_config(run_dir))), dotted(asdict(job))
    return {
        key: (old.get(key), new.get(key))
        for key in sorted(old.keys() | new.keys())
        if old.get(key) != new.get(key)
    }


def _changed_data(run_dir: Path, data: Prepared) -> set[str]:
    recorded = _recorded_checksums(run_dir)
    if not recorded:
        return set()
    # Every folder records the training data; older ones record nothing else.
    recorded = {**data.fingerprints, "corpus": None, **recorded}
    return {key for key, value in data.fingerprints.items() if recorded[key] != value}


def _recorded_checksums(run_dir: Path) -> dict[str, Any]:
    path = run_dir / run_layout.CLEANING_REPORT
    if not path.exists():
        return {}
    try:
        return dict(json.loads(read_regular(path, _MAX_REPORT_BYTES)))
    except (OSError, ValueError, TypeError, RecursionError):
        raise InputError(
            f"{path} is damaged: delete it, and the data are assumed to be unchanged"
        ) from None
