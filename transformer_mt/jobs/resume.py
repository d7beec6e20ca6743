"""Resuming a run: what its folder records of its start, and what may differ from it."""

from collections.abc import Set
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from transformer_mt import run_layout
from transformer_mt.config import TrainJob
from transformer_mt.config.checks import dotted
from transformer_mt.data import held_out
from transformer_mt.data.prepare import Prepared
from transformer_mt.errors import InputError
from transformer_mt.evaluation.scores import Score, read_scores
from transformer_mt.files import read_json
from transformer_mt.model_folder import read_config

_MAY_CHANGE = {
    "run_dir",
    "cache_dir",
    "card",
    "distributed",
    "decode",
    "data.train",  # the paths; the content is checked
    "data.valid",
    "data.test",
    "schedule",  # as advised after divergence, like train.clip_norm
    "train.clip_norm",
    "train.max_steps",
    "train.max_hours",
    "train.patience",
    "train.max_tokens_per_device",  # dropout masks will differ
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
}
"""Settings, and groups of settings, that may differ when a run resumes."""

_END_DEPENDS_ON = {"decode", "data.test", "train.average_checkpoints", "train.final", "card"}
"""Settings, and groups of settings, that the final scores and the model card depend on, given the
checkpoints."""

_UPDATES_DEPEND_ON = {"schedule", "train.clip_norm"}
"""Settings, and groups of settings, that may differ, and then change the updates that follow."""

_DATA = {
    "valid": "validation data has",  # first: it also changes a corpus that is cleaned of its pairs
    "corpus": "training data or its vocabulary has",
}
"""Parts of the data that must not change, by the name of their recorded checksum."""


@dataclass(frozen=True)
class RecordedRun:
    """The record of a run's latest start in its folder."""

    run_dir: Path
    job: TrainJob
    checksums: dict[str, Any]
    """Checksums of the parts of the data, by name; empty if their file was deleted."""

    def check_data(self, job: TrainJob, data: Prepared) -> None:
        """Refuses to resume with another vocabulary, or other training or validation data.

        Raises:
            InputError: They are not those with which the run was started; the message says which.
        """
        for key, name in _DATA.items():
            if self._differs(key, data):
                remedy = "choose a different run_dir, or delete that folder"
                if held_out.sizes(job.data):  # of more text, other pairs
                    remedy = (
                        "choose a different run_dir; to keep the pairs that this one has held out, "
                        f"set data.valid and data.test to files of {self.run_dir / 'data'}"
                    )
                drops = job.data.cleaning.drop_held_out
                if key == "corpus" and drops and self._differs("test", data):
                    remedy = (
                        "data.cleaning.drop_held_out removes the sentences of data.test, which has "
                        "changed, too; restore it, and score other test sets with mt-eval"
                    )
                raise InputError(f"the {name} changed since {self.run_dir} was started: {remedy}")

    def changed_updates(self, job: TrainJob) -> str:
        """Settings that later updates depend on and that have changed, in words; may be empty."""
        changed = _changed(self.job, job).items()
        return ", ".join(
            f"{key} was {old}, now {new}"
            for key, (old, new) in changed
            if _is_in(_UPDATES_DEPEND_ON, key)
        )

    def current_scores(self, job: TrainJob, data: Prepared) -> list[Score] | None:
        """The test scores of a run that ended with these settings; None if it did not."""
        for name in (run_layout.WEIGHTS, run_layout.MODEL_CARD):
            if not (self.run_dir / name).exists():
                return None
        differ = {key for key in _changed(self.job, job) if _is_in(_END_DEPENDS_ON, key)}
        if not data.test:  # keep the scores of a test set that is no longer given
            differ.discard("data.test")
        elif self._differs("test", data):
            return None
        return None if differ else read_scores(self.run_dir / run_layout.TEST_SCORES)

    def _differs(self, part: str, data: Prepared) -> bool:
        recorded = self.checksums
        return bool(recorded) and recorded.get(part) != data.fingerprints.get(part)


def check(run_dir: Path, job: TrainJob) -> RecordedRun | None:
    """Reads what a run folder records, before data are prepared; None if the run is new.

    1. A folder without a configuration must not have files that a run would replace.
    2. The settings must be those of the run, except for ``_MAY_CHANGE``.

    Args:
        run_dir: The run folder.
        job: The job, resolved.

    Raises:
        InputError: The folder cannot be used for the job; the message says why.
    """
    if not (run_dir / run_layout.CONFIG).exists():
        for name in (*run_layout.WRITTEN, *held_out.file_names(job.data)):
            if (run_dir / name).exists():
                raise InputError(
                    f"{run_dir / name} is not a file of this run, which would replace it: choose "
                    "a different run_dir"
                )
        return None
    recorded = read_config(run_dir, TrainJob)
    refused = [
        f"{key} was {old}, now {new}"
        for key, (old, new) in _changed(recorded, job).items()
        if not _is_in(_MAY_CHANGE, key)
        and not (key == "tokenizer.path" and old and new)  # the content is checked
    ]
    if refused:
        more = f" and {len(refused) - 3} more" if len(refused) > 3 else ""
        raise InputError(
            f"{run_dir} was started with a different configuration ({', '.join(refused[:3])}"
            f"{more}): choose a different run_dir, or delete that folder"
        )
    return RecordedRun(run_dir, recorded, _recorded_checksums(run_dir))


def _changed(recorded: TrainJob, job: TrainJob) -> dict[str, tuple[Any, Any]]:
    """The settings that differ from those that a run has recorded: before and now."""
    old, new = dotted(asdict(recorded)), dotted(asdict(job))
    keys = sorted(old.keys() | new.keys())
    return {key: (old.get(key), new.get(key)) for key in keys if old.get(key) != new.get(key)}


def _is_in(settings: Set[str], key: str) -> bool:
    """Whether settings have a key, or its group."""
    return key in settings or key.partition(".")[0] in settings


def _recorded_checksums(run_dir: Path) -> dict[str, Any]:
    path = run_dir / run_layout.CLEANING_REPORT
    if not path.exists():
        return {}
    remedy = "delete it, and the run continues without a check that its data are the same"
    return dict(read_json(path, {}, remedy=remedy))
