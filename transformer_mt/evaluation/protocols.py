"""BLEU by other protocols than sacreBLEU's, each printed under its own name.

Papers report them: 27.3 and 28.4 in the paper's Table 2 are ``paper_bleu``, published Multi30k
scores are ``tokens_bleu``. Scores of different protocols cannot be compared. Each is made for a
language without region or script: sacremoses silently treats codes that it does not know, such as
de-AT, as English. They are registered in ``registries.PROTOCOLS``.
"""

import re
from collections.abc import Callable
from typing import Any

from sacrebleu.metrics.bleu import BLEU, BLEUScore

from transformer_mt.data.text.normalization import Normalizer


class ProtocolBLEU(BLEU):
    """Unsmoothed BLEU with another tokeniser, whose name in the signature is ``tokens``."""

    def __init__(self, name: str, tokenize: Callable[[str], str], tokens: str):
        super().__init__(tokenize="none", smooth_method="none", force=True)
        self.tokenizer_signature = tokens
        self._name = name
        self._tokenize = tokenize

    def _preprocess_segment(self, sent: str) -> str:
        return self._tokenize(sent)

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


def tokens_bleu(language: str) -> ProtocolBLEU:
    """BLEU as papers on Multi30k report it: lower-case Moses tokens, unsmoothed.

    Both sides are lower-cased and tokenised here, so they may be cased and detokenised text.
    """
    tokenize = Normalizer("moses_lowercase", language, language).tgt
    tokens = f"sacremoses-{language}-lc"  # short enough for 80 columns
    return ProtocolBLEU("BLEU (lower-case tokens)", tokenize, tokens)


OF_NORMALIZATION = {"moses_lowercase": "lowercase_tokens"}
"""The protocol that belongs to a ``data.normalization``; sacreBLEU would score lower-case output
badly against cased references."""


def split_compounds(tokenized: str) -> str:
    """Make every hyphen inside a word a token of its own, with the script's substitution.

    As in the script, overlapping matches are missed: ``a-b-c`` is split once.
    """
    return re.sub(r"(\S)-(\S)", r"\1 ##AT##-##AT## \2", tokenized)
