"""``python -m transformer_mt.cli train``, for a command whose console script is not on PATH."""

import sys

from transformer_mt.cli.entry_points import evaluate, export, train, translate

if __name__ == "__main__":
    commands = {command.__name__: command for command in (train, translate, evaluate, export)}
    name = "".join(sys.argv[1:2])
    if name not in commands:
        sys.exit(f"usage: python -m transformer_mt.cli {'|'.join(commands)} [KEY=VALUE ...]")
    del sys.argv[1]
    commands[name]()
