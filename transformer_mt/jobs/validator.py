"""The validator of a training job: translates the validation set and computes all metrics."""

from collections.abc import Mapping, Sequence

import numpy as np

from transformer_mt.config import TrainJob
from transformer_mt.data.subwords.tokenizer import BOS, EOS, Tokenizer
from transformer_mt.data.text.normalization import Normalizer
from transformer_mt.data.text.sources import Pair
from transformer_mt.decode.engines.torch_engine import TorchEngine
from transformer_mt.decode.translator import Translator, translate_sharded
from transformer_mt.distributed import World
from transformer_mt.evaluation.validation_metrics import VALIDATION_METRICS
from transformer_mt.model.attention_maps import attention_maps
from transformer_mt.model.transformer import Transformer
from transformer_mt.training.validation import (
    AttentionSample,
    TranslationSample,
    ValidationResult,
)

_NUM_SAMPLES = 5
_MAX_MAP_TOKENS = 48
"""Maximum number of tokens of a side in an attention map."""


class TranslationValidator:
    """Translates and scores the validation set; every rank calls it.

    Args:
        job: Configuration.
        tokenizer: The model's vocabulary.
        pairs: The validation set.
        world: Ranks, each of which translates a share.
    """

    def __init__(self, job: TrainJob, tokenizer: Tokenizer, pairs: Sequence[Pair], world: World):
        self._job, self._tokenizer, self._world = job, tokenizer, world
        self._normalizer = Normalizer.of(job.data)
        self._sources, self._references = [p.src for p in pairs], [p.tgt for p in pairs]
        # Evenly spaced lines, the same at every validation.
        places = np.linspace(0, len(pairs) - 1, _NUM_SAMPLES).astype(int)
        self._sample_lines: list[int] = np.unique(places).tolist()

    @property
    def higher_is_better(self) -> Mapping[str, bool]:
        """Direction of each metric."""
        return {name: metric.higher_is_better for name, metric in VALIDATION_METRICS.items()}

    def __call__(self, model: Transformer) -> ValidationResult:
        """Metrics of a model in ``eval`` mode; samples and attention on the main rank only."""
        decode = self._job.decode
        engine = TorchEngine(model, decode)
        translator = Translator(engine, self._tokenizer, self._normalizer, decode)
        hypotheses = translate_sharded(translator, self._sources, self._world)
        data, references = self._job.data, [self._references]
        metrics = {
            name: metric.function(hypotheses, references, data.tgt_lang, data.normalization)
            for name, metric in VALIDATION_METRICS.items()
        }
        if not self._world.is_main:
            return ValidationResult(metrics)
        samples = [
            TranslationSample(self._sources[i], self._references[i], hypotheses[i])
            for i in self._sample_lines
        ]
        return ValidationResult(metrics, samples, self._attention(model, samples))

    def _attention(
        self, model: Transformer, samples: Sequence[TranslationSample]
    ) -> AttentionSample | None:
        """Attention weights of the longest sample that fits an attention map, if any does."""
        max_tokens = _MAX_MAP_TOKENS
        if model.config.positions == "learned":
            max_tokens = min(max_tokens, model.config.max_positions)
        lines = [self._normalizer.src(sample.source) for sample in samples]
        sources = [[*ids, EOS] for ids in self._tokenizer.encode(lines)]
        fitting = [i for i, ids in enumerate(sources) if len(ids) <= max_tokens]
        if not fitting:
            return None
        chosen = max(fitting, key=lambda i: len(sources[i]))
        (target,) = self._tokenizer.encode([self._normalizer.tgt(samples[chosen].translation)])
        # Later tokens never change earlier attention weights: the translation may be truncated.
        src, tgt_in = sources[chosen], [BOS, *target][:max_tokens]
        pieces = self._tokenizer.pieces
        return AttentionSample(attention_maps(model, src, tgt_in), pieces(src), pieces(tgt_in))
