"""Scores a model under noise: on the test set as it is, and with each kind on all lines.

python -m transformer_mt.contrib.robustness.noise_scores model=runs/mine
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
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


def to_text(results: Sequence[NoiseScores]) -> str:
    """A table with the differences to the clean source in brackets, and the signatures."""
    rows = [
        [
            f"{result.noise} {result.scores[0].tag}".strip(),
            f"{result.changed:,} of\n{result.scores[0].segments:,}",
            *map(_cell, result.scores),
        ]
        for result in results
    ]
    headers = ["Source", "lines\nchanged", *(score.name for score in results[0].scores)]
    lines = [tabulate(rows, headers=headers, tablefmt="fancy_grid", disable_numparse=True)]
    for result in results:
        if result.noise == CLEAN:
            for score in result.scores:
                lines += [score.label, f"  {score.short_signature}"]
    return "\n".join(lines)


def evaluate_robustness(job: EvaluateJob) -> list[NoiseScores]:
    """Scores the model of a job on its test set as it is and with noise, tag by tag.

    Args:
        job: As for ``evaluate``, without ``report`` and ``format``.

    Raises:
        InputError: As ``evaluate`` does, or the job has no model or asks for more than a table.
    """
    require(job.model is not None, "set model=FOLDER: noise is added to what a model translates")
    job.require_defaults("report", "format", reason="is for mt-eval only")
    job = replace(job, metrics=job.metrics or ["bleu", "chrf"])
    clean = evaluate(job)
    lines, results = clean.test.split_source(), list[NoiseScores]()
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
            results.append(NoiseScores(name, changed, scores))
    return results


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
    setting = "as of mt-eval: model=FOLDER, and any of testset, metrics, …"
    parser.add_argument("settings", nargs="+", metavar="KEY=VALUE", help=setting)
    options = parser.parse_args()
    with exit_status("noise_scores"), log_to(prefix="noise_scores: "):
        print(to_text(evaluate_robustness(compose(options.settings, "evaluate"))))


if __name__ == "__main__":
    main()
