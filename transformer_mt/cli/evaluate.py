"""``mt-eval``: score a model folder or files of translations, and print the scores."""

import re
import sys
from typing import TYPE_CHECKING

from transformer_mt.cli import main as cli
from transformer_mt.cli.entry_points import exit_on_interrupt
from transformer_mt.config import EvaluateJob
from transformer_mt.errors import InputError

if TYPE_CHECKING:
    from transformer_mt.evaluation.comparison import Evaluation


def main() -> None:
    """Run ``mt-eval``: compose its job from the command line, then call ``run``."""
    sys.argv[1:] = [_quote_attention(argument) for argument in sys.argv[1:]]
    cli.main("evaluate", run)


def run(job: EvaluateJob) -> None:
    """Run an evaluation and print its scores; of an attention page alone, the translation."""
    with exit_on_interrupt("mt-eval"):  # loads PyTorch, which --help does not need
        from transformer_mt.evaluation.score_tables import to_json, to_text
        from transformer_mt.jobs.evaluate import evaluate, write_attention
    if sys.stdout is None:
        raise InputError("standard output is closed: send the scores to a file, > FILE")

    def show(evaluation: "Evaluation") -> None:
        text = to_json(evaluation) if job.format == "json" else to_text(evaluation)
        print(text, flush=True)

    with cli.messages_to_stderr("mt-eval"):
        if job.attention is not None and job.report is None:
            print(write_attention(job).translation)
        else:
            evaluate(job, on_scores=show)


def _quote_attention(argument: str) -> str:
    """Quote ``attention=SENTENCE``, in which Hydra would take apostrophes and commas as syntax."""
    key, _, text = argument.partition("=")
    quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "'\""
    if key != "attention" or quoted or text in ("", "null"):
        return argument
    # In Hydra's strings a backslash stands for itself, except before a quote.
    escaped = re.sub(r'(\\*)("|$)', lambda m: 2 * m[1] + ('\\"' if m[2] else ""), text)
    return f'attention="{escaped}"'


if __name__ == "__main__":
    main()
