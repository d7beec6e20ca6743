"""The job as a run records it: absolute paths, and the model and vocabulary that it starts with."""

import re
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from transformer_mt import files, hub_models, model_folder, run_layout
from transformer_mt.config import DataConfig, ModelConfig, SourceConfig, TokenizerConfig, TrainJob
from transformer_mt.config.checks import dotted, require
from transformer_mt.data.prepare import existing_vocabulary
from transformer_mt.data.subwords.tokenizer import Tokenizer, vocabulary_settings
from transformer_mt.data.text.tags import missing_tags
from transformer_mt.errors import InputError, UsageError


def resolved(job: TrainJob) -> TrainJob:
    """The job with everything that does not depend on the training data.

    Raises:
        InputError: There are no data, or a name has ``${``; or see ``with_initial_model``.
    """
    data = job.data
    message = "data.train has no sources; mt-train --help shows examples"
    require(bool(data.train), message, UsageError)
    require(
        bool(data.valid) or data.valid_pairs is not None,
        "data.valid has no sources: name some, or set data.valid_pairs=N to take N pairs (at most "
        "a quarter) out of data.train; mt-train --help shows examples",
        UsageError,
    )
    job = _with_absolute_paths(job)
    for key, value in dotted(asdict(job)).items():  # config.yaml will have them
        message = f"{key}={value} has ${{, which starts an interpolation: rename it"
        require("${" not in str(value), message)
    if job.train.init_from is not None:
        job = with_initial_model(job, job.train.init_from)
    if job.tokenizer.path is None:
        return job
    vocabulary = existing_vocabulary(job.tokenizer.path, job.run_dir)
    if not vocabulary.exists():
        return job
    tokenizer = Tokenizer(vocabulary)
    size = tokenizer.vocab_size + len(missing_tags(job.data, tokenizer.tags))
    used = vocabulary_settings(vocabulary) | {"joint": tokenizer.is_joint}
    return replace(job, tokenizer=replace(job.tokenizer, vocab_size=size, **used))


def _with_absolute_paths(job: TrainJob) -> TrainJob:
    """The job with absolute paths, so that its run folder can be used from any working folder."""
    data = replace(
        job.data,
        train=list(map(SourceConfig.with_absolute_paths, job.data.train)),
        valid=list(map(SourceConfig.with_absolute_paths, job.data.valid)),
        test=list(map(SourceConfig.with_absolute_paths, job.data.test)),
    )
    tokenizer, train = job.tokenizer, job.train
    if tokenizer.path is not None:
        tokenizer = replace(tokenizer, path=str(files.expand_user(tokenizer.path).resolve()))
    if train.init_from is not None and not train.init_from.startswith(hub_models.PREFIX):
        train = replace(train, init_from=str(files.expand_user(train.init_from).resolve()))
    run_dir = str(files.expand_user(job.run_dir).resolve())
    return replace(job, run_dir=run_dir, data=data, tokenizer=tokenizer, train=train)


def with_initial_model(job: TrainJob, reference: str) -> TrainJob:
    """The job with architecture and vocabulary of the model that it starts from (``init_from``).

    Dropout is the job's own, and the numbers of layers may be smaller. A model of the Hub is pinned
    to its present commit, or to the one that an earlier start of the run has recorded.

    Raises:
        InputError: There is no such model, or a setting of the job differs from the model's.
    """
    run_dir = Path(job.run_dir)
    if (run_dir / run_layout.CONFIG).exists():
        recorded = model_folder.read_config(run_dir, TrainJob)
        start = recorded.train.init_from or ""
        repository = hub_models.repository(reference)
        # A commit is taken as given; a branch, or no revision, stands for the recorded commit.
        is_commit = re.search("@[0-9a-f]{40}$", reference)
        pinned = repository is not None and hub_models.repository(start) == repository
        if start == reference or (pinned and not is_commit):
            path = job.tokenizer.path or recorded.tokenizer.path
            job = replace(job, train=replace(job.train, init_from=start))
            return _adopt(job, recorded, replace(job.tokenizer, path=path))
    if reference.startswith(hub_models.PREFIX):
        reference = hub_models.pin(reference)  # the same for all workers
    job = replace(job, train=replace(job.train, init_from=reference))
    model = model_folder.ModelFolder(reference, cache_dir=job.cache_dir)
    folder = model.weights.parent  # missing weights are reported before data are prepared
    is_one_file = model.tokenizer.tgt is model.tokenizer
    vocabulary = str(folder / run_layout.TOKENIZER if is_one_file else folder)
    if job.tokenizer.path not in (None, vocabulary):
        raise InputError(
            f"tokenizer.path={job.tokenizer.path}: with train.init_from={reference} the vocabulary "
            "of that model is used; leave tokenizer.path out"
        )
    return _adopt(job, model.trained, replace(job.tokenizer, path=vocabulary))


def _adopt(
    job: TrainJob, trained: model_folder.ModelSettings | TrainJob, tokenizer: TokenizerConfig
) -> TrainJob:
    """The job with a model's architecture, or fewer of its layers, and its text normalisation."""
    own, conflicts, fewer = job.model, [], dict[str, Any]()
    for name in ("num_encoder_layers", "num_decoder_layers"):
        number = getattr(own, name)
        if number < getattr(trained.model, name) and number != getattr(ModelConfig, name):
            fewer[name] = number
    model = replace(
        trained.model,
        dropout=own.dropout,
        attention_dropout=own.attention_dropout,
        activation_dropout=own.activation_dropout,
        **fewer,
    )
    for field in fields(model):
        value = getattr(own, field.name)
        if value not in (getattr(model, field.name), field.default):
            conflicts.append(f"model.{field.name}={value} (default {field.default})")
    normalization = job.data.normalization
    if normalization not in (trained.data.normalization, DataConfig.normalization):
        conflicts.append(f"data.normalization={normalization}")
    if conflicts:
        raise InputError(
            f"leave out {', '.join(conflicts)}: architecture and normalisation are those of "
            f"train.init_from={job.train.init_from}; only numbers of layers may be smaller. Leave "
            "out an experiment that sets them, or set them to their defaults"
        )
    return replace(
        job,
        model=model,
        data=replace(job.data, normalization=trained.data.normalization),
        tokenizer=replace(tokenizer, joint=trained.tokenizer.joint),
    )
