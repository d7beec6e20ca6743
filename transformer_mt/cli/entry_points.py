"""Console scripts of the commands.

Loading the libraries takes seconds, so this module imports none: Ctrl-C works from the start.
"""

from functools import partial
from typing import Literal

from transformer_mt.cli.exit_status import exit_on_interrupt


def run(command: Literal["train", "translate", "evaluate", "export"], program: str) -> None:
    """Runs a command with the arguments in ``sys.argv``."""
    with exit_on_interrupt(program):
        from transformer_mt.cli.main import main
    main(command)


train = partial(run, "train", "mt-train")
translate = partial(run, "translate", "mt-translate")
evaluate = partial(run, "evaluate", "mt-eval")
export = partial(run, "export", "mt-export")
