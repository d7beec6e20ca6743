"""This machine: its processor or GPU, the cores that may be used, freed memory and threads.

The module does not need PyTorch until one of its functions does.
"""

import ctypes
import math
import os
import platform
import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

_CPU_INFO = Path("/proc/cpuinfo")
_CPU_QUOTA = Path("/sys/fs/cgroup/cpu.max")
"""CPU time of a container's control group, and the period in which it is granted."""


def device_name(device: "torch.device") -> str:
    """The name of a GPU, or of this machine's CPU."""
    if device.type == "cuda":
        import torch

        return torch.cuda.get_device_name(device)
    return _cpu_info("model name") or platform.processor() or platform.machine()


def has_fast_bf16(device: "torch.device") -> bool:
    """Whether matrix products in bf16 are faster than in fp32.

    On a CPU: with AMX, and on AMD with AVX-512; on Intel's without AMX they take twice as long.
    """
    if device.type == "cuda":
        import torch

        return torch.cuda.is_bf16_supported(including_emulation=False)
    flags = _cpu_info("flags").split()
    return "amx_bf16" in flags or ("avx512_bf16" in flags and is_amd_with_avx512())


def fastest_precision(device: "torch.device") -> str:
    """Precision of training in which matrix products are fastest: ``bf16``, ``fp16`` or ``fp32``.

    fp16 needs loss scaling, so it is for GPUs that have matrix units for nothing else: V100 and T4,
    with 8 times the rate of fp32.
    """
    if has_fast_bf16(device):
        return "bf16"
    if device.type == "cuda":
        import torch

        if torch.cuda.get_device_capability(device) >= (7, 0):
            return "fp16"
    return "fp32"


@cache
def is_amd_with_avx512() -> bool:
    """Whether the CPU is AMD's Zen 4 or later."""
    return _cpu_info("vendor_id") == "AuthenticAMD" and "avx512f" in _cpu_info("flags").split()


def available_cores() -> int:
    """Number of cores that this process may use, by its affinity and its control group's quota."""
    if not hasattr(os, "sched_getaffinity"):  # not Linux
        return os.cpu_count() or 1
    cores = len(os.sched_getaffinity(0))
    with suppress(OSError, ValueError):  # no control group, or "max" as its quota
        quota, period = map(float, _CPU_QUOTA.read_text().split())
        cores = min(cores, math.ceil(quota / period))
    return max(1, cores)


def physical_cores() -> int:
    """Number of physical cores that this process may use: threads of one core count once."""
    cores = available_cores()
    if not hasattr(os, "sched_getaffinity"):
        return cores
    cpus = (Path(f"/sys/devices/system/cpu/cpu{n}") for n in os.sched_getaffinity(0))
    topology = [cpu / "topology/thread_siblings_list" for cpu in cpus]
    if not all(path.exists() for path in topology):
        return cores
    return min(cores, len({path.read_text() for path in topology}))


def num_threads() -> int:
    """PyTorch's threads, or the available cores if they are fewer, as in a container."""
    import torch

    return min(torch.get_num_threads(), available_cores())


def set_up(device_type: str) -> None:
    """Sets the number of threads of this process and, for computing on a CPU, its allocator.

    PyTorch gets ``num_threads``, unless ``OMP_NUM_THREADS`` sets another number. On a CPU, glibc
    keeps large freed blocks for reuse: each update frees and allocates the same tensors, and the
    kernel clears each new page on first access, so that a 32 MB product takes 52 ms in new memory
    and 6 ms in reused memory. Other allocators, such as jemalloc, ignore this.
    """
    if device_type == "cpu":
        m_trim_threshold, m_mmap_max = -1, -4
        with suppress(OSError):  # not glibc
            glibc = ctypes.CDLL("libc.so.6")
            glibc.mallopt(m_mmap_max, 0)  # large blocks are in the heap, too
            glibc.mallopt(m_trim_threshold, -1)  # never
    if "OMP_NUM_THREADS" not in os.environ:
        import torch

        torch.set_num_threads(num_threads())


def background_thread(name: str) -> ThreadPoolExecutor:
    """A thread for work beside training, whose torch operations run in this thread alone.

    Each thread that computes in parallel has OpenMP threads of its own. With more of them than
    cores, GNU's OpenMP stops spinning, so that every operation of the main thread first waits for
    its threads to wake up: decoding takes twice as long.
    """
    import torch

    threads = torch.get_num_threads()
    executor = ThreadPoolExecutor(1, thread_name_prefix=name)
    executor.submit(torch.get_num_threads).result()  # initialises the thread, with the default
    executor.submit(torch.set_num_threads, 1).result()
    torch.set_num_threads(threads)  # the default of threads that start later
    return executor


def release_freed_memory() -> None:
    """Returns freed memory to the system, which takes glibc some 50 ms.

    For use between phases that allocate different tensors, such as training and validation, whose
    kept memory would add up.
    """
    with suppress(OSError):  # not glibc
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def _cpu_info(key: str) -> str:
    """A value of the first core in Linux's list; empty where there is none."""
    text = _CPU_INFO.read_text() if _CPU_INFO.exists() else ""
    line = re.search(rf"^{key}\s*: (.*)$", text, re.MULTILINE)
    return line[1] if line else ""
