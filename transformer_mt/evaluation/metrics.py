"""Metrics of translation quality that sacreBLEU computes.

All score detokenised text against raw references. ``paper`` is BLEU as the paper reports it (27.3
and 28.4 in Table 2), which cannot be compared with other BLEU. COMET and perplexity, which also
read the source, are in ``source_metrics.py``.
"""

import re
from pkgutil import resolve_name
from typing import Any

from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.bleu import BLEU, BLEUScore
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from transformer_mt.config.languages import UNSPACED, base_language
from transformer_mt.errors import InputError
from transformer_mt.registries import METRICS

SEGMENTED = ("ja", "zh")
"""Languages without spaces for which BLEU has a tokeniser; TER counts their characters."""


def bleu(language: str) -> Metric:
    """BLEU for a target language, or for an unknown one if it is empty."""
    try:
        # force: without sacreBLEU's three lines about tokenised text, which score_diagnostics.py
        # reports as well as subwords.
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
    characters = language in SEGMENTED  # a sentence without spaces would be one word
    return TER(normalized=characters, asian_support=characters)


class PaperBLEU(BLEU):
    """BLEU as the paper's authors computed it with tensor2tensor's ``get_ende_bleu.sh``.

    That script runs Moses' ``replace-unicode-punctuation.perl`` and ``tokenizer.perl -l de`` on the
    hypotheses, splits compounds at hyphens (``rich-text`` → ``rich ##AT##-##AT## text``) on both
    sides, and counts with ``multi-bleu.perl``: four-grams, no smoothing. It expects a reference
    tokenised in advance, in which every quotation mark, „ included, had become ``&quot;``. Here
    both sides are raw text and are treated the same way, „ included.
    """

    def __init__(self, language: str):
        # Imported here: it takes 0.3 s, and only this metric needs it.
        from sacremoses import MosesPunctNormalizer, MosesTokenizer

        super().__init__(tokenize="none", smooth_method="none", force=True)
        normalizer, tokenizer = MosesPunctNormalizer(language), MosesTokenizer(language)

        def tokenize(line: str) -> str:
            line = normalizer.replace_unicode_punct(line).replace("„", '"')
            return split_compounds(tokenizer.tokenize(line, return_str=True))

        self.tokenizer, self.tokenizer_signature = tokenize, f"sacremoses-{language}-atat"

    def _compute_score_from_stats(self, stats: Any) -> BLEUScore:
        score = super()._compute_score_from_stats(stats)
        score.name = "BLEU (paper protocol)"
        return score


def split_compounds(tokenized: str) -> str:
    """Tokenised text in which every hyphen inside a word is a token, by the script's substitution.

    As in the script, overlapping matches are missed: ``a-b-c`` is split once.
    """
    return re.sub(r"(\S)-(\S)", r"\1 ##AT##-##AT## \2", tokenized)


def make_metric(name: str, tgt_lang: str | None) -> Metric:
    """A metric of ``METRICS`` for a target language.

    It is made from the language's ISO 639-1 code without region or script, or "" if unknown.

    Raises:
        InputError: BLEU for this language needs a tokeniser that is not installed.
    """
    metric: Metric = resolve_name(METRICS[name])(base_language(tgt_lang or ""))
    return metric


def default(tgt_lang: str | None) -> list[str]:
    """Metrics that are computed unless others are set.

    The paper's BLEU is one of them for a known language with spaces between words, which Moses'
    tokeniser needs.
    """
    names = ["bleu", "chrf", "ter"]
    is_spaced = tgt_lang is not None and base_language(tgt_lang) not in UNSPACED | {"mul", "und"}
    return [*names, "paper"] if is_spaced else names
