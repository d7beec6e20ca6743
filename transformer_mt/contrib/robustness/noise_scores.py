"""Scores a model under noise: on the test set as it is, and with each kind on all lines.

python -m transformer_mt.contrib.robustness.noise_scores model=runs/mine
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import NamedTuple

import numpy as np
from tabulate import tabulate

from transformer_mt import Score, compose, evaluate
from transformer_mt.cli.exit_status import exit_status
from transformer_mt.config import EvaluateJob
from transformer_mt.config.checks import require
from transformer_mt.contrib.robustness.noise import NOISES
from transformer_mt.progress_reporter import log_to
from transformer_mt.protocols import Pair, PairNoise

METRICS = ("bleu", "chrf")
"""Default metrics."""

CLEAN = "clean"
"""Name of the test set as it is."""

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
    """One score for each metric, with its difference from the clean score unless it is that one."""


class NoiseTable(list[NoiseScores]):
    """Scores of all kinds of noise, tag by tag."""

    def to_text(self) -> str:
        """A table, or one for each tag, with the difference to the clean source in brackets."""
        lines = []
        for tag, group in groupby(self, key=lambda result: result.scores[0].tag):
            own = list(group)
            rows = [[item.noise, f"{item.changed:,}", *map(_cell, item.scores)] for item in own]
            scores, segments = own[0].scores, own[0].scores[0].segments
            headers = [f"Source {tag}".strip(), "lines\nchanged", *(score.name for score in scores)]
            lines.append(
                tabulate(rows, headers=headers, tablefmt="fancy_grid", disable_numparse=True)
            )
            lines += [f"{segments} segment{'' if segments == 1 else 's'}", "Signatures:"]
            for score in scores:
                lines += [score.name, f"  {score.short_signature}"]
        return "\n".join(lines)

    def to_json(self) -> str:
        """A list of ``{noise, changed, scores}``; scores have a ``difference`` to clean."""
        content = []
        for result in self:
            rows = [score.to_row() for score in result.scores]
            for row, score in zip(rows, result.scores, strict=True):
                if score.difference is not None:
                    row["difference"] = round(score.difference, 4)  # as the scores
            content.append({"noise": result.noise, "changed": result.changed, "scores": rows})
        return json.dumps(content, indent=1, ensure_ascii=False)


def evaluate_robustness(job: EvaluateJob) -> NoiseTable:
    """Scores the model of a job on its test set as it is and with noise, tag by tag.

    Args:
        job: As for ``evaluate``, without a report.

    Raises:
        InputError: As ``evaluate`` does, or the job has no model or asks for a report.
    """
    require(job.model is not None, "set model=FOLDER: noise is added to what a model translates")
    require(job.report is None, "report is for mt-eval only")
    job = replace(job, metrics=job.metrics or [*METRICS])
    clean = evaluate(job)
    lines, table = clean.test.split_source(), NoiseTable()
    texts = noisy_texts(lines, clean.test.references)
    evaluations = {CLEAN: clean}
    for name, noisy in texts.items():
        if name != CLEAN:
            test = replace(clean.test, source=noisy.source, references=noisy.references)
            evaluations[name] = evaluate(job, test)
    for tag in dict.fromkeys(tag for tag, _ in lines):
        own = [i for i, line in enumerate(lines) if line[0] == tag]
        for name, evaluation in evaluations.items():
            changed = sum(texts[name].source[i] != texts[CLEAN].source[i] for i in own)
            scores = [
                item if name == CLEAN else replace(item, difference=item.score - before.score)
                for item, before in zip(
                    evaluation.systems[0].scores, clean.systems[0].scores, strict=True
                )
                if item.tag == tag
            ]
            table.append(NoiseScores(name, changed, scores))
    return table


class NoisyText(NamedTuple):
    """A test set with noise on all lines."""

    source: list[str]
    references: dict[str, list[str]]
    """References with the noise that a translation keeps, such as case."""


def noisy_texts(
    lines: Sequence[tuple[str, str]], references: Mapping[str, Sequence[str]]
) -> dict[str, NoisyText]:
    """The test set as it is and with each kind of noise, the same at every call.

    Args:
        lines: The tag of each line, which noise never changes, or "", and its text.
        references: The reference translations by the name of their file.
    """
    noises: dict[str, PairNoise] = {CLEAN: lambda pair, rng: pair, **NOISES}
    texts = {}
    for name, noise in noises.items():
        noisy = NoisyText([], {name: [] for name in references})
        for i, (tag, text) in enumerate(lines):
            given = [Pair(text, reference[i]) for reference in references.values()]
            pairs = [noise(pair, np.random.default_rng([_SEED, i])) for pair in given]
            if any(pair.src == text for pair in pairs):  # it does not suit one of the references
                pairs = given
            noisy.source.append(f"{tag} {pairs[0].src}" if tag else pairs[0].src)
            for pair, reference in zip(pairs, noisy.references.values(), strict=True):
                reference.append(pair.tgt)
        texts[name] = noisy
    return texts


def _cell(score: Score) -> str:
    difference = "" if score.difference is None else f" ({score.difference:+.2f})"
    return f"{score.score:.2f}{difference}"


def main() -> None:
    """Prints the scores."""
    parser = argparse.ArgumentParser(
        prog="python -m transformer_mt.contrib.robustness.noise_scores",
        description="Scores a model on its test set as it is, and with each kind of noise.",
    )
    setting = "as of mt-eval: model=FOLDER, and any of testset, metrics, format, …"
    parser.add_argument("settings", nargs="+", metavar="KEY=VALUE", help=setting)
    settings = parser.parse_args().settings
    with exit_status("noise_scores"), log_to(prefix="noise_scores: "):
        job = compose(settings, "evaluate")
        table = evaluate_robustness(job)
        print(table.to_json() if job.format == "json" else table.to_text())


if __name__ == "__main__":
    main()
