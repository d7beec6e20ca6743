"""Scores of a model that is trained: of validations, and of the test set at the end."""

import logging
from collections.abc import Sequence
from statistics import fmean

from transformer_mt.config import TrainJob
from transformer_mt.data.data_diagnostics import evenly_spaced
from transformer_mt.data.prepare import Prepared
from transformer_mt.decode.translator import Translator, translate_sharded
from transformer_mt.distributed.world import World
from transformer_mt.evaluation.comparison import ScoreSettings, System, TestSet, evaluate_systems
from transformer_mt.evaluation.scores import Score
from transformer_mt.model.transformer import Transformer
from transformer_mt.protocols import Pair
from transformer_mt.registries import VALIDATION_METRICS
from transformer_mt.training.validation import ValidationResult

_NUM_SAMPLES = 5

log = logging.getLogger(__name__)


def validate(job: TrainJob, data: Prepared, world: World, model: Transformer) -> ValidationResult:
    """Translates and scores the validation set with a model in ``eval`` mode, on all ranks.

    The metrics are averaged over the tags. Samples are on the main rank only.
    """
    translator = Translator.of_model(model, data.tokenizer, job)
    hypotheses = translate_sharded(translator, [pair.src for pair in data.valid], world)
    names = list(VALIDATION_METRICS)
    system = _evaluate(job, data, "data.valid", data.valid, hypotheses, names)
    scores = [score.score for score in system.scores]  # tag by tag
    metrics = {name: fmean(scores[i :: len(names)]) for i, name in enumerate(names)}
    if not world.is_main:
        return ValidationResult(metrics)
    lines = evenly_spaced(len(data.valid), _NUM_SAMPLES)
    return ValidationResult(metrics, [(*data.valid[i], hypotheses[i]) for i in lines])


def test_scores(job: TrainJob, data: Prepared, world: World, model: Transformer) -> list[Score]:
    """Translates the test set on all ranks; returns its scores, on the main rank."""
    if not data.test:
        return []
    if world.size == 1:  # as mt-eval does, so that both print the same scores
        translator = Translator.load(job.run_dir, device=world.device.type)
    else:  # of which not all can be expected to see the folder
        translator = Translator.of_model(model, data.tokenizer, job)
    hypotheses = translate_sharded(translator, [pair.src for pair in data.test], world)
    if not world.is_main:
        return []
    system = _evaluate(job, data, "data.test", data.test, hypotheses)
    for message in system.diagnostics:
        log.warning("warning: test set: %s", message)
    return system.scores


def _evaluate(
    job: TrainJob,
    data: Prepared,
    name: str,
    pairs: Sequence[Pair],
    hypotheses: Sequence[str],
    metrics: Sequence[str] | None = None,
) -> System:
    test = TestSet(
        references={name: [pair.tgt for pair in pairs]},
        source=[pair.src for pair in pairs],
        tags=data.tokenizer.tags,
        languages=job.data.tags,
    )
    settings = ScoreSettings(metrics=metrics, tgt_lang=job.data.tgt_lang)
    (system,) = evaluate_systems({"the model": hypotheses}, test, settings).systems
    return system
