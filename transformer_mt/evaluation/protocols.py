"""BLEU by other protocols than sacreBLEU's, each printed under its own name.

Papers report them: 27.3 and 28.4 in the paper's Table 2 are ``paper_bleu``, published Multi30k
scores are ``tokens_bleu``. Scores of different protocols cannot be compared.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from sacrebleu.metrics.bleu import BLEU

from transformer_mt.data.text.languages import base_language
from transformer_mt.data.text.normalization import Normalizer
from transformer_mt.evaluation.scores import Score, check, corpus_score


def paper_bleu(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    tgt_lang: str = "de",
    bootstrap: int = 0,
) -> Score:
    """BLEU as the paper's authors computed it with tensor2tensor's ``get_ende_bleu.sh``.

    That script runs Moses' ``replace-unicode-punctuation.perl`` and ``tokenizer.perl -l de`` on the
    hypotheses, splits compounds at hyphens (``rich-text`` → ``rich ##AT##-##AT## text``) on both
    sides, and counts with ``multi-bleu.perl``: four-grams, no smoothing. It expects a reference
    tokenised beforehand, in which every quotation mark, „ included, had become ``&quot;``. Here
    both sides are raw text and are treated the same way, „ included.
    """
    # Imported here: it takes 0.3 s, and only this protocol needs it.
    from sacremoses import MosesPunctNormalizer, MosesTokenizer

    # sacremoses silently treats codes that it does not know, such as DE or de-AT, as English.
    language = base_language(tgt_lang)
    normalizer, tokenizer = MosesPunctNormalizer(language), MosesTokenizer(language)

    def prepare(line: str) -> str:
        line = normalizer.replace_unicode_punct(line).replace("„", '"')
        return split_compounds(tokenizer.tokenize(line, return_str=True))

    tokens = f"sacremoses-{language}-atat"
    score = _unsmoothed_bleu(prepare, tokens, hypotheses, references, bootstrap)
    return replace(score, name="BLEU (paper protocol)")


def tokens_bleu(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    tgt_lang: str,
    bootstrap: int = 0,
) -> Score:
    """BLEU as papers on Multi30k report it: lower-case Moses tokens, unsmoothed.

    Both sides are lower-cased and tokenised here, so they may be cased and detokenised text.
    """
    prepare = Normalizer("moses_lowercase", tgt_lang, tgt_lang).tgt
    tokens = f"sacremoses-{base_language(tgt_lang)}-lc"  # short enough for 80 columns
    score = _unsmoothed_bleu(prepare, tokens, hypotheses, references, bootstrap)
    return replace(score, name="BLEU (lower-case tokens)")


PROTOCOLS: dict[str, Callable[..., Score]] = {
    "paper": paper_bleu,
    "lowercase_tokens": tokens_bleu,
}
"""Protocols by the name that ``protocols=`` takes; ``config/evaluate.py`` lists the names too."""

OF_NORMALIZATION = {"moses_lowercase": "lowercase_tokens"}
"""The protocol that belongs to a ``data.normalization``; sacreBLEU would score lower-case output
badly against cased references."""


def split_compounds(tokenized: str) -> str:
    """Make every hyphen inside a word a token of its own, with the script's substitution.

    As in the script, overlapping matches are missed: ``a-b-c`` is split once.
    """
    return re.sub(r"(\S)-(\S)", r"\1 ##AT##-##AT## \2", tokenized)


def _unsmoothed_bleu(
    prepare: Callable[[str], str],
    tokens: str,
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    bootstrap: int,
) -> Score:
    check(hypotheses, references)
    metric = BLEU(tokenize="none", smooth_method="none", force=True)
    metric.tokenizer_signature = tokens
    return corpus_score(
        metric,
        [prepare(line) for line in hypotheses],
        [[prepare(line) for line in lines] for lines in references],
        bootstrap=bootstrap,
    )
