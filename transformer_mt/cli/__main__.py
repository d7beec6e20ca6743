"""``python -m transformer_mt.cli train``, for a command whose console script is not on PATH."""

import sys

from transformer_mt.cli import PROGRAMS, main

if __name__ == "__main__":
    if (command := "".join(sys.argv[1:2])) not in PROGRAMS:
        usage = f"usage: python -m transformer_mt.cli {'|'.join(PROGRAMS)} [KEY=VALUE ...]"
        print(usage, file=sys.stderr)
        sys.exit(2)
    sys.argv[:2] = [PROGRAMS[command]]  # as for the console script: run.json records it
    getattr(main, command)()
