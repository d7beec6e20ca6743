"""``train.init_from``: training that begins with the weights of a model folder."""

from dataclasses import asdict, replace
from pathlib import Path

from transformer_mt import checkpoint as ckpt
from transformer_mt import model_folder, run_layout
from transformer_mt.config import TrainJob
from transformer_mt.errors import InputError


def with_vocabulary_of_start(job: TrainJob) -> TrainJob:
    """The job with the vocabulary of the folder that it begins from, if it does.

    Raises:
        InputError: There is no such model, or the job's is another one: of other sizes, or of text
            that is prepared otherwise.
    """
    if job.train.init_from is None:
        return job
    folder = Path(job.train.init_from)
    vocabulary = str(folder / run_layout.TOKENIZER)
    if not (folder / run_layout.WEIGHTS).exists():
        if ckpt.steps(Path(job.run_dir)):  # it has long begun, and has all it needs
            return replace(job, tokenizer=replace(job.tokenizer, path=vocabulary))
        raise InputError(f"train.init_from={folder}: there is no {run_layout.WEIGHTS}")
    theirs, _ = model_folder.open_vocabulary(folder)
    wrong = [
        f"{group}.{key}={'null' if value is None else value}"
        for group, old, new in (
            ("model", asdict(theirs.model), asdict(job.model)),
            ("data", {"normalization": theirs.data.normalization}, asdict(job.data)),
        )
        for key, value in old.items()
        if key != "dropout" and new[key] != value
    ]
    if wrong:
        raise InputError(
            f"the model of train.init_from={folder} is another one: say {' '.join(wrong)}"
        )
    if job.tokenizer.path not in (None, vocabulary):
        raise InputError(
            f"tokenizer.path={job.tokenizer.path}: with train.init_from={folder} the vocabulary is "
            "that folder's; leave tokenizer.path out"
        )
    return replace(job, tokenizer=replace(job.tokenizer, path=vocabulary))
