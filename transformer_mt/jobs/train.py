"""Training (``mt-train``), in the order of a run: prepare, train, average, score, describe."""

import gc
import logging
from collections.abc import Mapping
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from transformer_mt.checkpoint import steps
from transformer_mt.config import TrainJob
from transformer_mt.data import data_diagnostics
from transformer_mt.data.cleaning.cleaner import CleaningReport
from transformer_mt.data.prepare import REPORT, Prepared, prepare
from transformer_mt.decode.translator import Translator, translate_sharded
from transformer_mt.distributed.environment import LauncherEnv
from transformer_mt.distributed.failures import propagate_errors
from transformer_mt.distributed.launcher import launch
from transformer_mt.distributed.world import World, join, pick_device, warn_about_gpu
from transformer_mt.errors import InputError
from transformer_mt.evaluation import metrics
from transformer_mt.evaluation.comparison import ScoreSettings, TestSet, evaluate_systems
from transformer_mt.evaluation.score_diagnostics import is_unspaced
from transformer_mt.evaluation.scores import Score, read_scores
from transformer_mt.jobs import resume, run_folder
from transformer_mt.jobs.corpus_size import size_warning
from transformer_mt.jobs.model_card import write_model_card
from transformer_mt.jobs.resolved_job import resolved
from transformer_mt.jobs.validator import TranslationValidator
from transformer_mt.kernels import hardware
from transformer_mt.model.transformer import Transformer
from transformer_mt.model_folder import read_config, write_config
from transformer_mt.progress_reporter import log_to
from transformer_mt.run_layout import LOG, MODEL_CARD, TEST_SCORES
from transformer_mt.training.interruptions import StoppedError
from transformer_mt.training.trackers import Trackers, check_installed
from transformer_mt.training.trainer import Trainer

log = logging.getLogger(__name__)

_RESTARTS = 3
"""Restarts of all workers in a row without a new checkpoint, when one was killed, hung or lost its
GPU: torchrun's usual number. More would repeat a failure that does not pass."""


@dataclass(frozen=True)
class TrainResult:
    """Outcome of a training job."""

    run_dir: Path
    """Folder of the run, which is also the model folder."""
    scores: list[Score] | None = None
    """Scores of the test set, on the main rank; None if there is no test set."""
    best: float | None = None
    """Best value of ``train.best_by``, on the main rank; None if nothing was trained."""
    prepared: Mapping[str, Path] = field(default_factory=dict)
    """With ``stage=prepare``: the vocabulary, the corpus and the cleaning report in the cache."""


def train(job: TrainJob) -> TrainResult:
    """Trains a model, or resumes training it, in as many processes as the job asks for.

    With several processes and no launcher such as torchrun, this starts the workers; in a script,
    call it under ``if __name__ == "__main__"`` then.

    Args:
        job: The configuration, from ``compose()`` or built directly.

    Raises:
        InputError: The data, the settings or the environment are wrong; see the message.
        SystemExit: A signal stopped the training; a checkpoint was written first.
    """
    launcher = LauncherEnv.read()
    is_main = launcher.rank == 0
    with ExitStack() as stack:
        if launcher.size > 1:
            stack.enter_context(propagate_errors(job.distributed.timeout_minutes))
        job = resolved(job)
        run_dir, is_new = Path(job.run_dir), True
        if job.stage == "train":  # preparing alone needs no GPU
            num_processes = _num_processes(job, launcher)
            if is_main:
                check_installed(job.trackers)
                stack.enter_context(run_folder.lock(run_dir))
                is_new = resume.check(run_dir, job) == "new"
        if is_new:
            for _, tgt_lang in (job.data.languages(None), *job.data.tags.values()):
                metrics.make_metric("bleu", tgt_lang)  # its tokeniser may not be installed
        if is_main:
            stack.enter_context(log_to(run_dir / LOG))
            warn_about_gpu(job.train.device)
        data = prepare(job)
        if is_main and is_new:
            report = CleaningReport(job.data.cleaning, data.report)
            log.info("%s", report.to_table())
        if job.stage == "prepare":
            prepared = {"vocabulary": data.tokenizer_model, "corpus": data.corpus}
            prepared["report"] = data.corpus / REPORT
            return TrainResult(run_dir, prepared=prepared if is_main else {})
        if num_processes == 1:
            scores = _train_rank(job, data)
            return TrainResult(run_dir, scores, run_folder.best_score(run_dir))
        launch(
            _train_worker,
            (job, data),
            num_processes,
            restarts=_RESTARTS,
            progress=lambda: steps(run_dir)[-1:],
            timeout_minutes=job.distributed.timeout_minutes,
        )
        scores = read_scores(run_dir / TEST_SCORES) if data.test else None
        return TrainResult(run_dir, scores, run_folder.best_score(run_dir))


def _num_processes(job: TrainJob, launcher: LauncherEnv) -> int:
    """Number of processes to start; 1 under a launcher, which has started the others."""
    device = pick_device(job.train.device, "train.device")
    if launcher.present:
        return 1
    gpus = torch.cuda.device_count() if device.type == "cuda" else 0
    processes = job.distributed.processes or max(1, gpus)
    if gpus and processes > gpus:
        raise InputError(
            f"distributed.processes={processes}, but only {gpus} GPU(s) are visible: set it to "
            f"{gpus} or less, or set train.device=cpu"
        )
    return processes


