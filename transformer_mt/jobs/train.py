"""Train a model: prepare the data, train, average checkpoints, and score the test set."""

import gc
import logging
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch

from transformer_mt import checkpoint as ckpt
from transformer_mt import distributed, files, model_folder, run_layout
from transformer_mt.config import TrainJob
from transformer_mt.data import data_diagnostics
from transformer_mt.data.prepare import REPORT, Prepared, existing_vocabulary, prepare
from transformer_mt.data.store.token_store import TokenStore
from transformer_mt.data.subwords.tokenizer import Tokenizer
from transformer_mt.decode.translator import Translator, translate_sharded
from transformer_mt.distributed import World
from transformer_mt.errors import InputError
from transformer_mt.evaluation import metrics, score_diagnostics
from transformer_mt.evaluation.scores import Score, read_scores, score, to_json
from transformer_mt.jobs import resume, run_folder
from transformer_mt.jobs.fine_tuning import with_initial_vocabulary
from transformer_mt.jobs.model_card import write_model_card
from transformer_mt.jobs.provenance import record_start, recorded_kernels
from transformer_mt.jobs.validator import TranslationValidator
from transformer_mt.kernels import hardware
from transformer_mt.model.transformer import Transformer
from transformer_mt.training.components import TrainingData
from transformer_mt.training.signals import StoppedError
from transformer_mt.training.trackers import check_installed, open_trackers
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
    """Train a model, or resume training it, in as many processes as the job asks for.

    With several processes and no launcher such as torchrun, this starts the workers; in a script,
    call it under ``if __name__ == "__main__"`` then.

    Args:
        job: The configuration, from ``compose()`` or built directly.

    Raises:
        InputError: The data, the settings or the environment are wrong; see the message.
        SystemExit: A signal stopped the training; a checkpoint was written first.
    """
    distributed.set_ranks_from_slurm()
    is_main = distributed.env_rank() == 0
    with distributed.propagate_errors(), ExitStack() as stack:
        job = _with_vocab_size(with_initial_vocabulary(run_folder.with_absolute_paths(job)))
        run_dir = Path(job.run_dir)
        if job.stage == "train":  # preparing alone needs no GPU
            num_processes = _num_processes(job)
            metrics.check_language(job.data.tgt_lang)
            if is_main:
                check_installed(job.trackers)
                stack.enter_context(run_folder.lock(run_dir))
                resume.check_config(run_dir, job)
        if is_main:
            stack.enter_context(run_folder.logging_to(run_dir))
        data = prepare(job)
        if is_main:
            log.info("%s", data.report.to_table())
        if job.stage == "prepare":
            report = data.corpus / REPORT
            prepared = {"vocabulary": data.tokenizer_model, "corpus": data.corpus, "report": report}
            return TrainResult(run_dir, prepared=prepared if is_main else {})
        if num_processes == 1:
            return TrainResult(run_dir, _train_rank(job, data))
        distributed.launch(
            _train_rank,
            (job, data),
            num_processes,
            restarts=job.distributed.restarts,
            progress=lambda: ckpt.steps(run_dir)[-1:],
        )
        scores = read_scores(run_dir / run_layout.TEST_SCORES) if data.test else None
        return TrainResult(run_dir, scores)


def _with_vocab_size(job: TrainJob) -> TrainJob:
    """The job with the size of the vocabulary that ``tokenizer.path`` names."""
    vocabulary = existing_vocabulary(job)
    if vocabulary is None or not vocabulary.exists():
        return job
    size = Tokenizer(vocabulary).vocab_size
    return replace(job, tokenizer=replace(job.tokenizer, vocab_size=size))


def _num_processes(job: TrainJob) -> int:
    """Number of processes to start; 1 under a launcher, which has started the others."""
    device = distributed.pick_device(job.train.device, "train.device")
    if distributed.under_launcher():
        return 1
    gpus = torch.cuda.device_count() if device.type == "cuda" else 0
    processes = job.distributed.processes or max(1, gpus)
    if gpus and processes > gpus:
        raise InputError(f"distributed.processes={processes}, but only {gpus} GPU(s) are visible")
    return processes


def _train_rank(job: TrainJob, data: Prepared) -> list[Score] | None:
    """Train as one of the ranks, in this process or a worker; the main rank returns the scores."""
    device = distributed.pick_device(job.train.device, "train.device")
    with ExitStack() as stack:
        if distributed.env_rank() == 0:
            stack.enter_context(run_folder.logging_to(Path(job.run_dir)))  # a worker has no log yet
        world = stack.enter_context(distributed.join(device, job.distributed))
        gathered = world.gather(data.fingerprints)
        if any(fingerprints != gathered[0] for fingerprints in gathered):
            raise InputError(
                "the ranks have different data: look for a node whose data files or cache "
                f"({job.cache_dir}) differ"
            )
        return _train_and_score(job, data, world)


