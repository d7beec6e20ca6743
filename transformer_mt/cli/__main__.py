"""``python -m transformer_mt.cli train``, for a command whose console script is not on PATH."""

import sys

from transformer_mt.cli.entry_points import evaluate, export, train, translate

if __name__ == "__main__":
    commands = {each.args[0]: each for each in (train, translate, evaluate, export)}
    if (command := commands.get("".join(sys.argv[1:2]))) is None:
        usage = f"usage: python -m transformer_mt.cli {'|'.join(commands)} [KEY=VALUE ...]"
        print(usage, file=sys.stderr)
        sys.exit(2)
    sys.argv[:2] = [command.args[1]]  # as for the console script: run.json records it
    command()