def _train_worker(job: TrainJob, data: Prepared) -> None:
    """``_train_rank`` in a process that ``launch`` has started, in which nothing is logged yet."""
    is_main = LauncherEnv.read().rank == 0
    with log_to(Path(job.run_dir) / LOG) if is_main else nullcontext():
        _train_rank(job, data)


def _train_rank(job: TrainJob, data: Prepared) -> list[Score] | None:
    """Trains as one of the ranks, in this process or a worker; the main rank returns the scores."""
    run_dir, device = Path(job.run_dir), pick_device(job.train.device, "train.device")
    with join(device, job.distributed) as world:
        _check_data(job, data, world)
        trainer = Trainer(
            job,
            data,
            TranslationValidator(job, data.tokenizer, data.valid, world),
            world,
        )
        state = None
        if world.is_main:  # the only one that can be expected to see the folder
            done, is_trained = trainer.state.step, trainer.is_finished
            state = resume.check(run_dir, job, data, steps_done=done, is_trained=is_trained)
        state = world.broadcast_object(state)
        if state == "finished":
            return _finished_scores(job, data, trainer) if world.is_main else None
        parameters = sum(map(torch.numel, trainer.model.parameters()))
        if world.is_main:
            run_folder.write_start(run_dir, job, data)
            if state == "new":
                _warn_about_data(job, data, parameters)
        run_folder.record_start(run_dir, world, parameters, trainer.state.step, trainer.precision)
        with Trackers(job if world.is_main else None, trainer.state.step) as record:
            try:
                model = trainer.run(record)
            except StoppedError as stopped:
                if world.is_main:
                    log.info("Stopped. Run the same command to resume.")
                raise SystemExit(128 + stopped.signal) from None
            if world.is_main:
                log.info("the model is in %s", run_dir)
            steps_done, model_steps = trainer.state.step, trainer.checkpoints.model_steps
            best = {
                "metric": job.train.best_by,
                "score": trainer.state.best,
                "step": trainer.state.best_step,
            }
            del trainer  # frees the training state
            gc.collect()  # which may have cycles
            hardware.release_freed_memory()
            scores = _test(job, data, model, world)
            if not world.is_main:
                return None
            run_folder.record_end(run_dir, model_steps, best, scores)
            write_model_card(run_dir, scores)
            if scores:
                record.log_scalars("test", steps_done, {s.label: s.score for s in scores})
        return scores if data.test else None


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


def _warn_about_data(job: TrainJob, data: Prepared, parameters: int) -> None:
    stores = data.train.sample, data.valid_store
    warnings = [*data_diagnostics.diagnose(*stores, data.valid, data.tokenizer)]
    references = [[pair.tgt for pair in data.valid]]
    if job.train.best_by == "bleu" and is_unspaced(references, job.data.tgt_lang):
        warnings.append(
            "the validation set has no spaces between words, which BLEU relies on: set "
            "train.best_by=chrf, or correct data.tgt_lang"
        )
    if not job.train.init_from and (text := size_warning(len(data.train), parameters)):
        warnings.append(text)
    for message in warnings:
        log.warning("warning: %s", message)


def _finished_scores(job: TrainJob, data: Prepared, trainer: Trainer) -> list[Score] | None:
    """The scores of a finished run; writes its model card if that is missing or has changed."""
    run_dir = Path(job.run_dir)
    scores = read_scores(run_dir / TEST_SCORES)
    changed = read_config(run_dir).card != job.card
    if changed:
        write_config(run_dir, job, run_dir)
    if changed or not (run_dir / MODEL_CARD).exists():
        write_model_card(run_dir, scores)
    criteria, advice = trainer.criteria, "raise that limit to continue training"
    if criteria.is_last_update(trainer.state) and job.schedule.name == "linear":
        advice = f"its schedule has ended; a new run can start from train.init_from={run_dir}"
    reason = criteria.reason(trainer.state)
    log.info("%s is finished: nothing to do (%s; %s)", run_dir, reason, advice)
    return scores if data.test else None


def _test(job: TrainJob, data: Prepared, model: Transformer, world: World) -> list[Score]:
    """Translates the test set on all ranks; returns its scores, on the main rank."""
    if not data.test:
        return []
    sources, references = [pair.src for pair in data.test], [pair.tgt for pair in data.test]
    translator = Translator.of_model(model, data.tokenizer, job)
    hypotheses = translate_sharded(translator, sources, world)
    if not world.is_main:
        return []
    test = TestSet(
        references={"data.test": references},
        source=sources,
        tags=data.tokenizer.tags,
        languages=job.data.tags,
    )
    settings = ScoreSettings(tgt_lang=job.data.tgt_lang)
    (system,) = evaluate_systems({"the model": hypotheses}, test, settings).systems
    for message in system.diagnostics:
        log.warning("warning: test set: %s", message)
    return system.scores
