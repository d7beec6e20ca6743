"""Scores a model under noise: on the test set as it is, and with each kind on all source lines.

python -m transformer_mt.contrib.robustness.noise_scores model=runs/mine
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby

import numpy as np
from tabulate import tabulate

from transformer_mt import Evaluator, Score, compose
from transformer_mt.cli.exit_status import exit_status
from transformer_mt.config import EvaluateJob
from transformer_mt.config.checks import require
from transformer_mt.contrib.robustness.noise import NOISES
from transformer_mt.progress_reporter import log_to

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
        job: As for ``evaluate``. Metrics that read the source, intervals and a report do not exist.

    Raises:
        InputError: As ``evaluate`` does, or the job has no model or asks for one of these.
    """
    require(job.model is not None, "set model=FOLDER: noise is added to what a model translates")
    for key in ("bootstrap", "report"):
        require(getattr(job, key) is None, f"{key} is for mt-eval only")
    evaluator = Evaluator(job)
    settings = evaluator.settings(METRICS)
    for name in job.metrics or []:
        require(name in settings.names, f"metrics: {name} is for mt-eval only")
    lines = evaluator.test.split_source()
    sources = noisy_sources(lines)
    distinct = list(dict.fromkeys(chain.from_iterable(sources.values())))
    translations = dict(zip(distinct, evaluator.translate(distinct), strict=True))
    hypotheses = {
        noise: [translations[line] for line in source] for noise, source in sources.items()
    }
    systems = evaluator.score(hypotheses, settings).systems
    clean, table = systems[0], NoiseTable()
    for tag in dict.fromkeys(tag for tag, _ in lines):
        own = [i for i, line in enumerate(lines) if line[0] == tag]
        for system in systems:
            noisy = sources[system.name]
            changed = sum(noisy[i] != sources[CLEAN][i] for i in own)
            scores = [
                item if system is clean else replace(item, difference=item.score - before.score)
                for item, before in zip(system.scores, clean.scores, strict=True)
                if item.tag == tag
            ]
            table.append(NoiseScores(system.name, changed, scores))
    return table


def noisy_sources(lines: Sequence[tuple[str, str]]) -> dict[str, list[str]]:
    """The source as it is and with each kind of noise, the same at every call.

    Args:
        lines: The tag of each line, which noise never changes, or "", and its text.
    """
    sources = {CLEAN: [_line(tag, text) for tag, text in lines]}
    for name, noise in NOISES.items():
        sources[name] = [
            _line(tag, noise(text, np.random.default_rng([_SEED, i])))
            for i, (tag, text) in enumerate(lines)
        ]
    return sources


def _line(tag: str, text: str) -> str:
    return f"{tag} {text}" if tag else text


def _cell(score: Score) -> str:
    difference = "" if score.difference is None else f" ({score.difference:+.2f})"
    return f"{score.score:.2f}{difference}"


def main() -> None:
    """Prints the scores."""
    parser = argparse.ArgumentParser(
        prog="python -m transformer_mt.contrib.robustness.noise_scores",
        description="Scores a model on its test set as it is, and with each kind of noise.",
    )
    setting = "as of mt-eval: model=FOLDER, and any of testset, subset, metrics, format, …"
    parser.add_argument("settings", nargs="+", metavar="KEY=VALUE", help=setting)
    settings = parser.parse_args().settings
    with exit_status("noise_scores"), log_to(prefix="noise_scores: "):
        job = compose(settings, "evaluate")
        table = evaluate_robustness(job)
        print(table.to_json() if job.format == "json" else table.to_text())


if __name__ == "__main__":
    main()
