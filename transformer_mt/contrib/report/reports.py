"""The files that ``mt-eval`` writes for ``report`` and ``attention``, and what it prints then."""

import shlex
import sys
from collections.abc import Iterator
from datetime import date
from pathlib import Path

from transformer_mt import Evaluator
from transformer_mt.contrib.report.attention import Attention, compute_attention, image
from transformer_mt.contrib.report.pages import attention_page, report_page


def write_report(evaluator: Evaluator) -> Iterator[str]:
    """Writes the report, with the attention weights of a sentence if there is one: a ``Report``."""
    settings = evaluator.settings(bootstrap=1000)
    settings.metric("bleu")  # of the charts; a missing tokeniser is reported before the work
    attention = None if evaluator.job.attention is None else _attend(evaluator)
    evaluation = evaluator.evaluate(settings)
    yield evaluator.to_string(evaluation)
    command = shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
    facts = {**evaluator.facts, "command": command, "date": f"{date.today()}"}
    records = evaluator.training_records
    page = report_page(evaluation, facts=facts, curves=records, attention=attention)
    evaluator.write("report", page.encode())


def show_attention(evaluator: Evaluator) -> Iterator[str]:
    """Writes the attention weights of a sentence, and prints its translation: a ``Report``."""
    yield _attend(evaluator).translation


def _attend(evaluator: Evaluator) -> Attention:
    """Computes the attention of the job's sentence and writes the file that the job names."""
    job = evaluator.job
    attention = compute_attention(evaluator)
    if (output := job.attention_output) is not None:
        is_page = Path(output).suffix == ".html"
        content = attention_page(attention).encode() if is_page else image(attention)
        evaluator.write("attention_output", content)
    return attention
