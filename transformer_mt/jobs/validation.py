"""Validation by translating: the BLEU of a model at work, and what a person looks at."""

from collections.abc import Sequence

import numpy as np

from transformer_mt.config import TrainJob
from transformer_mt.data.subwords.tokenizer import BOS, EOS, Tokenizer
from transformer_mt.data.text.normalization import Normalizer
from transformer_mt.data.text.sources import Pair
from transformer_mt.decode.engines.torch_engine import TorchEngine
from transformer_mt.decode.translator import Translator, translate_sharded
from transformer_mt.distributed import World
from transformer_mt.evaluate import metrics
from transformer_mt.model.attention_maps import attention_maps
from transformer_mt.model.transformer import Transformer
from transformer_mt.train.monitor import Shown

_SAMPLES = 5
_MAP_TOKENS = 48
"""Most tokens of a side in a picture of attention."""


class Validation:
    """Translates and scores the validation set; call it on every rank.

    Args:
        job: The configuration.
        tokenizer: The model's vocabulary.
        pairs: The validation set.
        world: The ranks, which translate a share each.
    """

    def __init__(self, job: TrainJob, tokenizer: Tokenizer, pairs: Sequence[Pair], world: World):
        self._job, self._tokenizer, self._world = job, tokenizer, world
        self._normalizer = Normalizer.of(job.data)
        self._src, self._references = [p.src for p in pairs], [p.tgt for p in pairs]
        # From all over the set, at every validation the same ones.
        self._samples = np.unique(np.linspace(0, len(pairs) - 1, _SAMPLES).astype(int)).tolist()

    def __call__(self, model: Transformer) -> tuple[float, Shown | None]:
        """BLEU of a model in ``eval`` mode and, on the main rank, some of what it wrote.

        The BLEU is ``metrics.validation_bleu``.
        """
        decode = self._job.decode
        engine = TorchEngine(model, decode)
        translator = Translator(engine, self._tokenizer, self._normalizer, decode)
        hypotheses = translate_sharded(translator, self._src, self._world)
        data = self._job.data
        score = metrics.validation_bleu(
            hypotheses,
            [self._references],
            tgt_lang=data.tgt_lang,
            normalization=data.normalization,
        )
        return score.score, self._show(model, hypotheses) if self._world.is_main else None

    def _show(self, model: Transformer, hypotheses: Sequence[str]) -> Shown:
        samples = [(self._src[i], self._references[i], hypotheses[i]) for i in self._samples]
        most = _MAP_TOKENS
        if model.config.positions == "learned":
            most = min(most, model.config.max_positions)
        lines = [self._normalizer.src(source) for source, _, _ in samples]
        sources = [[*ids, EOS] for ids in self._tokenizer.encode(lines)]
        if not (fitting := [i for i, ids in enumerate(sources) if len(ids) <= most]):
            return Shown(samples)
        chosen = max(fitting, key=lambda i: len(sources[i]))
        (written,) = self._tokenizer.encode([self._normalizer.tgt(samples[chosen][2])])
        # Later tokens change no attention before them: the translation may be cut.
        src, tgt_in = sources[chosen], [BOS, *written][:most]
        pieces = self._tokenizer.pieces
        return Shown(samples, attention_maps(model, src, tgt_in), pieces(src), pieces(tgt_in))
