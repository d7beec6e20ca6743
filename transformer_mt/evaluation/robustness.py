"""Scores of a model under noise: the test set as it is, and with each kind on all source lines."""

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from tabulate import tabulate

from transformer_mt.data.text.noise import NOISES
from transformer_mt.data.text.tags import add_tag, split_tag
from transformer_mt.evaluation.score_tables import signatures
from transformer_mt.evaluation.scores import DIGITS, Score, format_segments, to_row

METRICS = ("bleu", "chrf")
"""Default metrics."""

CLEAN = "clean"
"""Name of the source as it is."""

_SEED = 6
"""First number of the seeds; the second is the number of the line."""


@dataclass(frozen=True)
class NoiseScores:
    """Scores of the lines with one tag, or without, under one kind of noise."""

    noise: str
    """A name of ``NOISES``, or ``clean``."""
    changed: int
    """Number of these source lines that differ from the clean ones."""
    scores: list[Score]
    """Each with its difference to the clean one's, except for those."""


def noisy_sources(source: Sequence[str], tags: Collection[str]) -> dict[str, list[str]]:
    """The source as it is and with each kind of noise, the same at every call.

    Args:
        source: Lines, which may start with a tag; noise never changes it.
        tags: All tags.
    """
    split = [split_tag(line, tags) for line in source]
    sources = {CLEAN: [add_tag(tag, text) for tag, text in split]}
    for name, noise in NOISES.items():
        sources[name] = [
            add_tag(tag, noise(text, np.random.default_rng([_SEED, i])))
            for i, (tag, text) in enumerate(split)
        ]
    return sources


def to_text(results: Sequence[NoiseScores]) -> str:
    """A table, or one for each tag, with the difference to the clean source in brackets."""
    lines = []
    for tag, group in groupby(results, key=lambda result: result.scores[0].tag):
        own = list(group)
        rows = [[item.noise, f"{item.changed:,}", *map(_cell, item.scores)] for item in own]
        scores = own[0].scores
        headers = [f"Source {tag}".strip(), "lines\nchanged", *(score.name for score in scores)]
        lines.append(tabulate(rows, headers=headers, tablefmt="fancy_grid", disable_numparse=True))
        lines += [format_segments(scores[0].segments), *signatures(scores)]
    return "\n".join(lines)


def to_json(results: Sequence[NoiseScores]) -> str:
    """A list of ``{noise, changed, scores}``, tag by tag; scores have a ``difference`` to clean."""
    content = []
    for result in results:
        rows = [to_row(score) for score in result.scores]
        for row, score in zip(rows, result.scores, strict=True):
            if score.difference is not None:
                row["difference"] = round(score.difference, DIGITS)
        content.append({"noise": result.noise, "changed": result.changed, "scores": rows})
    return json.dumps(content, indent=1, ensure_ascii=False)


def _cell(score: Score) -> str:
    difference = "" if score.difference is None else f" ({score.difference:+.2f})"
    return f"{score.score:.2f}{difference}"
