"""``mt-eval``: compose the configuration and run ``jobs.evaluate``."""

import re
import sys

from transformer_mt.cli import app
from transformer_mt.config import EvaluateJob
from transformer_mt.jobs.evaluate import run


def main() -> None:
    """Entry point of ``mt-eval``."""
    sys.argv[1:] = [_as_typed(argument) for argument in sys.argv[1:]]
    app.main("evaluate", EvaluateJob, run)


def _as_typed(argument: str) -> str:
    """``attention=SENTENCE`` quoted for Hydra, to whom an apostrophe or a comma is syntax."""
    key, _, text = argument.partition("=")
    quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "'\""
    if key != "attention" or quoted or text in ("", "null"):
        return argument
    # In Hydra's strings a backslash is one, unless a quote comes after it.
    escaped = re.sub(r'(\\*)("|$)', lambda m: 2 * m[1] + ('\\"' if m[2] else ""), text)
    return f'attention="{escaped}"'


if __name__ == "__main__":
    main()
