"""The commands: their entry points, and what each of them runs and prints.

Loading the libraries takes seconds, so this module imports them when they are needed: Ctrl-C works
from the start, and ``--help`` needs no PyTorch.
"""

import sys
from functools import partial
from io import TextIOWrapper
from itertools import pairwise
from typing import TYPE_CHECKING

from transformer_mt import __version__
from transformer_mt.cli import PROGRAMS, Run
from transformer_mt.cli.exit_status import exit_status
from transformer_mt.progress_reporter import log_to

if TYPE_CHECKING:
    from transformer_mt.config import Command, EvaluateJob, ExportJob, TrainJob, TranslateJob


def main(command: "Command", run: Run | None = None) -> None:
    """Runs a command with the arguments in ``sys.argv``: one job, or a sweep of jobs.

    Args:
        command: ``train``, ``translate``, ``evaluate`` or ``export``.
        run: The command's own function unless given.

    Raises:
        SystemExit: The command failed; its code is the exit status.
    """
    program, run_job = PROGRAMS[command], run or _RUN[command]
    with exit_status(program):
        from transformer_mt.cli.compose import compose

        if isinstance(sys.stdout, TextIOWrapper):
            sys.stdout.reconfigure(encoding="utf-8")  # whatever the locale
        overrides, flags = list[str](), list[str]()  # flags, and their values
        for before, argument in pairwise(sys.argv):
            is_folder = before in ("--config-dir", "-cd")  # of a sweep, such as train.seed=1
            if is_folder or "=" not in argument or argument.startswith("-"):
                flags.append(argument)
            else:
                overrides.append(argument)
        if "--version" in flags:
            print(program, __version__)
        elif "--help" in flags or "-h" in flags:
            from transformer_mt.cli.help import help_text

            print(help_text(command))
        elif flags or "hydra" in str(overrides):
            from transformer_mt.cli.hydra_flags import run_with_hydra

            run_with_hydra(command, run_job, flags, overrides)
        else:
            run_job(compose(overrides, command))  # Hydra's main would compose it twice


def train(job: "TrainJob") -> float | None:
    """Trains a model and prints its test scores, or where the prepared data is.

    Returns:
        The objective of a search over settings: the best value of ``train.best_by``.
    """
    from transformer_mt.evaluation.scores import to_text
    from transformer_mt.jobs.train import num_processes, train, train_by_torchrun

    if (processes := num_processes(job)) > 1:  # the first of which prints the scores
        command = ["-m", "transformer_mt.cli", "train", *sys.argv[1:]]
        return train_by_torchrun(job, processes, command)
    result = train(job)
    for name, path in result.prepared.items():
        print(name, path, sep="\t")
    if result.scores is not None:
        print(to_text(result.scores))
    return result.best


def translate(job: "TranslateJob") -> None:
    """Translates lines, a file or a document."""
    from transformer_mt.jobs.translate import translate

    with log_to(prefix="mt-translate: "):
        translate(job)


def evaluate(job: "EvaluateJob") -> None:
    """Prints the scores of translations, or what the job asks for in place of them."""
    from transformer_mt.jobs.evaluate import Evaluator

    with log_to(prefix="mt-eval: "):
        for text in Evaluator(job).run():
            print(text, flush=True)


def export(job: "ExportJob") -> None:
    """Converts a model folder to the format of another library."""
    from transformer_mt.jobs.export import export

    with log_to(prefix="mt-export: "):
        export(job)


_RUN: "dict[Command, Run]" = {
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
