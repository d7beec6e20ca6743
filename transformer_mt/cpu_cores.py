"""Number of CPU cores that this process may use, which PyTorch does not fully respect."""

import math
import os
from pathlib import Path, PurePosixPath


def available_cores() -> int:
    """Number of cores that this process may use, by its affinity and its control group's quota."""
    if hasattr(os, "sched_getaffinity"):  # Linux
        return max(1, math.ceil(min(len(os.sched_getaffinity(0)), _cpu_quota(Path("/")))))
    return os.cpu_count() or 1


def physical_cores() -> int:
    """Number of these cores that are not hardware threads of the same core."""
    cores = available_cores()
    if not hasattr(os, "sched_getaffinity"):
        return cores
    topology = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
    try:
        siblings = {Path(topology.format(n)).read_text() for n in os.sched_getaffinity(0)}
    except OSError:
        return cores
    return min(cores, len(siblings))


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
