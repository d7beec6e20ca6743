"""Fine-tuning (``train.init_from``): training that starts from the weights of a model folder."""

from dataclasses import asdict, replace
from pathlib import Path

from transformer_mt import checkpoint as ckpt
from transformer_mt import hub_models, model_folder, run_layout
from transformer_mt.config import TrainJob
from transformer_mt.errors import InputError


def with_initial_vocabulary(job: TrainJob) -> TrainJob:
    """The job with the vocabulary of the model that it starts from, if any.

    Raises:
        InputError: There is no such model, its sizes or text normalization differ from the job's,
            or the job names another vocabulary.
    """
    if job.train.init_from is None:
        return job
    recorded = _recorded(job)
    if recorded is not None:
        reference = recorded.train.init_from
    elif hub_models.is_remote(job.train.init_from):
        reference = hub_models.pin(job.train.init_from)  # the same for all workers
    else:
        reference = job.train.init_from
    assert reference is not None
    job = replace(job, train=replace(job.train, init_from=reference))
    if recorded is not None and ckpt.steps(Path(job.run_dir)):  # the run has copied all it needs
        path = job.tokenizer.path or recorded.tokenizer.path
        return replace(job, tokenizer=replace(job.tokenizer, path=path))
    folder = hub_models.resolve(reference)
    vocabulary = str(folder / run_layout.TOKENIZER)
    if not (folder / run_layout.WEIGHTS).exists():
        raise InputError(f"train.init_from={folder}: there is no {run_layout.WEIGHTS}")
    _, trained = model_folder.load_tokenizer(folder)
    needed = [
        f"{group}.{key}={'null' if value is None else value}"
        for group, old, new in (
            ("model", asdict(trained.model), asdict(job.model)),
            ("data", {"normalization": trained.data.normalization}, asdict(job.data)),
        )
        for key, value in old.items()
        if key != "dropout" and new[key] != value
    ]
    if needed:
        raise InputError(
            f"the model of train.init_from={folder} differs from this one: set {' '.join(needed)}"
        )
    if job.tokenizer.path not in (None, vocabulary):
        raise InputError(
            f"tokenizer.path={job.tokenizer.path}: with train.init_from={folder} the vocabulary of "
            "that folder is used; leave tokenizer.path out"
        )
    return replace(job, tokenizer=replace(job.tokenizer, path=vocabulary))


def _recorded(job: TrainJob) -> TrainJob | None:
    """The job that the run folder was started with, if it started from the same model or commit."""
    run_dir, reference = Path(job.run_dir), job.train.init_from
    if reference is None or not (run_dir / run_layout.CONFIG).exists():
        return None
    recorded = model_folder.read_config(run_dir)
    found = recorded.train.init_from or ""
    same = found == reference
    if hub_models.is_remote(reference):
        same |= found.rpartition("@")[0] == reference
    return recorded if same else None
