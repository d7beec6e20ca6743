"""Scores of translations, always with the signature and the number of segments behind them.

``score`` and ``bleu`` are sacreBLEU's own numbers on detokenised text against raw references.
``paper_bleu`` is the tokenised, compound-split BLEU of the paper: another scale (on newstest2014
one system had 27.5 with sacreBLEU and 29.0 so, tensor2tensor issue 317), never printed without
its name.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from transformer_mt.data.normalization import Normalizer
from transformer_mt.errors import InputError

DIGITS = 4
"""Decimals of a score in JSON: ``sacrebleu -w 4`` prints the same number."""


@dataclass(frozen=True, kw_only=True)
class Score:
    """One metric's result on one test set."""

    name: str
    """``BLEU``, ``chrF2``, ``TER``, ``BLEU (paper protocol)`` or ``BLEU (lower-case tokens)``."""
    score: float
    """On 0–100 for BLEU and chrF2; TER is an error rate, lower is better, and may pass 100."""
    signature: str
    """sacreBLEU's signature: all that must be equal for two scores to be comparable."""
    segments: int
    """Lines scored: newstest2014 has 3,003, and a subset of 2,737 that is scored by mistake."""
    verbose: str
    """What the metric adds, such as n-gram precisions and brevity penalty; empty if nothing."""


def score(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]], *, tgt_lang: str | None = None
) -> list[Score]:
    """BLEU, chrF2 and TER as ``sacrebleu ref -i hyp -m bleu chrf ter`` computes them.

    Args:
        hypotheses: Detokenised translations.
        references: One list per reference set, each as long as ``hypotheses``.
        tgt_lang: Language code; Chinese, Japanese and Korean get sacreBLEU's own tokenisers.

    Raises:
        InputError: If there is nothing to score, or the lists differ in length.
    """
    _check(hypotheses, references)
    metrics = (_bleu_metric(tgt_lang), CHRF(), TER())
    return [_corpus_score(metric, hypotheses, references) for metric in metrics]


def score_all(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    tgt_lang: str | None,
    normalization: str = "none",
) -> list[Score]:
    """``score``, followed by the protocols that apply.

    That is the paper's where the target language is known, and ``tokens_bleu`` where the system's
    ``data.normalization`` is ``moses_lowercase``.
    """
    scores = score(hypotheses, references, tgt_lang=tgt_lang)
    if tgt_lang is not None:
        scores.append(paper_bleu(hypotheses, references, tgt_lang=tgt_lang))
        if normalization == "moses_lowercase":
            scores.append(tokens_bleu(hypotheses, references, tgt_lang=tgt_lang))
    return scores


def bleu(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]], *, tgt_lang: str | None = None
) -> Score:
    """The first of ``score``'s results alone: TER takes far longer, and validation needs one."""
    _check(hypotheses, references)
    return _corpus_score(_bleu_metric(tgt_lang), hypotheses, references)


def paper_bleu(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]], *, tgt_lang: str = "de"
) -> Score:
    """BLEU as the paper's authors computed it with tensor2tensor's ``get_ende_bleu.sh``.

    That script runs Moses' ``replace-unicode-punctuation.perl`` and ``tokenizer.perl -l de`` on the
    hypotheses, splits compounds at hyphens (``rich-text`` → ``rich ##AT##-##AT## text``) on both
    sides, and counts with ``multi-bleu.perl``: four-grams, no smoothing. It expects a reference
    tokenised beforehand, in which every quotation mark, „ included, had become ``&quot;``. Here
    both sides are raw text and both get the same treatment, „ included.
    """
    _check(hypotheses, references)
    # Imported here because it costs 0.3 s and only this protocol needs it.
    from sacremoses import MosesPunctNormalizer, MosesTokenizer

    normalizer, tokenizer = MosesPunctNormalizer(tgt_lang), MosesTokenizer(tgt_lang)

    def prepare(lines: Sequence[str]) -> list[str]:
        return [
            split_compounds(
                tokenizer.tokenize(
                    normalizer.replace_unicode_punct(line).replace("„", '"'), return_str=True
                )
            )
            for line in lines
        ]

    metric = BLEU(tokenize="none", smooth_method="none", force=True)
    metric.tokenizer_signature = f"sacremoses-{tgt_lang}-atat"
    result = _corpus_score(metric, prepare(hypotheses), [prepare(lines) for lines in references])
    return replace(result, name="BLEU (paper protocol)")


