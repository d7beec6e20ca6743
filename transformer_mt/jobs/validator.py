"""The validator of a training job: translates the validation set and computes all metrics."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from transformer_mt.config import TrainJob
from transformer_mt.data.data_diagnostics import evenly_spaced
from transformer_mt.data.subwords.tokenizer import Tokenizer
from transformer_mt.data.text.sources import Pair
from transformer_mt.decode.translator import Translator, translate_sharded
from transformer_mt.distributed.world import World
from transformer_mt.evaluation.comparison import ScoreSettings, TestSet, evaluate_systems
from transformer_mt.model.transformer import Transformer
from transformer_mt.registries import VALIDATION_METRICS
from transformer_mt.training.validation import ValidationResult

_NUM_SAMPLES = 5


@dataclass(frozen=True)
class TranslationValidator:
    """Translates and scores the validation set; every rank calls it."""

    job: TrainJob
    tokenizer: Tokenizer
    pairs: Sequence[Pair]
    """The validation set."""
    world: World

    def __call__(self, model: Transformer) -> ValidationResult:
        """Metrics of a model in ``eval`` mode; samples on the main rank only."""
        translator = Translator.of_model(model, self.tokenizer, self.job)
        hypotheses = translate_sharded(translator, [pair.src for pair in self.pairs], self.world)
        metrics = self._score(hypotheses)
        if not self.world.is_main:
            return ValidationResult(metrics)
        lines = evenly_spaced(len(self.pairs), _NUM_SAMPLES)
        samples = [(self.pairs[i].src, self.pairs[i].tgt, hypotheses[i]) for i in lines]
        return ValidationResult(metrics, samples)

    def _score(self, hypotheses: Sequence[str]) -> dict[str, float]:
        """All metrics, averaged over the tags."""
        languages = self.job.data.tags
        test = TestSet.of_pairs(self.pairs, "data.valid", self.tokenizer.tags, languages)
        settings = ScoreSettings(metrics=list(VALIDATION_METRICS), tgt_lang=self.job.data.tgt_lang)
        (system,) = evaluate_systems({"the model": hypotheses}, test, settings).systems
        scores = [score.score for score in system.scores]  # tag by tag
        return {
            name: fmean(scores[i :: len(settings.names)]) for i, name in enumerate(settings.names)
        }
