"""Resuming a run: what is checked in its folder, and in which order."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from transformer_mt import model_folder, run_layout
from transformer_mt.config import TrainJob
from transformer_mt.config.checks import dotted
from transformer_mt.data import held_out
from transformer_mt.data.prepare import Prepared
from transformer_mt.data.store import cache
from transformer_mt.data.text.sources import Pair
from transformer_mt.errors import InputError
from transformer_mt.evaluation.scores import read_scores
from transformer_mt.files import read_json

_MAY_CHANGE = (
    "run_dir",
    "cache_dir",
    "card.",
    "distributed.",
    "decode.",
    "data.train",  # the paths; the content is checked
    "data.valid",
    "data.test",
    "schedule.",  # as advised after divergence, like train.clip_norm
    "train.clip_norm",
    "train.max_steps",
    "train.max_epochs",
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
)
"""Prefixes of the settings that may differ when a run resumes."""

_SCORES_DEPEND_ON = ("decode.", "data.test", "train.average_checkpoints", "train.final")
"""Prefixes of the settings that the final scores depend on, given the checkpoints."""

_DATA = {
    "valid": "validation data has",  # first: it also changes a corpus that is cleaned of its pairs
    "corpus": "training data or its vocabulary has",
    "sources": "number of pairs of a source, which data.weights uses, has",
}
"""Parts of the data that must not change, by the name of their recorded checksum."""

RunState = Literal["new", "started", "finished"]
"""State of a run folder when a job starts in it."""


def check(
    run_dir: Path,
    job: TrainJob,
    data: Prepared | None = None,
    *,
    steps_done: int = 0,
    is_trained: bool = False,
) -> RunState:
    """Whether a run folder is new, to be resumed, or finished; refuses any other folder.

    The first two checks need no data: they are done once before preparing them, which may take
    hours, and once more afterwards, with all others.

    1. A folder without a configuration must not have files that a run would replace.
    2. The settings must be those of the run, except for ``_MAY_CHANGE``.
    3. The vocabulary and the training and validation data must be those of the run.
    4. After the last update, and with scores of this model and test set, the run is finished.
    5. A model without a checkpoint would be replaced by a new one: it is refused.

    Args:
        run_dir: The run folder.
        job: The job, resolved.
        data: Its data, once they are prepared.
        steps_done: Updates done according to the latest intact checkpoint.
        is_trained: Whether no update and no validation remains to be done.

    Raises:
        InputError: The folder cannot be used for the job; the message says why.
    """
    if not (run_dir / run_layout.CONFIG).exists():
        _refuse_files(run_dir, [*run_layout.WRITTEN, *held_out.file_names(job.data)])
        return "new"
    recorded = model_folder.read_config(run_dir)
    old, new = dotted(asdict(recorded)), dotted(asdict(job))
    changed, refused, derived = set[str](), list[str](), tuple[str, ...]()
    if old["tokenizer.path"] and new["tokenizer.path"]:  # its content is checked
        derived = ("tokenizer.path", "tokenizer.vocab_size")
    for key in sorted(old.keys() | new.keys()):
        if old.get(key) == new.get(key):
            continue
        changed.add(key)
        if not key.startswith(_MAY_CHANGE) and key not in derived:
            refused.append(f"{key} was {old.get(key)}, now {new.get(key)}")
    if refused:
        more = f" and {len(refused) - 3} more" if len(refused) > 3 else ""
        raise InputError(
            f"{run_dir} was started with a different configuration ({', '.join(refused[:3])}"
            f"{more}): choose a different run_dir, or delete that folder"
        )
    recorded_names = held_out.file_names(recorded.data)
    _refuse_files(run_dir, set(held_out.file_names(job.data)).difference(recorded_names))
    if data is None:
        return "started"
    checksums, changed_data = _recorded_checksums(run_dir), set[str]()
    for key in (*_DATA, "test"):  # of which older versions recorded fewer
        if key in checksums and checksums[key] != data.fingerprints.get(key):
            changed_data.add(key)
    for key, name in _DATA.items():
        if key in changed_data:
            remedy = "choose a different run_dir, or delete that folder"
            if key == "corpus" and "test" in changed_data and job.data.cleaning.drop_held_out:
                remedy = (
                    "data.cleaning.drop_held_out removes the sentences of data.test, which has "
                    "changed, too; restore it, and score other test sets with mt-eval"
                )
            raise InputError(f"the {name} changed since {run_dir} was started: {remedy}")
    if is_trained and _scores_are_current(run_dir, data, changed, changed_data):
        return "finished"
    if steps_done == 0 and (run_dir / run_layout.WEIGHTS).exists():
        raise InputError(
            f"{run_dir} contains a model but no intact checkpoint to resume from: choose a "
            "different run_dir, or delete that folder"
        )
    return "started"


def _refuse_files(run_dir: Path, names: Iterable[str]) -> None:
    """Refuses a folder that has one of these files, which are not the run's."""
    for name in names:
        if (run_dir / name).exists():
            raise InputError(
                f"{run_dir / name} is not a file of this run, which would replace it: choose a "
                "different run_dir"
            )


def _scores_are_current(
    run_dir: Path, data: Prepared, changed: set[str], changed_data: set[str]
) -> bool:
    """Whether the scores in the folder belong to a job whose training is finished."""
    scores = read_scores(run_dir / run_layout.TEST_SCORES)
    if scores is None or not (run_dir / run_layout.WEIGHTS).exists():
        return False
    differ = {key for key in changed if key.startswith(_SCORES_DEPEND_ON)}
    if not data.test:  # keep the scores of a test set that is no longer given
        return differ <= {"data.test"}
    return not differ and "test" not in changed_data


def evaluation_data_differs(run_dir: Path, part: str, pairs: Sequence[Pair]) -> bool:
    """Whether a run's ``valid`` or ``test`` set had other pairs, as far as its folder records."""
    return _recorded_checksums(run_dir).get(part) not in (None, cache.key(pairs))


def _recorded_checksums(run_dir: Path) -> dict[str, Any]:
    path = run_dir / run_layout.CLEANING_REPORT
    if not path.exists():
        return {}
    try:
        return dict(read_json(path, {}))
    except (OSError, ValueError):
        raise InputError(
            f"{path} is damaged: delete it; the data will not be compared with those of the start"
        ) from None
