"""Metrics of translation quality, which ``registries.METRICS`` lists.

sacreBLEU scores detokenised text against raw references. BLEU by other protocols is on another
scale and lives in ``protocols.py``.
"""

from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from transformer_mt.data.text.languages import UNSPACED, base_language
from transformer_mt.errors import InputError
from transformer_mt.evaluation.protocols import OF_NORMALIZATION
from transformer_mt.registries import METRICS, PROTOCOLS, load


def bleu(language: str) -> Metric:
    """BLEU for a target language, or for an unknown one if it is empty."""
    try:
        # force: score_diagnostics.py reports tokenised text, in one line for each file.
        return BLEU(trg_lang=language, force=True)
    except RuntimeError as error:  # sacreBLEU: MeCab is not installed
        raise InputError(
            f"BLEU for {language} needs a tokeniser that is not installed: "
            f"pip install 'sacrebleu[{language}]'"
        ) from error


def chrf(_: str) -> Metric:
    """The metric chrF2."""
    return CHRF()


def chrf_plus_plus(_: str) -> Metric:
    """The metric chrF2++."""
    return CHRF(word_order=2)


def ter(language: str) -> Metric:
    """TER for a target language."""
    # Without spaces, a sentence would be one word: there TER counts characters.
    characters = language in ("ja", "yue", "zh")
    return TER(normalized=characters, asian_support=characters)


DEFAULT = ("bleu", "chrf", "ter")
"""Metrics that are computed unless others are set."""


def make_metric(name: str, tgt_lang: str | None) -> Metric:
    """A metric of ``METRICS`` or ``PROTOCOLS``, set up for a target language.

    Raises:
        InputError: BLEU for this language needs a tokeniser that is not installed.
    """
    metric: Metric = load(METRICS | PROTOCOLS, name)(base_language(tgt_lang or ""))
    return metric


def default_protocols(tgt_lang: str | None, normalization: str = "none") -> list[str]:
    """Names of the protocols that suit a system with this ``data.normalization``.

    The paper's needs spaces between words, as Moses' tokeniser does.
    """
    if tgt_lang is None:
        return []
    names = [] if base_language(tgt_lang) in UNSPACED else ["paper"]
    if normalization in OF_NORMALIZATION:
        names.append(OF_NORMALIZATION[normalization])
    return names


def check_language(tgt_lang: str) -> None:
    """Raise ``InputError`` if scoring this language needs a tokeniser that is not installed."""
    make_metric("bleu", tgt_lang)
