"""Training (``mt-train``), in the order of a run: prepare, train, average, score, describe."""

import gc
import logging
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import torch

from transformer_mt.config import TrainJob
from transformer_mt.console import log_to
from transformer_mt.data import data_diagnostics
from transformer_mt.data.cleaning.cleaner import report_table
from transformer_mt.data.prepare import Prepared, prepare
from transformer_mt.data.store.encode import REPORT
from transformer_mt.data.text.tags import UNTAGGED, tag_names, untagged
from transformer_mt.distributed import current_rank, is_launched
from transformer_mt.distributed.torchrun import record, torchrun
from transformer_mt.distributed.world import World, join, pick_device, warn_about_gpu
from transformer_mt.errors import InputError
from transformer_mt.evaluation import metrics
from transformer_mt.evaluation.score_diagnostics import is_unspaced
from transformer_mt.evaluation.scores import Score, to_json
from transformer_mt.files import write_text
from transformer_mt.jobs import resume, run_folder, training_scores
from transformer_mt.jobs.corpus_size import size_warning
from transformer_mt.jobs.model_card import write_model_card
from transformer_mt.jobs.resolved_job import resolved
from transformer_mt.jobs.resume import RecordedRun
from transformer_mt.kernels import hardware
from transformer_mt.run_layout import LOG, TEST_SCORES
from transformer_mt.training.interruptions import StoppedError
from transformer_mt.training.trackers import Trackers, check_installed
from transformer_mt.training.trainer import Trainer

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainResult:
    """Outcome of a training job."""

    run_dir: Path
    """Folder of the run, which is also the model folder."""
    scores: list[Score] | None = None
    """Scores of the test set, on the main rank; None if there is no test set."""
    prepared: Mapping[str, Path] = field(default_factory=dict)
    """With ``stage=prepare``: the vocabulary, the corpus and the cleaning report in the cache."""


def train(job: TrainJob) -> TrainResult:
    """Trains a model, or resumes training it, in this process: one of several under torchrun.

    ``torchrun --nproc-per-node=N SCRIPT`` calls it in N processes that train together.

    Args:
        job: The configuration, from ``compose()`` or built directly.

    Raises:
        InputError: The data, the settings or the environment are wrong; see the message.
        OSError: The run folder cannot be written.
        SystemExit: A signal stopped the training; a checkpoint was written first.
    """
    several = job.stage == "train" and (job.distributed.processes or 1) > 1
    if several and not is_launched():
        raise InputError("distributed.processes is for mt-train: start a script with torchrun")
    is_main = current_rank() == 0
    with _prepared(job) as (job, data, recorded):
        if is_main and recorded is None:
            log.info("%s", report_table(job.data.cleaning, data.report))
        run_dir = Path(job.run_dir)
        if job.stage == "prepare":
            prepared = {"vocabulary": data.tokenizer_model, "corpus": data.corpus}
            prepared["report"] = data.corpus / REPORT
            return TrainResult(run_dir, prepared=prepared if is_main else {})
        if is_main:
            warn_about_gpu(job.train.device)
        result = (record(_train_rank) if is_launched() else _train_rank)(job, data, recorded)
        assert result is not None  # record raises the errors that it reports
        return result


def train_by_torchrun(job: TrainJob, processes: int, command: Sequence[str]) -> None:
    """Prepares a run, so that mistakes are found here, and trains by torchrun.

    Args:
        job: The configuration.
        processes: Number of processes.
        command: What each of them runs: ``train`` with the same configuration.

    Raises:
        InputError: The data, the settings or the environment are wrong; see the message.
        SystemExit: A process failed, or a signal stopped the training.
    """
    with _prepared(job) as (job, _, _):
        pass  # rank 0 takes the lock of the folder, as under any torchrun
    torchrun(command, processes)


def num_processes(job: TrainJob) -> int:
    """Number of processes in which ``mt-train`` trains: this one only if torchrun started it."""
    if is_launched() or job.stage == "prepare":  # preparing needs no GPU
        return 1
    device = pick_device(job.train.device, "train.device")
    gpus = torch.cuda.device_count() if device.type == "cuda" else 0
    processes = job.distributed.processes or max(1, gpus)
    if gpus and processes > gpus:
        raise InputError(
            f"distributed.processes={processes}, but only {gpus} GPU(s) are visible: set it to "
            f"{gpus} or less, or set train.device=cpu"
        )
    return processes


