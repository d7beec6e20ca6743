"""Scores a model under noise: on the test set as it is, and with each kind on all lines.

python -m transformer_mt.contrib.robustness.noise_scores model=runs/mine
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import ne

import numpy as np
from tabulate import tabulate

from transformer_mt import Score, compose, evaluate
from transformer_mt.config import EvaluateJob
from transformer_mt.config.checks import require
from transformer_mt.console import exit_status, log_to
from transformer_mt.contrib.robustness.noise import NOISES
from transformer_mt.protocols import Pair, PairNoise

CLEAN = "clean"
"""Name of the test set as it is."""

_SEED = 6
"""First number of the seeds; the second is the number of the line."""


@dataclass(frozen=True)
class NoiseScores:
    """Scores under one kind of noise."""

    noise: str
    """A name of ``NOISES``, or ``clean``."""
    changed: int
    """Number of source lines that differ from the clean ones."""
    scores: list[Score]
    """For each tag and metric, with the difference from the clean score unless it is that one."""


def to_text(results: Sequence[NoiseScores]) -> str:
    """A table with the differences to the clean source in brackets, and the signatures."""
    rows = [[r.noise, f"{r.changed:,}", *map(_cell, r.scores)] for r in results]
    scores = results[0].scores
    headers = ["Source", "lines\nchanged", *(score.label.replace(" ", "\n") for score in scores)]
    lines = [tabulate(rows, headers=headers, tablefmt="fancy_grid", disable_numparse=True)]
    for score in scores:
        lines += [score.label, f"  {score.signature}"]
    return "\n".join(lines)


def evaluate_robustness(job: EvaluateJob) -> list[NoiseScores]:
    """Scores the model of a job on its test set as it is and with noise.

    Args:
        job: As for ``evaluate``, without ``report``, ``format``, ``by_length`` and ``bootstrap``.

    Raises:
        InputError: As ``evaluate`` does, or the job has no model or asks for more than a table.
    """
    require(job.model is not None, "set model=FOLDER: noise is added to what a model translates")
    job.require_defaults("report", "format", "by_length", "bootstrap", reason="is for mt-eval only")
    job = replace(job, metrics=job.metrics or ["bleu", "chrf"])
    clean = evaluate(job)
    test, before = clean.test, clean.systems[0].scores
    results = [NoiseScores(CLEAN, 0, before)]
    lines = test.split_source()
    for name, noise in NOISES.items():
        source, references = noisy_text(lines, test.references, noise)
        noisy = evaluate(job, replace(test, source=source, references=references))
        pairs = zip(noisy.systems[0].scores, before, strict=True)
        scores = [replace(new, difference=new.score - old.score) for new, old in pairs]
        results.append(NoiseScores(name, sum(map(ne, noisy.test.split_source(), lines)), scores))
    return results


def noisy_text(
    lines: Sequence[tuple[str, str]], references: Mapping[str, Sequence[str]], noise: PairNoise
) -> tuple[list[str], dict[str, list[str]]]:
    """Source with noise on all lines, and references with what of it a translation keeps.

    Args:
        lines: The tag of each line, which noise never changes, or "", and its text.
        references: The reference translations by the name of their file.
        noise: What adds it.
    """
    source, noisy = list[str](), {name: list[str]() for name in references}
    for i, (tag, text) in enumerate(lines):
        given = [Pair(text, reference[i]) for reference in references.values()]
        pairs = [noise(pair, np.random.default_rng([_SEED, i])) for pair in given]
        if any(pair.src == text for pair in pairs):  # it does not suit one of the references
            pairs = given
        source.append(f"{tag} {pairs[0].src}" if tag else pairs[0].src)
        for pair, reference in zip(pairs, noisy.values(), strict=True):
            reference.append(pair.tgt)
    return source, noisy


def _cell(score: Score) -> str:
    difference = "" if score.difference is None else f" ({score.difference:+.2f})"
    return f"{score.score:.2f}{difference}"


def main() -> None:
    """Prints the scores."""
    parser = argparse.ArgumentParser(
        prog="python -m transformer_mt.contrib.robustness.noise_scores",
        description="Scores a model on its test set as it is, and with each kind of noise.",
    )
    parser.add_argument("settings", nargs="+", metavar="KEY=VALUE", help="those of mt-eval")
    options = parser.parse_args()
    with exit_status("noise_scores"), log_to(prefix="noise_scores: "):
        print(to_text(evaluate_robustness(compose(options.settings, "evaluate"))))


if __name__ == "__main__":
    main()
