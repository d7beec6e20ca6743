"""``mt-train``: data, training, averaging, and the score of the test set."""

import logging
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filelock import FileLock, Timeout

from transformer_mt import checkpoint as ckpt
from transformer_mt import distributed
from transformer_mt.cli import app
from transformer_mt.config import SourceConfig, TrainJob
from transformer_mt.data.prepare import Prepared, encode_pairs, prepare
from transformer_mt.data.store import TokenStore
from transformer_mt.data.tokenizer import Tokenizer
from transformer_mt.decode.translator import Translator, translate_sharded
from transformer_mt.distributed import World
from transformer_mt.errors import InputError
from transformer_mt.evaluate import metrics
from transformer_mt.model.transformer import Transformer
from transformer_mt.train.trainer import StoppedError, Trainer

log = logging.getLogger(__name__)

_SCORES = "test.json"

# What a run may be resumed with and stay the same run.
_MAY_CHANGE = (
    "run_dir",
    "cache_dir",
    "distributed.",
    "decode.",
    "data.valid",
    "data.test",
    "train.max_steps",
    "train.max_tokens_per_device",
    "train.device",
    "train.log_every",
    "train.validate_every",
    "train.checkpoint_every",
    "train.average_checkpoints",
)


def main() -> None:
    """Entry point of ``mt-train``."""
    app.main("train", TrainJob, run)


def run(job: TrainJob) -> None:
    """Trains, or goes on training, the model of a job, in as many processes as it asks for."""
    job = _with_absolute_paths(job)
    run_dir = Path(job.run_dir)
    device = distributed.pick_device(job.train.device)
    if distributed.under_launcher():
        with _lock(run_dir) if distributed.env_rank() == 0 else _nothing():
            _work(job)
        return
    gpus = torch.cuda.device_count() if device.type == "cuda" else 0
    processes = job.distributed.processes or max(1, gpus)
    if gpus and processes > gpus:
        raise InputError(f"distributed.processes={processes}, but only {gpus} GPU(s) are visible")
    with _lock(run_dir):
        if processes == 1:
            _work(job)
            return
        _refuse_other_run(run_dir, job)
        _log_to(run_dir)
        prepare(job)  # before any process group: a rank that waits would time out
        distributed.launch(_work, (job,), processes)


def _work(job: TrainJob) -> None:
    """What every rank does."""
    run_dir = Path(job.run_dir)
    if distributed.env_rank() == 0:
        _refuse_other_run(run_dir, job)
        _log_to(run_dir)
    data = prepare(job)
    with distributed.join(distributed.pick_device(job.train.device)) as world:
        _train(run_dir, job, data, world)


def _train(run_dir: Path, job: TrainJob, data: Prepared, world: World) -> None:
    tokenizer = Tokenizer(data.tokenizer_model)
    src, references = [pair.src for pair in data.valid], [pair.tgt for pair in data.valid]

    def bleu(model: Transformer) -> float:
        translator = Translator(model, tokenizer, job.decode)
        hypotheses = translate_sharded(translator, src, world)
        return metrics.bleu(hypotheses, [references], tgt_lang=job.data.tgt_lang).score

    valid = encode_pairs(data.valid, tokenizer)
    _check_positions(job, valid)
    trainer = Trainer(job, run_dir, data.train, valid, tokenizer.vocab_size, bleu, world)
    if trainer.is_finished and (run_dir / _SCORES).exists():
        if world.is_main:
            log.info("%s is finished: nothing to do (more updates: train.max_steps=…)", run_dir)
            print((run_dir / _SCORES).read_text(encoding="utf-8"), end="")
        return
    if world.is_main:
        _open_run(run_dir, job, data)
    try:
        trainer.run()
    except StoppedError as stopped:
        if world.is_main:
            log.info("stopped; the same command goes on from here")
        raise SystemExit(128 + stopped.signal) from None
    log.info("the model is in %s", run_dir)
    if data.test:
        translator = Translator(trainer.model.eval(), tokenizer, job.decode)
        hypotheses = translate_sharded(translator, [pair.src for pair in data.test], world)
        if world.is_main:
            scores = metrics.score_all(
                hypotheses, [[pair.tgt for pair in data.test]], tgt_lang=job.data.tgt_lang
            )
            ckpt.write_text(run_dir / _SCORES, metrics.to_json(scores) + "\n")
            print(metrics.to_text(scores))


