"""``python -m transformer_mt.cli train``, for a command whose console script is not on PATH."""

import sys

from transformer_mt.cli.entry_points import evaluate, export, train, translate

if __name__ == "__main__":
    commands = {"train": train, "translate": translate, "evaluate": evaluate, "export": export}
    name = "".join(sys.argv[1:2])
    if name not in commands:
        sys.exit(f"usage: python -m transformer_mt.cli {'|'.join(commands)} [KEY=VALUE ...]")
    # As the console script, which provenance records.
    sys.argv[:2] = ["mt-eval" if name == "evaluate" else f"mt-{name}"]
    commands[name]()
