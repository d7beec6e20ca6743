"""The validator of a training job: translates the validation set and computes all metrics."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
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
from transformer_mt.evaluation.score_diagnostics import is_unspaced
from transformer_mt.evaluation.scores import compute_score
from transformer_mt.model.transformer import Transformer
from transformer_mt.registries import VALIDATION_METRICS
from transformer_mt.training.validation import ValidationResult

_NUM_SAMPLES = 5
_NUM_PROBED = 100
"""Lines that tell whether the model can translate at all."""
_USABLE_BLEU = 1.0
"""BLEU on them from which on all lines are translated. A model that repeats itself stays below it;
one that translates anything is above it."""


@dataclass(frozen=True)
class TranslationValidator:
    """Translates and scores the validation set; every rank calls it.

    In its first updates a model rarely ends a translation before the maximum length, which makes
    such a validation the slowest of all, for a score near 0. So evenly spaced lines are translated
    first, and the others only if BLEU on these reaches ``_USABLE_BLEU``; below it their score is
    the result. This decision depends on the model alone: a resumed run repeats it.
    """

    job: TrainJob
    tokenizer: Tokenizer
    pairs: Sequence[Pair]
    """The validation set."""
    world: World

    @cached_property
    def _probed_lines(self) -> list[int]:
        """Lines to translate first, the same at every validation; all if they are few."""
        # Without spaces between words BLEU is 0 for any model.
        references = [pair.tgt for pair in self.pairs]
        unspaced = is_unspaced([references], self.job.data.tgt_lang)
        return evenly_spaced(len(self.pairs), len(self.pairs) if unspaced else _NUM_PROBED)

    def __call__(self, model: Transformer) -> ValidationResult:
        """Metrics of a model in ``eval`` mode; samples on the main rank only."""
        translator = Translator.of_model(model, self.tokenizer, self.job)
        hypotheses = self._translate(translator, self._probed_lines)
        metrics = self._score(hypotheses)
        rest = [i for i in range(len(self.pairs)) if i not in hypotheses]
        if rest and metrics["bleu"] >= _USABLE_BLEU:
            hypotheses |= self._translate(translator, rest)
            metrics = self._score(hypotheses)
        cuda_graphs.release_memory()  # training may need it
        if len(hypotheses) < len(self.pairs):
            metrics["lines"] = len(hypotheses)
        if not self.world.is_main:
            return ValidationResult(metrics)
        samples = []
        for number in evenly_spaced(len(self._probed_lines), _NUM_SAMPLES):
            i = self._probed_lines[number]
            samples.append((self.pairs[i].src, self.pairs[i].tgt, hypotheses[i]))
        return ValidationResult(metrics, samples)

    def _translate(self, translator: Translator, lines: Sequence[int]) -> dict[int, str]:
        """The translations of some lines, by all ranks together."""
        sources = [self.pairs[i].src for i in lines]
        return dict(zip(lines, translate_sharded(translator, sources, self.world), strict=True))

    def _score(self, hypotheses: Mapping[int, str]) -> dict[str, float]:
        """All metrics of the translated lines, averaged over their tags."""
        lines, normalizer = sorted(hypotheses), Normalizer.of(self.job.data)
        groups = lines_by_tag((self.pairs[i].src for i in lines), self.tokenizer.tags)

        def score(name: str, tag: str) -> float:
            own = [lines[i] for i in groups[tag]]
            texts, references = [hypotheses[i] for i in own], [[self.pairs[i].tgt for i in own]]
            language = normalizer.of_tag(tag).tgt_lang
            return compute_score(name, language, texts, references).score

        return {name: fmean(score(name, tag) for tag in groups) for name in VALIDATION_METRICS}
