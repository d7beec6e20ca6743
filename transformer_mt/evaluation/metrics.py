"""Metrics of translation quality that sacreBLEU computes.

``METRICS`` score detokenised text against raw references. ``PROTOCOLS`` are BLEU as papers report
it, each printed under its own name: 27.3 and 28.4 in the paper's Table 2 are ``paper``. Scores of
different protocols cannot be compared. COMET and perplexity, which also read the source, are in
``source_metrics.py``.
"""

import re
from collections.abc import Callable, Sequence
from pkgutil import resolve_name
from typing import Any

from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.bleu import BLEU, BLEUScore
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from transformer_mt.config.languages import UNSPACED, base_language
from transformer_mt.errors import InputError
from transformer_mt.registries import METRICS, PROTOCOLS, VALIDATION_METRICS

Statistics = list[list[float]]
"""sacreBLEU's sufficient statistics of every line; a metric computes its score from their sum."""

DEFAULT = ("bleu", "chrf", "ter")
"""Metrics that are computed unless others are set."""


def bleu(language: str) -> Metric:
    """BLEU for a target language, or for an unknown one if it is empty."""
    # sacreBLEU's tokeniser for Chinese splits all Han characters; it does not know the code yue.
    language = "zh" if language == "yue" else language
    try:
        # force: sacreBLEU warns, in three lines, of 100 lines that end in " ." in one call. Calls
        # here have 100 lines, and score_diagnostics.py reports tokenised text and subwords.
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
    """The metric chrF2++, which counts words as well."""
    return CHRF(word_order=2)


def ter(language: str) -> Metric:
    """TER for a target language."""
    # Without spaces, a sentence would be one word: there TER counts characters.
    characters = language in ("ja", "yue", "zh")
    return TER(normalized=characters, asian_support=characters)


class ProtocolBLEU(BLEU):
    """Unsmoothed BLEU with another tokeniser, whose name in the signature is ``tokens``."""

    def __init__(self, name: str, tokenize: Callable[[str], str], tokens: str):
        super().__init__(tokenize="none", smooth_method="none", force=True)
        self.tokenizer, self.tokenizer_signature = tokenize, tokens
        self._name = name

    def _compute_score_from_stats(self, stats: Any) -> BLEUScore:
        score = super()._compute_score_from_stats(stats)
        score.name = self._name
        return score


def paper_bleu(language: str) -> ProtocolBLEU:
    """BLEU as the paper's authors computed it with tensor2tensor's ``get_ende_bleu.sh``.

    That script runs Moses' ``replace-unicode-punctuation.perl`` and ``tokenizer.perl -l de`` on the
    hypotheses, splits compounds at hyphens (``rich-text`` → ``rich ##AT##-##AT## text``) on both
    sides, and counts with ``multi-bleu.perl``: four-grams, no smoothing. It expects a reference
    tokenised in advance, in which every quotation mark, „ included, had become ``&quot;``. Here
    both sides are raw text and are treated the same way, „ included.
    """
    # Imported here: it takes 0.3 s, and only this protocol needs it.
    from sacremoses import MosesPunctNormalizer, MosesTokenizer

    normalizer, tokenizer = MosesPunctNormalizer(language), MosesTokenizer(language)

    def tokenize(line: str) -> str:
        line = normalizer.replace_unicode_punct(line).replace("„", '"')
        return split_compounds(tokenizer.tokenize(line, return_str=True))

    return ProtocolBLEU("BLEU (paper protocol)", tokenize, f"sacremoses-{language}-atat")


def split_compounds(tokenized: str) -> str:
    """Tokenised text in which every hyphen inside a word is a token, by the script's substitution.

    As in the script, overlapping matches are missed: ``a-b-c`` is split once.
    """
    return re.sub(r"(\S)-(\S)", r"\1 ##AT##-##AT## \2", tokenized)


def make_metric(name: str, tgt_lang: str | None) -> Metric:
    """A metric of ``METRICS``, ``PROTOCOLS`` or ``VALIDATION_METRICS`` for a target language.

    It is made from the language's ISO 639-1 code without region or script, or "" if unknown.

    Raises:
        InputError: BLEU for this language needs a tokeniser that is not installed.
    """
    known = METRICS | PROTOCOLS | VALIDATION_METRICS
    metric: Metric = resolve_name(known[name])(base_language(tgt_lang or ""))
    return metric


def line_statistics(
    name: str, tgt_lang: str | None, hypotheses: Sequence[str], references: Sequence[Sequence[str]]
) -> Statistics:
    """The statistics of every line for a metric; arguments as of ``scores.compute_score``."""
    metric = make_metric(name, tgt_lang)
    statistics: Statistics = metric._extract_corpus_statistics(hypotheses, references)
    return statistics


def metric_of_statistics(name: str, tgt_lang: str | None, num_references: int) -> Metric:
    """A metric for which ``Statistics`` take the place of the hypotheses.

    sacreBLEU's tests would compute them again each; ``num_references`` are for the signature.
    """
    metric = make_metric(name, tgt_lang)
    taken = {"_extract_corpus_statistics": lambda statistics, _: statistics}
    vars(metric).update(taken, num_refs=num_references)
    return metric


def default_protocols(tgt_lang: str | None) -> list[str]:
    """Names of the protocols that suit a language: Moses' tokeniser needs spaces between words."""
    return [] if tgt_lang is None or base_language(tgt_lang) in UNSPACED else ["paper"]