def _train_and_score(job: TrainJob, data: Prepared, world: World) -> list[Score] | None:
    """Train a model and score the test set, as far as an earlier run has not done so."""
    run_dir, tokenizer = Path(job.run_dir), Tokenizer(data.tokenizer_model)
    _check_positions(job, data.valid_store)
    trainer = Trainer(
        job,
        TrainingData(data.train, data.valid_store, tokenizer.vocab_size, data.segmentation),
        TranslationValidator(job, tokenizer, data.valid, world),
        world,
        recorded_kernels=recorded_kernels(run_dir) if world.is_main else None,
    )
    if world.is_main:
        resume.check_data(run_dir, data)
    # Only the main rank can be expected to see the folder.
    if world.broadcast_object(
        trainer.is_finished and resume.scores_are_current(run_dir, job, data)
    ):
        return _finished_scores(job, data) if world.is_main else None
    if world.is_main:
        resume.check_weights(run_dir, trainer.steps_done)
        if (changed := resume.changed_decoding(run_dir, job)) and not trainer.is_finished:
            log.warning("warning: scores of earlier validations used other settings: %s", changed)
        run_folder.write_start(run_dir, job, data)
        _warn_about_data(job, data)
    parameters = sum(p.numel() for p in trainer.model.parameters())
    record_start(run_dir, world, parameters, trainer.steps_done, trainer.kernels)
    with open_trackers(job if world.is_main else None, trainer.steps_done) as trackers:
        try:
            model = trainer.run(trackers)
        except StoppedError as stopped:
            if world.is_main:
                log.info("Stopped. Run the same command to resume.")
            raise SystemExit(128 + stopped.signal) from None
        if world.is_main:
            log.info("the model is in %s", run_dir)
        steps_done = trainer.steps_done
        del trainer  # frees the training state
        gc.collect()  # which may have cycles
        hardware.release_freed_memory()
        scores = _test(job, data, model, tokenizer, world)
        if scores:
            trackers.log_scalars("test", steps_done, {item.name: item.score for item in scores})
    return scores if data.test else None


def _test(
    job: TrainJob, data: Prepared, model: Transformer, tokenizer: Tokenizer, world: World
) -> list[Score] | None:
    """Translate and score the test set, if there is one; the main rank returns the scores."""
    hypotheses: list[str] = []
    if data.test:
        translator = Translator.of_model(model, tokenizer, job)
        hypotheses = translate_sharded(translator, [pair.src for pair in data.test], world)
    if not world.is_main:
        return None
    scores = _score(job, data, hypotheses) if data.test else []
    # Without scores as well: the file marks the run as finished.
    files.write_text(Path(job.run_dir) / run_layout.TEST_SCORES, to_json(scores) + "\n")
    write_model_card(Path(job.run_dir))
    return scores


def _finished_scores(job: TrainJob, data: Prepared) -> list[Score] | None:
    """The scores of a finished run; writes its model card if that is missing or has changed."""
    run_dir = Path(job.run_dir)
    changed = model_folder.read_config(run_dir).card != job.card
    if changed:
        model_folder.write_config(run_dir, job, run_dir / run_layout.TOKENIZER)
    if changed or not (run_dir / run_layout.MODEL_CARD).exists():
        write_model_card(run_dir)
    log.info("%s is finished: nothing to do (to train on, raise train.max_steps)", run_dir)
    return read_scores(run_dir / run_layout.TEST_SCORES) if data.test else None


def _warn_about_data(job: TrainJob, data: Prepared) -> None:
    for message in data_diagnostics.diagnose(data.train.sample, data.valid_store, data.valid):
        log.warning("warning: %s", message)
    references = [[pair.tgt for pair in data.valid]]
    unspaced = any(score_diagnostics.unspaced(references, job.data.tgt_lang))
    if unspaced and job.train.best_by == "bleu":
        log.warning(
            "warning: the validation set has no spaces between words, which BLEU relies on: set "
            "train.best_by=chrf, or correct data.tgt_lang"
        )


def _score(job: TrainJob, data: Prepared, hypotheses: Sequence[str]) -> list[Score]:
    """Score the test set, and warn about suspicious scores."""
    sources, references = [pair.src for pair in data.test], [[pair.tgt for pair in data.test]]
    tgt_lang = job.data.tgt_lang
    for message in score_diagnostics.diagnose(hypotheses, references, sources, tgt_lang=tgt_lang):
        log.warning("warning: test set: %s", message)
    protocols = metrics.default_protocols(tgt_lang, job.data.normalization)
    names = [*metrics.DEFAULT, *protocols]
    return score(hypotheses, references, tgt_lang=tgt_lang, metrics=names, workers=None)


def _check_positions(job: TrainJob, valid: TokenStore) -> None:
    """Raise ``InputError`` if a validation pair exceeds the model's learned positions."""
    if job.model.positions != "learned":  # the config guarantees that training pairs fit
        return
    lengths = np.maximum(valid.src.lengths, valid.tgt.lengths)
    if lengths.max() > job.model.max_positions:
        raise InputError(
            f"validation pair {lengths.argmax() + 1} has {lengths.max()} tokens, but "
            f"model.max_positions={job.model.max_positions}: increase it"
        )
