"""What each command runs, and what it prints to standard output.

The jobs load PyTorch, which ``--help`` does not need, so that each is imported when it runs.
"""

import sys
from typing import Any

from transformer_mt.cli.entry_points import exit_on_interrupt
from transformer_mt.config import EvaluateJob, ExportJob, TrainJob, TranslateJob
from transformer_mt.errors import InputError
from transformer_mt.progress_reporter import log_to


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
    with log_to(prefix="mt-translate: "):
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

    with log_to(prefix="mt-eval: "):
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
    with log_to(prefix="mt-export: "):
        export(job)