def tokens_bleu(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]], *, tgt_lang: str
) -> Score:
    """BLEU as papers on Multi30k have it: lower-case Moses tokens, unsmoothed.

    Both sides are made to tokens here, so cased and detokenised text can be compared as well.
    """
    _check(hypotheses, references)
    normalizer = Normalizer("moses_lowercase", tgt_lang, tgt_lang)

    def prepare(lines: Sequence[str]) -> list[str]:
        return [normalizer.tgt(line) for line in lines]

    metric = BLEU(tokenize="none", smooth_method="none", force=True)
    metric.tokenizer_signature = f"sacremoses-{tgt_lang}-lowercase"
    result = _corpus_score(metric, prepare(hypotheses), [prepare(lines) for lines in references])
    return replace(result, name="BLEU (lower-case tokens)")


def split_compounds(tokenized: str) -> str:
    """Make every hyphen inside a word a token of its own, by the script's very substitution.

    Like the script's, it does not see overlapping matches: ``a-b-c`` is split once.
    """
    return re.sub(r"(\S)-(\S)", r"\1 ##AT##-##AT## \2", tokenized)


def check_language(tgt_lang: str) -> None:
    """Raise ``InputError`` if scoring this language needs a tokeniser that is not installed."""
    _bleu_metric(tgt_lang)


def check_line_counts(texts: Mapping[str, Sequence[str]]) -> None:
    """Raise ``InputError`` unless all texts, given by file name, pair up line by line."""
    (first, lines), *others = texts.items()
    for name, other in others:
        if len(other) != len(lines):
            raise InputError(
                f"{len(lines)} lines in {first} but {len(other)} in {name}: line n of each must "
                "belong together; is one cut short, or of another test set?"
            )
    if not lines:
        raise InputError(f"no lines in {first}: there is nothing to score")


def to_json(scores: Sequence[Score]) -> str:
    """The list that ``sacrebleu --format json -w 4`` prints, with ``segments`` added.

    Four decimals are enough to tell two systems apart and few enough that the same text gives the
    same digits on every machine.
    """
    rows = []
    for item in scores:
        row: dict[str, str | float | int] = {
            "name": item.name,
            "score": round(item.score, DIGITS),
            "signature": item.signature,
        }
        if item.verbose:
            row["verbose_score"] = item.verbose
        for field in item.signature.split("|"):
            key, _, value = field.partition(":")
            row[key] = value
        row["segments"] = item.segments
        rows.append(row)
    return json.dumps(rows, indent=1, ensure_ascii=False)


def to_text(scores: Sequence[Score]) -> str:
    """The scores for a person at an 80-column terminal, each above its signature."""
    width = max((len(item.name) for item in scores), default=0)
    lines = []
    for item in scores:
        plural = "" if item.segments == 1 else "s"
        lines.append(f"{item.name:<{width}}  {item.score:6.2f}  {item.segments} segment{plural}")
        lines.append(f"  {item.signature}")  # copied into papers, so never broken
        if item.verbose:
            lines.append("  " + item.verbose.replace(" (", "\n  ("))
    return "\n".join(lines)


def _check(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> None:
    if not references:
        raise InputError("no references given: a score needs at least one reference set")
    texts = {f"reference set {i}": lines for i, lines in enumerate(references, 1)}
    check_line_counts({"the hypotheses": hypotheses, **texts})


def _bleu_metric(tgt_lang: str | None) -> BLEU:
    try:
        return BLEU(trg_lang=tgt_lang or "")
    except RuntimeError as error:  # sacreBLEU: MeCab is not installed
        raise InputError(
            f"BLEU for {tgt_lang} needs a tokeniser that is not installed: "
            f"pip install 'sacrebleu[{tgt_lang}]'"
        ) from error


def _corpus_score(
    metric: Metric, hypotheses: Sequence[str], references: Sequence[Sequence[str]]
) -> Score:
    result = metric.corpus_score(hypotheses, references)
    signature = metric.get_signature().format()
    printed = json.loads(result.format(signature=signature, is_json=True))
    return Score(
        name=result.name,
        score=result.score,
        signature=signature,
        segments=len(hypotheses),
        verbose=printed.get("verbose_score", ""),
    )