@contextmanager
def _prepared(job: TrainJob) -> Iterator[tuple[TrainJob, Prepared, RecordedRun | None]]:
    """Checks a job and prepares its data; within the context its folder is locked.

    Yields:
        The resolved job, its data, and what the folder records, unless the run is new; only the
        main rank can be expected to see it.
    """
    job, is_main, recorded = resolved(job), current_rank() == 0, None
    run_dir = Path(job.run_dir)
    with ExitStack() as stack:
        if is_main and job.stage == "train":
            check_installed(job.trackers)
            stack.enter_context(run_folder.lock(run_dir))
            recorded = resume.check(run_dir, job)
        if recorded is None:
            for _, tgt_lang in (job.data.languages(), *job.data.tags.values()):
                metrics.make_metric("bleu", tgt_lang)  # its tokeniser may not be installed
        if is_main:
            stack.enter_context(log_to(run_dir / LOG))
        data = prepare(job)
        if recorded is not None:
            recorded.check_data(job, data)
        yield job, data, recorded


def _train_rank(job: TrainJob, data: Prepared, recorded: RecordedRun | None) -> TrainResult:
    """Trains as one of the ranks."""
    run_dir, device = Path(job.run_dir), pick_device(job.train.device, "train.device")
    with join(device) as world:
        _check_data(job, data, world)
        validator = partial(training_scores.validate, job, data, world)
        trainer = Trainer(job, data, validator, world)
        state = trainer.state
        changed = recorded.changed_updates(job) if recorded else ""
        if trainer.finished:
            if world.broadcast_object(changed):
                raise InputError(
                    f"{run_dir} is finished ({trainer.finished}): changed training settings have "
                    f"no effect ({changed}); choose a different run_dir, or raise that limit"
                )
            scores = recorded.current_scores(job, data) if recorded else None
            if world.broadcast_object(scores is not None):
                advice = f"{trainer.finished}; raise that limit to continue training"
                log.info("%s is finished: nothing to do (%s)", run_dir, advice)
                del trainer  # DDP would end the process group without releasing Python's lock,
                gc.collect()  # which the threads of the group need to end
                return TrainResult(run_dir, scores if data.test else None)
        parameters = sum(map(torch.numel, trainer.model.parameters()))
        if world.is_main:
            if state.step == 0:
                _warn_about_data(job, data, parameters)
            run_folder.write_start(run_dir, job, data)
        starts = run_folder.record_start(run_dir, world, parameters, state.step, trainer.precision)
        if world.is_main:
            _log_start(job, data, trainer, parameters, world, changed)
        with Trackers(job if world.is_main else None, state.step) as trackers:
            try:
                model = trainer.run(trackers)
            except StoppedError as stopped:
                if world.is_main:
                    log.info("Stopped. Run the same command to resume.")
                raise SystemExit(128 + stopped.signal) from None
            if world.is_main:
                log.info("the model is in %s", run_dir)
            model_steps = trainer.checkpoints.model_steps
            del trainer  # frees the training state
            gc.collect()  # which may have cycles
            hardware.release_freed_memory()
            with torch.compiler.set_stance("force_eager"):  # batches of any shape
                scores = training_scores.test_scores(job, data, world, model)
            if not world.is_main:
                return TrainResult(run_dir)
            end = run_folder.record_end(run_dir, starts, state, model_steps, job.train.best_by)
            write_model_card(job, data.report, starts, end, scores)
            # Last: the run is finished. There are none without a test set.
            write_text(run_dir / TEST_SCORES, to_json(scores) + "\n")
            log.info("finished; to translate: %s", _next_command(job))
            if scores:
                trackers.log_scalars("test", state.step, {s.label: s.score for s in scores})
        return TrainResult(run_dir, scores if data.test else None)


