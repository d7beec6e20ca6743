"""Pairs lines with their translations, in one TSV file.

    python scripts/recipes/pair_translations.py in.en out.de pairs.tsv
    python scripts/recipes/pair_translations.py mono.de back.en pairs.tsv --reverse
    python scripts/recipes/pair_translations.py in.en out.jsonl pairs.tsv --closest-to ref.de

TRANSLATIONS is the output of mt-translate for LINES; FILE.jsonl is that of format=jsonl. The two
files must have the same number of lines. A line without a translation is dropped, with its pair.
"""

import json
from array import array
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryFile
from typing import NamedTuple

import numpy as np
from recipe import argument_parser, main, say

from transformer_mt import files
from transformer_mt.data.subwords.tokenizer import one_line
from transformer_mt.data.text.lines import read_lines
from transformer_mt.data.text.sources import read_aligned
from transformer_mt.errors import InputError, first_line
from transformer_mt.jobs.line_processor import check_output


class Candidate(NamedTuple):
    """A translation of a line; the score is 0 in a text file, which has none."""

    text: str
    score: float


def pair_translations() -> None:
    parser = argument_parser(__doc__)
    add = parser.add_argument
    add("lines", metavar="LINES", help="what was translated")
    add("translations", metavar="TRANSLATIONS", help="text, or the n-best lists of format=jsonl")
    add("output", type=Path, metavar="OUTPUT", help="file to write: line, tab, translation")
    add("--reverse", action="store_true", help="write translation, tab, line: back-translation")
    add("--closest-to", metavar="FILE",
        help="of an n-best list take the translation closest to this line of FILE by sentence BLEU "
        "(Kim and Rush 2016), instead of the best")  # fmt: skip
    add("--keep", type=float, default=1.0, metavar="SHARE",
        help="share of the pairs to keep, those with the best scores (default: 1)")  # fmt: skip
    options = parser.parse_args()
    if not 0 < options.keep <= 1:
        raise InputError(f"--keep {options.keep} must be above 0 and at most 1")
    is_jsonl = options.translations.endswith(".jsonl")
    if not is_jsonl and (options.keep < 1 or options.closest_to):
        raise InputError("--keep and --closest-to need the scores and n-best lists of format=jsonl")
    pairs = read_candidates(options.lines, options.translations, is_jsonl=is_jsonl)
    if options.closest_to:
        pairs = closest(pairs, options.closest_to)
    target = files.expand_user(options.output).resolve()
    inputs = [("LINES", options.lines), ("TRANSLATIONS", options.translations)]
    check_output("OUTPUT", options.output, inputs)
    lines, scores = 0, array("d")
    with TemporaryFile("w+", encoding="utf-8", newline="\n", dir=target.parent) as every:
        for line, candidates in pairs:
            lines += 1
            text, score = one_line(candidates[0].text), candidates[0].score
            if text and (line := one_line(line)):
                scores.append(score)
                every.write(f"{text}\t{line}\n" if options.reverse else f"{line}\t{text}\n")
        if not scores:
            raise InputError(f"none of the {lines:,} lines of {options.lines} has a translation")
        worst = min(round((1 - options.keep) * len(scores)), len(scores) - 1)
        limit = np.partition(scores, worst)[worst]
        every.seek(0)
        with files.atomic(target) as path, path.open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(row for row, score in zip(every, scores, strict=True) if score >= limit)
    kept = sum(score >= limit for score in scores)
    dropped = f"{lines - len(scores):,} without a translation"
    if options.keep < 1:
        dropped += f", {len(scores) - kept:,} with a score below {limit:.3f}"
    say(f"{lines:,} lines, {kept:,} pairs; dropped: {dropped}")


def read_candidates(
    lines: str, translations: str, *, is_jsonl: bool
) -> Iterator[tuple[str, list[Candidate]]]:
    """Each line with its translations, best first.

    Raises:
        InputError: The files differ in their numbers of lines, or a record is not that of its line.
    """
    for number, (line, row) in enumerate(read_aligned(lines, translations), 1):
        if not is_jsonl:
            yield line, [Candidate(row, 0.0)]
            continue
        try:
            record = json.loads(row)
            found = [Candidate(each["text"], each["score"]) for each in record["translations"]]
            source, best = record["source"], found[0]
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise InputError(
                f"{translations}, line {number}: not a line of mt-translate format=jsonl "
                f"({first_line(error)})"
            ) from None
        if source != line:
            raise InputError(
                f"{translations}, line {number}: its source is not line {number} of {lines}: "
                "translate that file again"
            )
        yield line, found if best.text else [best]


def closest(
    pairs: Iterator[tuple[str, list[Candidate]]], references: str
) -> Iterator[tuple[str, list[Candidate]]]:
    """Puts the translation first that has the highest sentence BLEU against the reference."""
    from sacrebleu.metrics.bleu import BLEU

    bleu = BLEU(effective_order=True)
    for number, (pair, reference) in enumerate(zip_longest(pairs, read_lines(references)), 1):
        if pair is None or reference is None:
            what = "fewer" if reference is None else "more"
            raise InputError(f"{references} has {what} lines than were translated ({number - 1:,})")
        line, candidates = pair
        similarity = [bleu.sentence_score(each.text, [reference]).score for each in candidates]
        best = similarity.index(max(similarity))
        yield line, [candidates[best]]


if __name__ == "__main__":
    main(pair_translations)
