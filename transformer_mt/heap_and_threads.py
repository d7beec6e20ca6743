"""The process's C runtime: the heap of glibc and the threads of OpenMP."""

import ctypes
import mmap
import resource
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

_HEAP_GROWTH = 4 << 30
"""Bytes by which the heap is extended in advance, so that it grows in huge pages. Pages take memory
only when they are used."""

_HUGE_PAGE = Path("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size")
_OVERCOMMIT = Path("/proc/sys/vm/overcommit_memory")


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
    instead of 4 kB, training is about 2% faster (``scripts/bench/RESULTS.md``).
    """
    m_trim_threshold, m_mmap_max = -1, -4
    if glibc := _glibc():
        glibc.mallopt(m_mmap_max, 0)  # large blocks are in the heap, too
        glibc.mallopt(m_trim_threshold, -1)  # never
        _extend_heap(glibc)


def release_freed_memory() -> None:
    """Returns freed memory to the system, which takes glibc some 50 ms.

    For use between phases that allocate different tensors, such as training and validation, whose
    kept memory would add up.
    """
    if glibc := _glibc():
        glibc.malloc_trim(0)
        _extend_heap(glibc)


def _extend_heap(glibc: Any) -> None:
    """Extends the heap by address space for which Linux is asked to use huge pages."""
    if not _may_extend_heap():
        return
    glibc.malloc.restype = ctypes.c_void_p
    # At the end of the heap, which keeps the addresses, and the request, when it is freed.
    if block := glibc.malloc(ctypes.c_size_t(_HEAP_GROWTH)):
        start = -(-block // mmap.PAGESIZE) * mmap.PAGESIZE
        size = ctypes.c_size_t(block + _HEAP_GROWTH - start)
        glibc.madvise(ctypes.c_void_p(start), size, mmap.MADV_HUGEPAGE)
        glibc.free(ctypes.c_void_p(block))


def _may_extend_heap() -> bool:
    """Whether huge pages are small enough, and unused addresses count towards no limit."""
    limits = (resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA))
    if any(limit != resource.RLIM_INFINITY for limit in limits):
        return False
    with suppress(OSError, ValueError):
        return int(_HUGE_PAGE.read_text()) <= 2 << 20 and int(_OVERCOMMIT.read_text()) != 2
    return False


def _glibc() -> Any:
    """glibc, if this process allocates with it; otherwise None."""
    if sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "gnu_get_libc_version"):
        return None
    process, glibc = ctypes.CDLL(None), ctypes.CDLL("libc.so.6")
    functions = (ctypes.cast(library.malloc, ctypes.c_void_p) for library in (process, glibc))
    own, original = (function.value for function in functions)
    return glibc if own == original else None  # not jemalloc's or tcmalloc's