def _check_data(job: TrainJob, data: Prepared, world: World) -> None:
    """Raises ``InputError`` unless all ranks have the same data, and the model positions for it."""
    gathered = world.gather(data.fingerprints)
    if gathered.count(gathered[0]) < len(gathered):
        raise InputError(
            "the ranks have different data: look for a node whose data files or cache "
            f"({job.cache_dir}) differ"
        )
    if job.model.positions == "learned":  # the config guarantees that training pairs fit
        lengths = np.maximum(data.valid_store.src.lengths, data.valid_store.tgt.lengths)
        if lengths.max() > job.model.max_positions:
            raise InputError(
                f"validation pair {lengths.argmax() + 1} has {lengths.max()} tokens, but "
                f"model.max_positions={job.model.max_positions}: increase it"
            )


def _log_start(
    job: TrainJob, data: Prepared, trainer: Trainer, parameters: int, world: World, changed: str
) -> None:
    """Logs the sizes of model and run, and what training starts from."""
    batches, max_steps = trainer.batches, job.train.max_steps
    sizes, own = data.train.source_sizes, len(job.data.train)
    pairs, phrases = sizes[:, :own].sum(), sizes[:, own:].sum()
    layers = f"{job.model.num_encoder_layers} + {job.model.num_decoder_layers} layers"
    text = "model: %s parameters, %s, d_model %d, vocabulary %s"
    log.info(text, f"{parameters:,}", layers, job.model.d_model, f"{trainer.model.vocab_size:,}")
    log.info(
        "training: %s pairs%s, %s updates per epoch, %s in total, on %d × %s, in %s%s",
        f"{pairs:,}",
        f" and {phrases:,} of phrases" if phrases else "",
        f"{batches.plan.steps_per_epoch:,}",
        f"{max_steps:,}",
        world.size,
        "CPU" if world.device.type == "cpu" else "GPU",
        trainer.precision,
        ", compiled" if batches.buffer_shape else "",
    )
    if max_steps < job.schedule.warmup_steps:
        log.warning(
            "warning: the run ends after %s updates, in its warm-up of %s, so the learning rate "
            "does not reach its peak: lower schedule.warmup_steps, or raise the limit of the run",
            f"{max_steps:,}",
            f"{job.schedule.warmup_steps:,}",
        )
    if trainer.state.step:
        now = f"; {changed}" if changed else ""
        log.info("resuming after update %s%s", f"{trainer.state.step:,}", now)
    elif job.train.init_from:
        log.info("starting from the weights of %s (%s)", job.train.init_from, layers)


def _warn_about_data(job: TrainJob, data: Prepared, parameters: int) -> None:
    """Logs what is suspicious about the data, and about a model that is large for them."""
    stores = data.train.sample, data.valid_store
    warnings = [*data_diagnostics.diagnose(*stores, data.tokenizer)]
    references = [[pair.tgt for pair in data.valid]]
    if job.train.best_by == "bleu" and is_unspaced(references, job.data.tgt_lang):
        warnings.append(
            "the validation set has no spaces between words, which BLEU relies on: set "
            "train.best_by=chrf, or data.tgt_lang=zh or ja if it is in Chinese or Japanese"
        )
    for part, pairs in {"valid": data.valid, "test": data.test}.items():
        tags = data.tokenizer.tags
        if lines := untagged((pair.src for pair in pairs), job.data, tags):
            warnings.append(f"data.{part}: {len(lines):,} {UNTAGGED.format(tags=tag_names(tags))}")
    sentences = int(data.train.source_sizes[:, : len(job.data.train)].sum())
    if not job.train.init_from and (text := size_warning(sentences, parameters)):
        warnings.append(text)
    for message in warnings:
        log.warning("warning: %s", message)


def _next_command(job: TrainJob) -> str:
    """What to type once a run is finished."""
    tags = job.data.tags if job.data.needs_tag else {}
    tag, (src, tgt) = next(iter(tags.items()), ("", job.data.languages()))
    arguments = [f"model={job.run_dir}", *([f"tag={tag}"] if tag else [])]
    return f"mt-translate {shlex.join(arguments)} < in.{src} > out.{tgt}"
