"""``mt-train``: data, training, averaging, and the score of the test set."""

import logging
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from transformer_mt import checkpoint as ckpt
from transformer_mt import distributed, files, run_layout
from transformer_mt.config import TrainJob
from transformer_mt.data import data_diagnostics
from transformer_mt.data.prepare import REPORT, Prepared, encode_pairs, existing_vocabulary, prepare
from transformer_mt.data.store import cache
from transformer_mt.data.store.token_store import TokenStore, verify
from transformer_mt.data.subwords.tokenizer import Tokenizer
from transformer_mt.data.text.normalization import Normalizer
from transformer_mt.decode.engines.torch_engine import TorchEngine
from transformer_mt.decode.translator import Translator, translate_sharded
from transformer_mt.distributed import World
from transformer_mt.errors import InputError
from transformer_mt.evaluate import metrics
from transformer_mt.evaluate.score_diagnostics import diagnose, unspaced
from transformer_mt.jobs import resume as run_folder
from transformer_mt.jobs.fine_tuning import with_vocabulary_of_start
from transformer_mt.jobs.provenance import record_start
from transformer_mt.jobs.validation import Validation
from transformer_mt.train.signals import StoppedError
from transformer_mt.train.trackers import log_final_scores
from transformer_mt.train.trainer import Trainer

log = logging.getLogger(__name__)


def run(job: TrainJob) -> None:
    """Trains, or goes on training, the model of a job, in as many processes as it asks for."""
    distributed.set_ranks_from_slurm()
    with distributed.propagate_errors():
        _run(
            _with_size_of_vocabulary(with_vocabulary_of_start(run_folder.with_absolute_paths(job)))
        )


def _with_size_of_vocabulary(job: TrainJob) -> TrainJob:
    """The job with the number of pieces of the vocabulary that ``tokenizer.path`` names."""
    vocabulary = existing_vocabulary(job)
    if vocabulary is None or not vocabulary.exists():
        return job
    size = Tokenizer(vocabulary).vocab_size
    return replace(job, tokenizer=replace(job.tokenizer, vocab_size=size))


def _run(job: TrainJob) -> None:
    if job.stage == "prepare":
        _prepare_only(job)
        return
    run_dir = Path(job.run_dir)
    device = distributed.pick_device(job.train.device, "train.device")
    metrics.check_language(job.data.tgt_lang)
    if distributed.under_launcher():
        with run_folder.lock(run_dir) if distributed.env_rank() == 0 else nullcontext():
            _work(job)
        return
    gpus = torch.cuda.device_count() if device.type == "cuda" else 0
    processes = job.distributed.processes or max(1, gpus)
    if gpus and processes > gpus:
        raise InputError(f"distributed.processes={processes}, but only {gpus} GPU(s) are visible")
    with run_folder.lock(run_dir):
        if processes == 1:
            _work(job)
            return
        run_folder.refuse_other_run(run_dir, job)
        run_folder.log_to(run_dir)
        prepare(job)  # once, and at leisure
        distributed.launch(
            _work,
            (job,),
            processes,
            restarts=job.distributed.restarts,
            progress=lambda: ckpt.steps(run_dir)[-1:],
        )


def _prepare_only(job: TrainJob) -> None:
    """Fills the cache. Any machine can: no GPU is asked for."""
    main = distributed.env_rank() == 0
    if main:
        run_folder.log_to(Path(job.run_dir))
    data = prepare(job)
    if main:
        log.info("%s", data.report.to_table())
        places = {
            "vocabulary": data.tokenizer_model,
            "corpus": data.corpus,
            "report": data.corpus / REPORT,
        }
        for name, path in places.items():
            print(name, path, sep="\t")