def _check_positions(job: TrainJob, valid: TokenStore) -> None:
    """Learned positions end somewhere; training pairs are shorter by the config's own check."""
    if job.model.positions != "learned":
        return
    lengths = np.maximum(valid.src.lengths, valid.tgt.lengths)
    if lengths.max() > job.model.max_positions:
        raise InputError(
            f"validation pair {lengths.argmax() + 1} has {lengths.max()} tokens, but "
            f"model.max_positions={job.model.max_positions}: raise it"
        )


def _with_absolute_paths(job: TrainJob) -> TrainJob:
    """The job with paths that hold wherever its folder is opened from."""

    def absolute(source: SourceConfig) -> SourceConfig:
        changed: dict[str, Any] = {
            key: str(Path(value).expanduser().resolve())
            for key in ("src", "tgt", "tsv", "jsonl", "parquet")
            if (value := getattr(source, key)) is not None
        }
        if source.hub is not None and Path(source.hub).expanduser().is_dir():
            changed["hub"] = str(Path(source.hub).expanduser().resolve())
        return replace(source, **changed)

    data = replace(
        job.data,
        train=[absolute(source) for source in job.data.train],
        valid=[absolute(source) for source in job.data.valid],
        test=[absolute(source) for source in job.data.test],
    )
    tokenizer = job.tokenizer
    if tokenizer.path is not None:
        tokenizer = replace(tokenizer, path=str(Path(tokenizer.path).expanduser().resolve()))
    run_dir = str(Path(job.run_dir).expanduser().resolve())
    return replace(job, run_dir=run_dir, data=data, tokenizer=tokenizer)


@contextmanager
def _lock(run_dir: Path) -> Iterator[None]:
    """Keeps a second run out of the folder."""
    run_dir.mkdir(parents=True, exist_ok=True)
    lock = FileLock(run_dir / ".lock", timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise InputError(
            f"another mt-train is at work in {run_dir}: choose another run_dir, or stop it first"
        ) from None
    try:
        yield
    finally:
        lock.release()


@contextmanager
def _nothing() -> Iterator[None]:
    yield


def _refuse_other_run(run_dir: Path, job: TrainJob) -> None:
    """Never mixes two runs in one folder.

    Raises:
        InputError: The folder holds something else than an earlier part of this run.
    """
    if not (run_dir / ckpt.CONFIG).exists():
        for name in (ckpt.WEIGHTS, ckpt.TOKENIZER, "checkpoints", "metrics.jsonl", _SCORES):
            if (run_dir / name).exists():
                raise InputError(
                    f"{run_dir} holds a {name} but no {ckpt.CONFIG}: it is no run of mt-train; "
                    "choose another run_dir"
                )
        return
    old, new = _flat(asdict(ckpt.read_config(run_dir))), _flat(asdict(job))
    differ = [
        key
        for key in sorted(old.keys() | new.keys())
        if old.get(key) != new.get(key) and not key.startswith(_MAY_CHANGE)
    ]
    if differ:
        shown = ", ".join(f"{key} was {old.get(key)}, now {new.get(key)}" for key in differ[:3])
        more = f" and {len(differ) - 3} more" if len(differ) > 3 else ""
        raise InputError(
            f"{run_dir} was begun with another configuration ({shown}{more}): choose another "
            "run_dir, or delete that folder"
        )


def _flat(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat


def _open_run(run_dir: Path, job: TrainJob, data: Prepared) -> None:
    """Writes what the folder begins with; scores of an earlier end are no longer the model's."""
    (run_dir / _SCORES).unlink(missing_ok=True)
    ckpt.write_config(run_dir, job)
    with ckpt.atomic(run_dir / ckpt.TOKENIZER) as temporary:
        shutil.copyfile(data.tokenizer_model, temporary)
    (run_dir / "data").mkdir(exist_ok=True)
    ckpt.write_text(run_dir / "data" / "cleaning.json", data.cleaning)


def _log_to(run_dir: Path) -> None:
    """Log lines go to stderr and, with the time, to ``train.log``."""
    run_dir.mkdir(parents=True, exist_ok=True)
    screen, file = logging.StreamHandler(sys.stderr), logging.FileHandler(run_dir / "train.log")
    screen.setFormatter(logging.Formatter("%(message)s"))
    file.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    package = logging.getLogger("transformer_mt")
    package.handlers = [screen, file]
    package.setLevel(logging.INFO)
    package.propagate = False


if __name__ == "__main__":
    main()
