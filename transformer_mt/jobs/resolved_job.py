"""The job as a run records it: absolute paths, and the model and vocabulary that it starts with."""

from dataclasses import asdict, replace
from pathlib import Path

from transformer_mt import checkpoint as ckpt
from transformer_mt import files, hub_models, model_folder, run_layout
from transformer_mt.config import SourceConfig, TrainJob
from transformer_mt.data.prepare import existing_vocabulary
from transformer_mt.data.subwords.tokenizer import Tokenizer
from transformer_mt.errors import InputError


def resolved(job: TrainJob) -> TrainJob:
    """The job with everything that does not depend on the training data.

    Raises:
        InputError: See ``with_initial_vocabulary``.
    """
    job = _with_absolute_paths(job)
    if job.train.init_from is not None:
        job = with_initial_vocabulary(job, job.train.init_from)
    vocabulary = existing_vocabulary(job)
    if vocabulary is None or not vocabulary.exists():
        return job
    size = Tokenizer(vocabulary).vocab_size
    return replace(job, tokenizer=replace(job.tokenizer, vocab_size=size))


def _with_absolute_paths(job: TrainJob) -> TrainJob:
    """The job with absolute paths, so that its run folder can be used from any working folder."""

    def absolute(path: str) -> str:
        return str(files.expand_user(path).resolve())

    data = replace(
        job.data,
        train=list(map(SourceConfig.with_absolute_paths, job.data.train)),
        valid=list(map(SourceConfig.with_absolute_paths, job.data.valid)),
        test=list(map(SourceConfig.with_absolute_paths, job.data.test)),
    )
    tokenizer, train = job.tokenizer, job.train
    if tokenizer.path is not None:
        tokenizer = replace(tokenizer, path=absolute(tokenizer.path))
    if train.init_from is not None and not hub_models.is_remote(train.init_from):
        train = replace(train, init_from=absolute(train.init_from))
    run_dir = absolute(job.run_dir)
    return replace(job, run_dir=run_dir, data=data, tokenizer=tokenizer, train=train)


def with_initial_vocabulary(job: TrainJob, reference: str) -> TrainJob:
    """The job with the vocabulary of the model that it starts from (``train.init_from``).

    A model of the Hub is pinned to its present commit, or to the one that an earlier start of the
    run has recorded.

    Raises:
        InputError: There is no such model, its sizes or text normalization differ from the job's,
            or the job names another vocabulary.
    """
    recorded = _recorded(Path(job.run_dir), reference)
    if recorded is not None:
        reference = recorded.train.init_from or reference
    elif hub_models.is_remote(reference):
        reference = hub_models.pin(reference)  # the same for all workers
    job = replace(job, train=replace(job.train, init_from=reference))
    if recorded is not None and ckpt.steps(Path(job.run_dir)):  # the run has copied all it needs
        path = job.tokenizer.path or recorded.tokenizer.path
        return replace(job, tokenizer=replace(job.tokenizer, path=path))
    folder = hub_models.resolve(reference)
    if not (folder / run_layout.WEIGHTS).exists():
        raise InputError(f"train.init_from={folder}: there is no {run_layout.WEIGHTS}")
    _, trained = model_folder.load_tokenizer(folder)
    needed = [
        f"model.{key}={'null' if value is None else value}"
        for key, value in asdict(trained.model).items()
        if key != "dropout" and getattr(job.model, key) != value
    ]
    if trained.data.normalization != job.data.normalization:
        needed.append(f"data.normalization={trained.data.normalization}")
    if needed:
        raise InputError(
            f"the model of train.init_from={folder} differs from this one: set {' '.join(needed)}"
        )
    vocabulary = str(folder / run_layout.TOKENIZER)
    if job.tokenizer.path not in (None, vocabulary):
        raise InputError(
            f"tokenizer.path={job.tokenizer.path}: with train.init_from={folder} the vocabulary of "
            "that folder is used; leave tokenizer.path out"
        )
    return replace(job, tokenizer=replace(job.tokenizer, path=vocabulary))


def _recorded(run_dir: Path, reference: str) -> TrainJob | None:
    """The job that the run folder was started with, if it started from the same model or commit."""
    if not (run_dir / run_layout.CONFIG).exists():
        return None
    recorded = model_folder.read_config(run_dir)
    start = recorded.train.init_from or ""
    same = start == reference
    if hub_models.is_remote(reference):
        same |= start.rpartition("@")[0] == reference
    return recorded if same else None
