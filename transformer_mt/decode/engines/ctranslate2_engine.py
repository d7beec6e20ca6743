"""The same translations by CTranslate2: its beam search, our scores.

CTranslate2 searches as ``search.beam_search`` does: in each step it looks at the 2W best
continuations, takes those of the best W that end as finished, goes on with the best W that do
not end, and stops once W have finished. What differs is made equal here:

* It divides log-probabilities by |Y|^p where ours are divided by ((5 + |Y|) / 6)^α. Its scores are
  turned back into log-probabilities, then into ours, and the hypotheses are sorted by these.
* When more than W have finished it drops the worst by its own measure. One of these could be the
  best by ours only if it could reach ``_bound``.
* At the longest length, which for us is that of each sentence, it cuts translations off without an
  end symbol; we end them.
* It may say a special symbol; we rule these out. A trained model gives them next to nothing.

In the last three cases, all rare, our own search does the sentence; but a greedy translation that
does not end is what it is, and only its end symbol is scored by our model. So the best translation
is the same, but for equal scores and rounding; the end of an n-best list may lack one that was
dropped.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from transformer_mt.config import DecodeConfig
from transformer_mt.config.decode import COMPUTE_TYPES
from transformer_mt.data.subwords.tokenizer import BOS, EOS, PAD, UNK, Tokenizer
from transformer_mt.data.text.normalization import Normalizer
from transformer_mt.decode.engines.ctranslate2_conversion import num_positions
from transformer_mt.decode.lines.alignment import Pair
from transformer_mt.decode.search.hypothesis import Hypothesis, length_penalty
from transformer_mt.decode.search.scoring import score_targets
from transformer_mt.decode.translator import Translator
from transformer_mt.errors import InputError
from transformer_mt.model.transformer import Transformer

_SPECIAL = {PAD, UNK, BOS}


def check_available(compute_type: str, device: torch.device) -> None:
    """Refuses what cannot be done here.

    Raises:
        InputError: CTranslate2 is not installed, or does not compute in this type on the device.
    """
    try:
        from ctranslate2 import get_supported_compute_types
    except ImportError as error:
        raise InputError(
            f"engine=ctranslate2 needs CTranslate2: pip install 'transformer-mt[fast]' ({error})"
        ) from None
    known = get_supported_compute_types(device.type, device.index or 0)
    if compute_type not in known:
        choice = ", ".join(name for name in COMPUTE_TYPES if name in known)
        raise InputError(
            f"compute_type={compute_type} is not for this {device.type}: choose from {choice}"
        )


_BATCH_LINES = 32
"""Most sentences of a batch: with larger ones a worker waits for another at the end, which costs
int8 a tenth of its speed on 1,000 lines; with smaller ones float32 is slower."""


@contextmanager
def _libraries_explained() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:  # CUDA's, of another version than torch brings
        if "cannot be loaded" not in str(error):
            raise
        raise InputError(f"CTranslate2: {error}; engine=torch does without") from None


class CTranslate2Translator(Translator):
    """A ``Translator`` whose search is CTranslate2's.

    Args:
        converted: The model, as ``conversion.convert`` wrote it in ``compute_type``.
        model: The same model, for the sentences that CTranslate2 is not given.
        tokenizer: Its vocabulary.
        config: Beam search settings.
        normalizer: See ``Translator``.
        compute_type: What CTranslate2 computes in (``check_available``).
        token_scores: Say the log-probability of each token as well. CTranslate2 gives only their
            sum; for float32, the model is asked once more.
    """

    def __init__(
        self,
        converted: Path,
        model: Transformer,
        tokenizer: Tokenizer,
        config: DecodeConfig,
        normalizer: Normalizer,
        compute_type: str = "float32",
        *,
        token_scores: bool = False,
    ):
        super().__init__(model, tokenizer, config, normalizer)
        import ctranslate2

        device = model.embedding.weight.device
        # One worker a core with one thread each: batches share no work, so nobody waits.
        threads = torch.get_num_threads()
        self._workers = threads if device.type == "cpu" else 1
        try:
            with _libraries_explained():
                self._engine = ctranslate2.Translator(
                    str(converted),
                    device=device.type,
                    device_index=device.index or 0,
                    compute_type=compute_type,
                    inter_threads=self._workers,
                    intra_threads=1,
                )
        except (RuntimeError, ValueError) as error:
            raise InputError(
                f"CTranslate2 cannot read {converted} ({error}): delete that folder, or say "
                "engine=torch"
            ) from None
        torch.set_num_threads(threads)  # it has set OpenMP's to 1, for all in this process
        self._pieces = tokenizer.vocabulary
        self._ids = {piece: i for i, piece in enumerate(self._pieces)}
        self._num_positions = num_positions(model.config)
        self._token_scores = token_scores and compute_type == "float32"

    def _search(self, sources: list[list[int]], nbest: int) -> list[list[Hypothesis]]:
        beams = max(self._config.beam_size, nbest)
        fit = [i for i, ids in enumerate(sources) if len(ids) < self._num_positions]
        pending: dict[int, Any] = {}
        for batch in self._batches(fit, sources, beams):
            answers = self._engine.translate_batch(
                [[self._pieces[piece] for piece in sources[i]] for i in batch],
                beam_size=beams,
                num_hypotheses=beams,
                length_penalty=_exponent(self._config.length_penalty),
                max_input_length=0,
                min_decoding_length=0,  # its 1 would shift the end symbol's share to other words
                max_decoding_length=max(self._limit(sources[i]) for i in batch) + 1,
                return_scores=True,
                return_end_token=True,
                asynchronous=True,
            )
            pending.update(zip(batch, answers, strict=True))
        results: list[list[Hypothesis]] = [[] for _ in sources]
        endless: dict[int, list[int]] = {}
        for i, answer in pending.items():
            with _libraries_explained():  # which it loads when it comes to need them
                found = answer.result()
            results[i] = self._same_as_ours(found, sources[i])[:nbest]
            if beams == 1 and not results[i] and (tokens := self._cut_off(found, sources[i])):
                endless[i] = tokens
        for i, hypothesis in self._ended(sources, endless).items():
            results[i] = [hypothesis]
        left = [i for i, best in enumerate(results) if not best]
        for i, best in zip(left, super()._search([sources[i] for i in left], nbest), strict=True):
            results[i] = best
        return self._with_token_scores(sources, results) if self._token_scores else results

    def _with_token_scores(
        self, sources: list[list[int]], found: list[list[Hypothesis]]
    ) -> list[list[Hypothesis]]:
        pairs = [(ids, h.tokens) for ids, best in zip(sources, found, strict=True) for h in best]
        values = iter(self._forced(pairs))
        return [[replace(h, token_log_probs=next(values)) for h in best] for best in found]

    def _forced(self, pairs: list[Pair]) -> list[list[float]]:
        """Our model's log-probability of each token of translations, end symbols included."""
        sources, targets = [ids for ids, _ in pairs], [ids for _, ids in pairs]
        return score_targets(self._fast, sources, targets, self._batch_tokens)

    def _cut_off(self, found: Any, source: list[int]) -> list[int]:
        """The tokens of a greedy translation that goes on beyond its longest length, up to there.

        Nothing, if there is no such translation.
        """
        longest = self._longest(source)
        tokens = [self._ids[piece] for piece in found.hypotheses[0][:longest]]
        whole = len(tokens) == longest and not _SPECIAL.union([EOS]).intersection(tokens)
        return tokens if whole and not math.isnan(found.scores[0]) else []

    def _ended(
        self, sources: list[list[int]], endless: dict[int, list[int]]
    ) -> dict[int, Hypothesis]:
        """Translations that do not end by themselves, with the end symbol and its score."""
        values = self._forced([(sources[i], tokens) for i, tokens in endless.items()])
        alpha, ended = self._config.length_penalty, {}
        for (i, tokens), terms in zip(endless.items(), values, strict=True):
            log_prob = sum(terms)
            score = log_prob / length_penalty(len(terms), alpha)
            ended[i] = Hypothesis(tokens, log_prob, score)
        return ended

    def _batches(self, order: list[int], sources: list[list[int]], beams: int) -> list[list[int]]:
        """Sentences of similar length, longest first; a batch for each worker if there are few."""
        order = sorted(order, key=lambda i: -len(sources[i]))
        share = min(-(-len(order) // self._workers), _BATCH_LINES)
        batches = []
        while order:
            longest = len(sources[order[0]]) + 1
            size = min(share, max(1, self._batch_tokens // (longest * beams)))
            batches.append(order[:size])
            order = order[size:]
        return batches

    def _limit(self, source: list[int]) -> int:
        """Most tokens of a translation, end symbol not counted, that CTranslate2 may give."""
        return min(self._longest(source), self._num_positions - 1)

    def _same_as_ours(self, found: Any, source: list[int]) -> list[Hypothesis]:
        """What was found, scored and sorted as ours; nothing where our search may find better."""
        alpha, exponent = self._config.length_penalty, _exponent(self._config.length_penalty)
        hypotheses = []
        for pieces, score in zip(found.hypotheses, found.scores, strict=True):
            if math.isnan(score):
                return []  # our search says what that means
            *tokens, last = (self._ids[piece] for piece in pieces)
            if last != EOS or len(pieces) > self._limit(source) or _SPECIAL.intersection(tokens):
                return []
            log_prob = score * len(pieces) ** exponent
            penalty = length_penalty(len(pieces), alpha)
            hypotheses.append(Hypothesis(tokens, log_prob, log_prob / penalty))
        hypotheses.sort(key=lambda h: -h.score)
        if len(hypotheses) > 1 and hypotheses[0].score < _bound(found, alpha):
            return []
        return hypotheses


def _bound(found: Any, alpha: float) -> float:
    """The most that a dropped hypothesis can be worth to us.

    To CTranslate2 it was worth no more than any that it kept, and it is no longer than the longest
    of these, with which the search ended. Between its measure and ours is, for n symbols, a factor
    n^p / ((5 + n) / 6)^α; it is smallest, and so a negative value largest, at one of the two ends.
    """
    longest = max(map(len, found.hypotheses))
    factor = longest ** _exponent(alpha) / length_penalty(longest, alpha)
    return float(min(found.scores)) * min(1.0, factor)


def _exponent(alpha: float) -> float:
    """CTranslate2's ``length_penalty``, p.

    n^0.4 is 0.8 to 1.2 times (5 + n) / 6 up to 20 symbols: close enough that ``_bound`` is seldom
    above the best (on Multi30k's test set once in 1,000 sentences; with 0.6 for 4 in 10). At 0
    CTranslate2 would stop at the first translation that ends.
    """
    return max(0.4 * alpha, 1e-9)
