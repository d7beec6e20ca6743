"""The CPU or GPU: its name, its exact model, whether its bf16 products are fast; usable cores."""

import math
import os
import platform
import re
from pathlib import Path, PurePosixPath

import torch

_CPU_INFO = Path("/proc/cpuinfo")


def name(device: torch.device) -> str:
    """The name of a GPU, or of this machine's CPU."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return _cpu_info("model name") or platform.processor() or platform.machine()


def exact_model(device: torch.device) -> str:
    """The name, and for a CPU what virtual machines leave out of it: generation, vector width."""
    if device.type == "cuda":
        return name(device)
    generation = [f"{key} {_cpu_info(key)}" for key in ("cpu family", "model", "stepping")]
    return ", ".join([name(device), *generation, torch.backends.cpu.get_cpu_capability()])


def has_fast_bf16(device: torch.device) -> bool:
    """Whether matrix products are faster in bf16 than in fp32."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    # 2–3 times the fp32 rate on a CPU with AVX-512-BF16 or AMX; slower than fp32 on others.
    # These functions are private to torch; without them the safe answer is no.
    tests = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    return any(getattr(torch.cpu, test, bool)() for test in tests)


def available_cores() -> int:
    """Number of cores that this process may use, by its affinity and its control group's quota."""
    if hasattr(os, "sched_getaffinity"):  # Linux
        return max(1, math.ceil(min(len(os.sched_getaffinity(0)), _cpu_quota(Path("/")))))
    return os.cpu_count() or 1


def _cpu_info(key: str) -> str:
    """A value of the first core in Linux's list; empty where there is none."""
    text = _CPU_INFO.read_text() if _CPU_INFO.exists() else ""
    found = re.search(rf"^{key}\s*: (.*)$", text, re.MULTILINE)
    return found[1] if found else ""


def _cpu_quota(root: Path) -> float:
    """CPU quota of this process's control groups, in cores; infinite without one.

    The limits of all enclosing groups apply (``joblib.cpu_count`` reads only the root's). Inside a
    container only the container's own group is visible, as the root.
    """
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return math.inf
    quota = math.inf
    for _, controllers, name in (line.split(":", 2) for line in lines):
        mount, files = root / "sys/fs/cgroup", ["cpu.max"]
        if "cpu" in controllers.split(","):  # version 1
            mount, files = mount / "cpu", ["cpu.cfs_quota_us", "cpu.cfs_period_us"]
        elif controllers:  # version 1, another controller
            continue
        path = PurePosixPath(name.lstrip("/"))
        for group in (path, *path.parents):
            try:
                numbers = " ".join((mount / group / file).read_text() for file in files).split()
                limit, period = (float(number) for number in numbers)
            except (OSError, ValueError):  # no such file, or "max"
                continue
            if limit > 0:  # version 1 has -1 for no limit
                quota = min(quota, limit / period)
    return quota
