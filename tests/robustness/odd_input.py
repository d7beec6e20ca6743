"""Unusual input for mt-translate: a table of lines in, lines out, seconds and messages per file.

    python tests/robustness/odd_input.py --model runs/mine
    python tests/robustness/odd_input.py --model runs/mine engine=torch beam_size=1

Lines end at a line feed. As many lines must come out as go in, and the exit status must be 0;
otherwise the table says so and this script exits with status 1. Further arguments are settings of
mt-translate. The seconds include its start-up; see the row without lines.
"""

import argparse
import random
import subprocess
import sys
import time
from collections.abc import Sequence

LIMIT = 600.0
"""Maximum seconds per file."""


def inputs() -> dict[str, bytes]:
    """Contents of the input files, by description."""
    rng = random.Random(1)
    letters = "".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=100_000))
    inside = "One.\u2028Two.\u2029Three.\x85Four.\x0cFive.\x0bSix.\x1cSeven."
    return {
        "nothing": b"",
        "empty lines only": b"\n\n\n",
        "100,000 spaces; a tab; a no-break space": b" " * 100_000 + b"\n\t\n\xc2\xa0\n",
        "no line feed at the end": b"A dog.\nA cat.",
        "CR LF, byte order mark": b"\xef\xbb\xbfA dog.\r\n\r\nA cat.\r\n",
        "CR inside lines": b"A dog.\rA cat.\nA man.\r\rA boy.\n",
        "U+2028, U+2029, U+0085, FF, VT, FS in a line": f"{inside}\n".encode(),
        "invalid UTF-8, half of a character, surrogates": (
            b"A \xff dog.\nA cat \xe2\x82\n\xed\xa0\x80 and \xed\xbf\xbf\n"
        ),
        "NULs": b"A\x00dog.\n\x00\n",
        "all 256 bytes, eight times": bytes(range(256)) * 8 + b"\n",
        "characters not in the training data": "🦊 ꙮ ᚠᛇᚻ 漢字 \U0010fffd e\u0301\u0323\n".encode(),
        "a letter with 10,000 accents": ("a" + "\u0301" * 10_000 + "\n").encode(),
        "right to left, with overrides": "שלום \u202eabc\u202c العالم\n".encode(),
        "a word of 100,000 equal letters": b"a" * 100_000 + b"\n",
        "a word of 100,000 letters": f"{letters}\n".encode(),
        '"the dog " 12,500 times': b"the dog " * 12_500 + b"\n",
        "100,000 digits": b"7" * 100_000 + b"\n",
        "special symbols of the vocabulary": b"<s> </s> <unk> <pad> <0x41> \xe2\x96\x81\n",
        "20,000 empty lines, one with text": b"\n" * 10_000 + b"A dog.\n" + b"\n" * 10_000,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    summary, _, details = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        description=summary, epilog=details, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", required=True, help="folder of a trained model")
    parser.add_argument("settings", nargs="*", help="settings of mt-translate")
    options = parser.parse_args(arguments)
    command = [sys.executable, "-m", "transformer_mt.cli", "translate", f"model={options.model}"]
    failed = 0
    print("| input | lines in | lines out | s | messages |\n|:--|--:|--:|--:|:--|")
    for name, content in inputs().items():
        lines = content.count(b"\n") + (not content.endswith(b"\n") and bool(content))
        started = time.perf_counter()
        done = subprocess.run(
            [*command, *options.settings], input=content, capture_output=True, timeout=LIMIT
        )
        seconds = time.perf_counter() - started
        messages, out = done.stderr.decode(), done.stdout.count(b"\n")
        good = done.returncode == 0 and out == lines and "Traceback" not in messages
        failed += not good
        label = name if good else f"**{name}** (status {done.returncode})"
        short = (line.removeprefix("mt-translate: ") for line in messages.splitlines())
        notes = "; ".join(line.partition(" (the first")[0] for line in short)
        print(f"| {label} | {lines:,} | {out:,} | {seconds:.1f} | {notes} |", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
