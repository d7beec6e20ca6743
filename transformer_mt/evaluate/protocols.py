"""BLEU on other scales than sacreBLEU's, each under a name of its own.

They are here because papers print them: 27.3 and 28.4 in the paper's Table 2 are of
``paper_bleu``, published Multi30k scores of ``tokens_bleu``. None is printed without its name, and
none may be compared with another.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from sacrebleu.metrics.bleu import BLEU

from transformer_mt.data.text.languages import base_language
from transformer_mt.data.text.normalization import Normalizer
from transformer_mt.evaluate.scores import Score, check, corpus_score


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
    both sides are raw text and both get the same treatment, „ included.
    """
    # Imported here because it costs 0.3 s and only this protocol needs it.
    from sacremoses import MosesPunctNormalizer, MosesTokenizer

    # What sacremoses does not know, DE and de-AT too, it would take for English without a word.
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
    """BLEU as papers on Multi30k have it: lower-case Moses tokens, unsmoothed.

    Both sides are made to tokens here, so cased and detokenised text can be compared as well.
    """
    prepare = Normalizer("moses_lowercase", tgt_lang, tgt_lang).tgt
    tokens = f"sacremoses-{base_language(tgt_lang)}-lc"  # fits a line of 80 columns
    score = _unsmoothed_bleu(prepare, tokens, hypotheses, references, bootstrap)
    return replace(score, name="BLEU (lower-case tokens)")


PROTOCOLS: dict[str, Callable[..., Score]] = {
    "paper": paper_bleu,
    "lowercase_tokens": tokens_bleu,
}
"""By the name that ``mt-eval`` knows them under."""

OF_NORMALIZATION = {"moses_lowercase": "lowercase_tokens"}
"""The protocol that a ``data.normalization`` is made for: a model that writes lower case has hardly
any BLEU by text with capitals."""


def split_compounds(tokenized: str) -> str:
    """Make every hyphen inside a word a token of its own, by the script's very substitution.

    Like the script's, it does not see overlapping matches: ``a-b-c`` is split once.
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
