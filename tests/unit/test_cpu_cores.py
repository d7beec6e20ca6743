"""Cores that this process may use, by its affinity and its control groups."""

import math
import os
from pathlib import Path

import pytest

from transformer_mt import cpu_cores


def test_available_cores_is_positive() -> None:
    assert 1 <= cpu_cores.available_cores() <= (os.cpu_count() or 1)


GROUPS: dict[str, tuple[str, dict[str, str], float]] = {
    "none": ("0::/\n", {}, math.inf),
    "no limit": ("0::/\n", {"cpu.max": "max 100000\n"}, math.inf),
    "a container": ("0::/\n", {"cpu.max": "250000 100000\n"}, 2.5),
    "a container that sees the outer name of its group": (
        "0::/docker/1234\n", {"cpu.max": "100000 100000\n"}, 1.0,
    ),
    "a group": ("0::/jobs/1/task\n", {"jobs/1/cpu.max": "400000 100000\n"}, 4.0),
    "a group inside a smaller one": (
        "0::/jobs/1\n",
        {"jobs/1/cpu.max": "800000 100000\n", "jobs/cpu.max": "300000 100000\n"},
        3.0,
    ),
    "version 1": (
        "9:memory:/m\n3:cpu,cpuacct:/jobs/1\n0::/\n",
        {"cpu/jobs/1/cpu.cfs_quota_us": "150000\n", "cpu/jobs/1/cpu.cfs_period_us": "100000\n"},
        1.5,
    ),
    "version 1, no limit": (
        "1:cpu:/\n",
        {"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"},
        math.inf,
    ),
    "another controller": ("2:memory:/m\n", {"m/cpu.max": "1 1\n"}, math.inf),
}  # fmt: skip


@pytest.mark.parametrize(("groups", "files", "quota"), GROUPS.values(), ids=GROUPS.keys())
def test_cpu_quota_of_control_groups(
    groups: str, files: dict[str, str], quota: float, tmp_path: Path
) -> None:
    for name, text in {f"sys/fs/cgroup/{k}": v for k, v in files.items()}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(groups)
    assert cpu_cores._cpu_quota(tmp_path) == quota


@pytest.mark.parametrize(("quota", "cores"), [(0.2, 1), (1.5, 2), (64.0, 3), (math.inf, 3)])
def test_available_cores_respect_quota_and_affinity(
    quota: float, cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2}, raising=False)
    monkeypatch.setattr(cpu_cores, "_cpu_quota", lambda _: quota)
    assert cpu_cores.available_cores() == cores


def test_no_quota_without_control_groups(tmp_path: Path) -> None:
    assert cpu_cores._cpu_quota(tmp_path) == math.inf