def _work(job: TrainJob) -> None:
    """What every rank does."""
    run_dir = Path(job.run_dir)
    if distributed.env_rank() == 0:
        run_folder.refuse_other_run(run_dir, job)
        run_folder.log_to(run_dir)
    data = prepare(job)
    if distributed.env_rank() == 0:
        log.info("%s", data.report.to_table())
    device = distributed.pick_device(job.train.device, "train.device")
    with distributed.join(device, job.distributed) as world:
        identity = (data.train.fingerprint, cache.key(data.valid, data.test))
        if len(set(world.gather(identity))) > 1:
            raise InputError(
                "the ranks have different data: look for a node whose files, or whose "
                f"cache ({job.cache_dir}), are not those of the others"
            )
        _train(run_dir, job, data, world)


def _train(run_dir: Path, job: TrainJob, data: Prepared, world: World) -> None:
    tokenizer, normalizer = Tokenizer(data.tokenizer_model), Normalizer.of(job.data)
    valid = encode_pairs(data.valid, tokenizer, normalizer)
    _check_positions(job, valid)
    validation = Validation(job, tokenizer, data.valid, world)
    trainer = Trainer(
        job, run_dir, data.train, data.epoch_stores, valid, tokenizer.vocab_size, validation, world
    )
    if world.is_main:
        verify(data.train, data.corpus)
        run_folder.refuse_other_data(run_dir, job, data)
    scores_file, weights = run_dir / run_layout.TEST_SCORES, run_dir / run_layout.WEIGHTS
    # Only the main rank need see the folder.
    if world.broadcast_object(trainer.is_finished and run_folder.scores_stand(run_dir, job, data)):
        if world.is_main:
            log.info("%s is finished: nothing to do (more updates: train.max_steps=…)", run_dir)
            if data.test:
                print(metrics.to_text(metrics.from_json(scores_file.read_text(encoding="utf-8"))))
        if data.epoch_stores:
            data.epoch_stores.remove()
        return
    if world.is_main:
        if trainer.done == 0 and weights.exists():
            raise InputError(
                f"{run_dir} holds a model, but no whole checkpoint to go on from: choose another "
                "run_dir, or delete that folder"
            )
        if (changed := run_folder.changed_search(run_dir, job)) and not trainer.is_finished:
            log.warning("warning: BLEU of the validations so far is of another search: %s", changed)
        run_folder.open_run(run_dir, job, data)
        for doubt in data_diagnostics.diagnose(data.train, valid, data.valid):
            log.warning("warning: %s", doubt)
        if job.train.best_by == "bleu" and any(
            unspaced([[pair.tgt for pair in data.valid]], job.data.tgt_lang)
        ):
            log.warning(
                "warning: the validation set has no spaces between words, which BLEU goes by: "
                "say train.best_by=nll, or the right data.tgt_lang"
            )
    parameters = sum(p.numel() for p in trainer.model.parameters())
    record_start(run_dir, world, parameters, trainer.done)
    try:
        model = trainer.run()
    except StoppedError as stopped:
        if world.is_main:
            log.info("stopped; the same command goes on from here")
        raise SystemExit(128 + stopped.signal) from None
    if world.is_main:
        log.info("the model is in %s", run_dir)
    if not data.test:
        if world.is_main:
            files.write_text(scores_file, "[]\n")  # all is done
        return
    engine = TorchEngine(model, job.decode)
    translator = Translator(engine, tokenizer, normalizer, job.decode)
    source, references = [pair.src for pair in data.test], [[pair.tgt for pair in data.test]]
    hypotheses = translate_sharded(translator, source, world)
    if world.is_main:
        scores = metrics.score_all(
            hypotheses,
            references,
            tgt_lang=job.data.tgt_lang,
            normalization=job.data.normalization,
        )
        for doubt in diagnose(hypotheses, references, source, tgt_lang=job.data.tgt_lang):
            log.warning("warning: of the test set, %s", doubt)
        files.write_text(scores_file, metrics.to_json(scores) + "\n")
        log_final_scores(run_dir, job, {item.name: item.score for item in scores}, trainer.done)
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
