"""What each command runs, and what it prints to standard output.

The jobs load PyTorch, which ``--help`` does not need, so that each is imported when it runs.
"""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from transformer_mt.cli.entry_points import exit_on_interrupt
from transformer_mt.config import EvaluateJob, ExportJob, TrainJob, TranslateJob
from transformer_mt.errors import InputError


def train(job: TrainJob) -> None:
    """Trains a model and prints its test scores, or where the prepared data is."""
    with exit_on_interrupt("mt-train", gigabytes=3):
        from transformer_mt.evaluation.scores import to_text
        from transformer_mt.jobs.train import train
    result = train(job)
    for name, path in result.prepared.items():
        print(name, path, sep="\t")
    if result.scores is not None:
        print(to_text(result.scores))


def translate(job: TranslateJob) -> None:
    """Translates a document, a file to a file, which can resume, or a stream."""
    with exit_on_interrupt("mt-translate", gigabytes=1):
        from transformer_mt.jobs.line_processor import translates_file

        if job.document_format is not None:
            from transformer_mt.jobs.translate_document import translate_document as run
        elif translates_file(job):
            from transformer_mt.jobs.translate_file import translate_file as run
        else:
            from transformer_mt.jobs.translate_stream import translate_stream as run
    with _messages_to_stderr("mt-translate"):
        run(job)


def evaluate(job: EvaluateJob) -> None:
    """Prints the scores of translations; the translation if only its attention is asked for."""
    with exit_on_interrupt("mt-eval", gigabytes=1):
        from transformer_mt.evaluation import robustness, score_tables
        from transformer_mt.jobs.evaluate import evaluate, evaluate_robustness, write_attention
    tables = robustness if job.robustness else score_tables
    to_string = tables.to_json if job.format == "json" else tables.to_text
    if sys.stdout is None:
        raise InputError("standard output is closed: send the scores to a file, > FILE")

    def show(scores: Any) -> None:
        print(to_string(scores), flush=True)

    with _messages_to_stderr("mt-eval"):
        if job.robustness:
            show(evaluate_robustness(job))
        elif job.attention is not None and job.report is None:
            print(write_attention(job).translation)
        else:
            evaluate(job, on_scores=show)


def export(job: ExportJob) -> None:
    """Converts a model folder to the format of another library."""
    with exit_on_interrupt("mt-export", gigabytes=1):
        from transformer_mt.jobs.export import export
    with _messages_to_stderr("mt-export"):
        export(job)


@contextmanager
def _messages_to_stderr(program: str) -> Iterator[None]:
    """Prints the log messages for the user to standard error, after the name of the program."""
    logger = logging.getLogger("transformer_mt.jobs")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter(f"{program}: %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
