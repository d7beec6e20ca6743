"""``python -m transformer_mt.cli train``, for a command whose console script is not on PATH."""

import sys

from transformer_mt.cli.entry_points import evaluate, export, train, translate

if __name__ == "__main__":
    commands = {"train": train, "translate": translate, "evaluate": evaluate, "export": export}
    if "".join(sys.argv[1:2]) not in commands:
        sys.exit(f"usage: python -m transformer_mt.cli {'|'.join(commands)} [KEY=VALUE ...]")
    commands[sys.argv.pop(1)]()
