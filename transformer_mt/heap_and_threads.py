"""The process's C runtime: the heap of glibc and the threads of OpenMP."""

import ctypes
import mmap
import resource
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

_OVERCOMMIT = Path("/proc/sys/vm/overcommit_memory")

_BLOCK_SIZE, _NUM_BLOCKS = 1 << 30, 4
"""Blocks of bytes by which the heap may grow in huge pages; memory is taken only as it is used."""


def background_thread(name: str) -> ThreadPoolExecutor:
    """A thread for work beside training, whose torch operations run in this thread alone.

    Each thread that computes in parallel has OpenMP threads of its own. With more of them than
    cores, GNU's OpenMP stops spinning, so that every operation of the main thread first waits for
    its threads to wake up: decoding takes twice as long.
    """
    threads = torch.get_num_threads()
    executor = ThreadPoolExecutor(1, thread_name_prefix=name)
    executor.submit(_compute_alone).result()
    torch.set_num_threads(threads)  # the default of threads that start later
    return executor


def _compute_alone() -> None:
    torch.get_num_threads()  # initialises the thread, with the default
    torch.set_num_threads(1)


def keep_freed_memory() -> None:
    """Makes glibc keep large freed blocks for reuse, in huge pages where Linux has them.

    Each update frees and allocates the same tensors, and the kernel clears each new page on first
    access: a 32 MB product takes 52 ms in new memory and 6 ms in reused memory. In pages of 2 MB
    instead of 4 kB, training is 2 to 4% faster (``scripts/bench/RESULTS.md``).
    """
    m_trim_threshold, m_mmap_threshold = -1, -3
    if glibc := _glibc():
        glibc.mallopt(m_mmap_threshold, 2**31 - 1)
        glibc.mallopt(m_trim_threshold, -1)  # never
        _use_huge_pages(glibc)


def release_freed_memory() -> None:
    """Returns freed memory to the system, which takes glibc some 50 ms.

    For use between phases that allocate different tensors, such as training and validation, whose
    kept memory would add up.
    """
    if glibc := _glibc():
        glibc.malloc_trim(0)
        _use_huge_pages(glibc)


def _use_huge_pages(glibc: Any) -> None:
    """Asks for huge pages where the heap will grow."""
    if _counts_unused_memory():
        return
    glibc.malloc.restype = ctypes.c_void_p
    # The last blocks of the heap, which stay part of it when they are freed.
    blocks = [glibc.malloc(ctypes.c_size_t(_BLOCK_SIZE)) for _ in range(_NUM_BLOCKS)]
    for block in filter(None, blocks):
        start = block // mmap.PAGESIZE * mmap.PAGESIZE
        size = ctypes.c_size_t(_BLOCK_SIZE + mmap.PAGESIZE)
        glibc.madvise(ctypes.c_void_p(start), size, mmap.MADV_HUGEPAGE)
        glibc.free(ctypes.c_void_p(block))


def _counts_unused_memory() -> bool:
    """Whether address space that is not in use counts towards a limit."""
    limits = (resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA))
    has_limit = any(limit != resource.RLIM_INFINITY for limit in limits)
    return has_limit or (_OVERCOMMIT.exists() and _OVERCOMMIT.read_text().strip() == "2")


def _glibc() -> Any:
    """The C library, with functions that others lack; None if it is another one."""
    library = ctypes.CDLL(None) if sys.platform == "linux" else None
    return library if hasattr(library, "mallopt") else None
