"""The commands: their entry points, and what each of them runs and prints.

Loading the libraries takes seconds, so this module imports them when they are needed: Ctrl-C works
from the start, and ``--help`` needs no PyTorch.
"""

import logging
import sys
from functools import partial
from typing import TYPE_CHECKING

from transformer_mt.cli import PROGRAMS, Run
from transformer_mt.console import exit_status, log_to

if TYPE_CHECKING:
    from transformer_mt.config import Command, EvaluateJob, ExportJob, TrainJob, TranslateJob

log = logging.getLogger(__name__)


def main(command: "Command") -> None:
    """Runs a command with the arguments in ``sys.argv``: one job, or a sweep of jobs."""
    with exit_status(PROGRAMS[command]):
        arguments, run_job = sys.argv[1:], RUN[command]
        if any(argument.startswith("-") for argument in arguments):
            from transformer_mt.cli import command_line

            command_line.run(command, arguments, run_job)
        else:
            from transformer_mt.cli.compose import compose_job

            run_job(compose_job(command, arguments))


def train(job: "TrainJob") -> None:
    """Trains a model and prints its test scores, or where the prepared data is."""
    from transformer_mt.evaluation.scores import to_text
    from transformer_mt.jobs.train import num_processes, train, train_by_torchrun

    if (processes := num_processes(job)) > 1:  # the first of which prints the scores
        train_by_torchrun(job, processes, ["-m", "transformer_mt.cli", "train", *sys.argv[1:]])
        return
    result = train(job)
    for name, path in result.prepared.items():
        print(name, path, sep="\t")
    if result.scores is not None:
        print(to_text(result.scores))


def translate(job: "TranslateJob") -> None:
    """Translates lines, a file or a document."""
    from transformer_mt.jobs.translate import translate

    with log_to(prefix="mt-translate: "):
        translate(job)


def evaluate(job: "EvaluateJob") -> None:
    """Prints the scores of translations."""
    from transformer_mt.evaluation.score_tables import to_json, to_text
    from transformer_mt.jobs.evaluate import evaluate

    with log_to(prefix="mt-eval: "):
        evaluation = evaluate(job)
        for system in evaluation.systems:
            for message in system.diagnostics:
                log.warning("%s: %s", system.name, message)
        print(to_json(evaluation) if job.format == "json" else to_text(evaluation))


def export(job: "ExportJob") -> None:
    """Converts a model folder to the format of another library."""
    from transformer_mt.jobs.export import export

    with log_to(prefix="mt-export: "):
        export(job)


RUN: "dict[Command, Run]" = {
    "train": train,
    "translate": translate,
    "evaluate": evaluate,
    "export": export,
}
"""What each command of the table ``config.JOBS`` runs."""


# The console scripts.
mt_train = partial(main, "train")
mt_translate = partial(main, "translate")
mt_eval = partial(main, "evaluate")
mt_export = partial(main, "export")
