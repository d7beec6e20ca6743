"""Scores of texts by several metrics, and texts that are worse than others."""

import os
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from transformer_mt.evaluation.metrics import make_metric
from transformer_mt.evaluation.scores import Score, make_score


def score(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    tgt_lang: str | None = None,
    metrics: Sequence[str] = ("bleu", "chrf", "ter"),
) -> list[Score]:
    return [make_score(make_metric(name, tgt_lang), hypotheses, references) for name in metrics]


def perturbed(lines: Sequence[str], seed: int, share: float = 0.1) -> list[str]:
    """A share of the words is dropped, and in many lines two neighbours are swapped."""
    draw, result = random.Random(seed), []
    for line in lines:
        words = [word for word in line.split(" ") if draw.random() > share]
        if len(words) > 2 and draw.random() < 0.5:
            i = int(draw.random() * (len(words) - 1))
            words[i], words[i + 1] = words[i + 1], words[i]
        result.append(" ".join(words))
    return result


def python(folder: Path, *arguments: str) -> str:
    """Output of Python in a folder, where sacreBLEU's test sets are as well."""
    ours = ("SACREBLEU_FORMAT", "SACREBLEU_SEED")
    environment = {k: v for k, v in os.environ.items() if k not in ours}
    environment |= {"NO_COLOR": "1", "SACREBLEU": str(folder)}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, check=True
    )
    return done.stdout.decode()
