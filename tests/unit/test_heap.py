"""Freed memory is kept for reuse until it is released."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or not (os.confstr("CS_GNU_LIBC_VERSION") or "").startswith("glibc"),
    reason="needs glibc",
)

PROGRAM = """
from transformer_mt import heap

def resident_mb():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 / 1e6

heap.keep_freed_memory()
before = resident_mb()
blocks = [b"x" * 1_000_000 for _ in range(100)]
blocks = blocks[-1:]  # the last block keeps the top of the heap
kept = resident_mb() - before
heap.release_freed_memory()
print(kept, resident_mb() - before)
"""


def test_freed_memory_is_kept_until_it_is_released() -> None:
    output = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, check=True)
    kept, released = map(float, output.stdout.split())
    assert kept > 90
    assert released < 10
