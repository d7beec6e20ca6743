"""Memory and CPU time of a process and all its descendants, from Linux's /proc."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Usage:
    """Resources of a process tree; all zero once the process has ended."""

    pss: int = 0
    """Proportional set size in bytes: pages that several processes share are counted once."""
    rss: int = 0
    """Resident set sizes in bytes, added up: shared pages are counted for each process."""
    cpu_seconds: float = 0.0
    """CPU time, user and system, of the processes and of children that have ended."""

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.pss + other.pss, self.rss + other.rss, self.cpu_seconds + other.cpu_seconds
        )


def usage(pid: int) -> Usage:
    """Resources that a process and its descendants use now."""
    folder = Path(f"/proc/{pid}")
    try:
        memory = (folder / "smaps_rollup").read_text()
        # The name of the program, in brackets, may contain spaces.
        fields = (folder / "stat").read_text().rpartition(")")[2].split()
        tasks = [(task / "children").read_text() for task in (folder / "task").iterdir()]
    except OSError:  # it has ended
        return Usage()
    own = {name: int(kb) << 10 for name, kb in re.findall(r"^(Pss|Rss):\s+(\d+)", memory, re.M)}
    ticks = sum(map(int, fields[11:15]))  # utime, stime, cutime, cstime
    total = Usage(own.get("Pss", 0), own.get("Rss", 0), ticks / _TICKS)
    return sum((usage(int(child)) for child in " ".join(tasks).split()), total)
