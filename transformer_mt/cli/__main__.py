"""``python -m transformer_mt.cli train``, for a command whose console script is not on PATH."""

import sys

from transformer_mt.cli import PROGRAMS
from transformer_mt.cli.main import main

if __name__ == "__main__":
    command = "".join(sys.argv[1:2])
    if command not in PROGRAMS:
        usage = f"usage: python -m transformer_mt.cli {'|'.join(PROGRAMS)} [KEY=VALUE ...]"
        print(usage, file=sys.stderr)
        sys.exit(2)
    sys.argv[:2] = [PROGRAMS[command]]  # as for the console script: run.json records it
    main(command)
