"""The process's C runtime: the heap of glibc and the threads of OpenMP."""

import ctypes
import sys
from concurrent.futures import ThreadPoolExecutor

import torch


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
    """Makes glibc keep large freed blocks for reuse instead of returning them to the system.

    Each update frees and allocates the same tensors, and the kernel clears each new page on first
    access: a 32 MB product takes 52 ms in new memory and 6 ms in reused memory.
    """
    m_trim_threshold, m_mmap_threshold, maximum = -1, -3, 2**31 - 1
    _call("mallopt", m_mmap_threshold, maximum)
    _call("mallopt", m_trim_threshold, maximum)


def release_freed_memory() -> None:
    """Returns freed memory to the system, which takes glibc some 50 ms.

    For use between phases that allocate different tensors, such as training and validation, whose
    kept memory would add up.
    """
    _call("malloc_trim", 0)


def _call(name: str, *arguments: int) -> None:
    """Calls a function of glibc; other C libraries lack it."""
    if sys.platform == "linux":
        function = getattr(ctypes.CDLL(None), name, None)
        if function is not None:
            function(*arguments)
