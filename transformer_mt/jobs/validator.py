"""The validator of a training job: translates the validation set and computes all metrics."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from transformer_mt.config import TrainJob
from transformer_mt.data.data_diagnostics import evenly_spaced
from transformer_mt.data.subwords.tokenizer import Tokenizer
from transformer_mt.data.text.normalization import Normalizer
from transformer_mt.data.text.sources import Pair
from transformer_mt.data.text.tags import lines_by_tag
from transformer_mt.decode.search import cuda_graphs
from transformer_mt.decode.translator import Translator, translate_sharded
from transformer_mt.distributed.world import World
from transformer_mt.evaluation.scores import compute_score
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
        cuda_graphs.release_memory()  # training may need it
        metrics = self._score(hypotheses)
        if not self.world.is_main:
            return ValidationResult(metrics)
        lines = evenly_spaced(len(self.pairs), _NUM_SAMPLES)
        samples = [(self.pairs[i].src, self.pairs[i].tgt, hypotheses[i]) for i in lines]
        return ValidationResult(metrics, samples)

    def _score(self, hypotheses: Sequence[str]) -> dict[str, float]:
        """All metrics, averaged over the tags."""
        normalizer = Normalizer.of(self.job.data)
        groups = lines_by_tag((pair.src for pair in self.pairs), self.tokenizer.tags)

        def score(name: str, tag: str) -> float:
            texts = [hypotheses[i] for i in groups[tag]]
            references = [[self.pairs[i].tgt for i in groups[tag]]]
            language = normalizer.of_tag(tag).tgt_lang
            return compute_score(name, language, texts, references).score

        return {name: fmean(score(name, tag) for tag in groups) for name in VALIDATION_METRICS}
