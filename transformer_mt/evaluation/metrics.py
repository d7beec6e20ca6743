"""Metrics of translation quality: their registry, and scoring with sacreBLEU.

sacreBLEU scores detokenised text against raw references. BLEU by other protocols is on another
scale and lives in ``protocols.py``.

To add a metric of sacreBLEU, add it to ``SACREBLEU_METRICS``. Any other metric has its own module,
a name in ``OTHER_METRICS`` and a call in ``jobs/evaluate.py``. Either way, add the name to
``config/evaluate.py``.
"""

from collections.abc import Callable, Sequence

from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from transformer_mt.data.text.languages import UNSPACED, base_language
from transformer_mt.errors import InputError
from transformer_mt.evaluation.protocols import OF_NORMALIZATION, PROTOCOLS
from transformer_mt.evaluation.scores import Score, check, corpus_score


def _bleu(language: str) -> Metric:
    try:
        # force: score_diagnostics.py reports tokenised text, in one line for each file.
        return BLEU(trg_lang=language, force=True)
    except RuntimeError as error:  # sacreBLEU: MeCab is not installed
        raise InputError(
            f"BLEU for {language} needs a tokeniser that is not installed: "
            f"pip install 'sacrebleu[{language}]'"
        ) from error


def _ter(language: str) -> Metric:
    # Without spaces, a sentence would be one word: there TER counts characters.
    characters = language in ("ja", "yue", "zh")
    return TER(normalized=characters, asian_support=characters)


SACREBLEU_METRICS: dict[str, Callable[[str], Metric]] = {
    "bleu": _bleu,
    "chrf": lambda _: CHRF(),
    "chrf++": lambda _: CHRF(word_order=2),
    "ter": _ter,
}
"""Metrics by name; each is made for a target language, or "" if that is unknown."""

OTHER_METRICS = ("comet", "ppl")
"""Metrics that need more than hypotheses and references: ``comet.py``, ``perplexity.py``."""

DEFAULT = ("bleu", "chrf", "ter")
"""Metrics that are computed unless others are set."""


def make_metric(name: str, tgt_lang: str | None = None) -> Metric:
    """A metric of ``SACREBLEU_METRICS``, set up for a target language.

    Raises:
        InputError: BLEU for this language needs a tokeniser that is not installed.
    """
    return SACREBLEU_METRICS[name](base_language(tgt_lang or ""))


def score(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    tgt_lang: str | None = None,
    metrics: Sequence[str] = DEFAULT,
    bootstrap: int = 0,
) -> list[Score]:
    """BLEU, chrF2 and TER as ``sacrebleu ref -i hyp -m bleu chrf ter`` computes them.

    Args:
        hypotheses: Detokenised translations.
        references: One list per reference set, each as long as ``hypotheses``.
        tgt_lang: Language code; Chinese, Japanese and Korean get sacreBLEU's own tokenisers for
            BLEU, and the first two its ``--ter-normalized --ter-asian-support``.
        metrics: Names of ``SACREBLEU_METRICS``.
        bootstrap: Resamples for 95% intervals, as with sacreBLEU's ``--confidence``; 0 is none.

    Raises:
        InputError: There is nothing to score, or the lists differ in length.
    """
    check(hypotheses, references)
    return [
        corpus_score(make_metric(name, tgt_lang), hypotheses, references, bootstrap=bootstrap)
        for name in metrics
    ]


def score_all(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    tgt_lang: str | None,
    normalization: str = "none",
    metrics: Sequence[str] = DEFAULT,
    protocols: Sequence[str] | None = None,
    bootstrap: int = 0,
) -> list[Score]:
    """``score``, followed by BLEU by other protocols (``PROTOCOLS``).

    ``protocols=None`` chooses them: the paper's if the target language is known and has spaces
    between words, as Moses' tokeniser expects; and the one that belongs to ``normalization``, the
    system's ``data.normalization``.
    """
    scores = score(hypotheses, references, tgt_lang=tgt_lang, metrics=metrics, bootstrap=bootstrap)
    if tgt_lang is None:
        return scores
    if protocols is None:
        spaced = base_language(tgt_lang) not in UNSPACED
        protocols = ["paper"] * spaced
        if normalization in OF_NORMALIZATION:
            protocols.append(OF_NORMALIZATION[normalization])
    for name in protocols:
        protocol = PROTOCOLS[name]
        scores.append(protocol(hypotheses, references, tgt_lang=tgt_lang, bootstrap=bootstrap))
    return scores


def validation_bleu(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    tgt_lang: str,
    normalization: str = "none",
) -> Score:
    """BLEU for comparing checkpoints: sacreBLEU's, or by the protocol of the normalisation."""
    if normalization in OF_NORMALIZATION:
        return PROTOCOLS[OF_NORMALIZATION[normalization]](hypotheses, references, tgt_lang=tgt_lang)
    return score(hypotheses, references, tgt_lang=tgt_lang, metrics=["bleu"])[0]


def check_language(tgt_lang: str) -> None:
    """Raise ``InputError`` if scoring this language needs a tokeniser that is not installed."""
    make_metric("bleu", tgt_lang)
