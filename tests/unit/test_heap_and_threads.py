"""Freed memory, kept until it is released; threads beside training."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from transformer_mt import heap_and_threads

needs_glibc = pytest.mark.skipif(
    sys.platform != "linux" or not (os.confstr("CS_GNU_LIBC_VERSION") or "").startswith("glibc"),
    reason="needs glibc",
)

PROGRAM = """
from transformer_mt import heap_and_threads

def resident_mb():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 / 1e6

heap_and_threads.keep_freed_memory()
before = resident_mb()
blocks = [b"x" * 1_000_000 for _ in range(100)]
blocks = blocks[-1:]  # the last block keeps the top of the heap
kept = resident_mb() - before
heap_and_threads.release_freed_memory()
print(kept, resident_mb() - before)
"""


@needs_glibc
def test_freed_memory_is_kept_until_it_is_released() -> None:
    output = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, check=True)
    kept, released = map(float, output.stdout.split())
    assert kept > 90
    assert released < 10


HUGE_PAGES = """
from transformer_mt import heap_and_threads

def requested():
    size, total = 0, 0
    for line in open("/proc/self/smaps"):
        if line.startswith("Size:"):
            size = int(line.split()[1])
        elif line.startswith("VmFlags:") and "hg" in line.split():
            total += size
    return total / 2**20

heap_and_threads.keep_freed_memory()
kept = requested()
heap_and_threads.release_freed_memory()
print(kept, requested())
"""


@needs_glibc
@pytest.mark.skipif(
    not heap_and_threads._may_extend_heap(), reason="no huge pages, or addresses are limited"
)
def test_the_heap_will_grow_in_huge_pages() -> None:
    output = subprocess.run([sys.executable, "-c", HUGE_PAGES], capture_output=True, check=True)
    assert [float(size) for size in output.stdout.split()] == pytest.approx([4, 4], abs=0.01)


def test_a_background_thread_computes_alone_and_leaves_others_their_threads() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        with heap_and_threads.background_thread("name") as thread:
            assert thread.submit(torch.get_num_threads).result() == 1
            assert torch.get_num_threads() == 3
        with ThreadPoolExecutor(1) as later:
            assert later.submit(torch.get_num_threads).result() == 3
    finally:
        torch.set_num_threads(before)
