"""Names of processors, as far as the machine tells them; cores that this process may use."""

import math
import os
from pathlib import Path

import pytest
import torch

from transformer_mt import device_info

CPU = torch.device("cpu")
INFO = """processor\t: 0
cpu family\t: 25
model\t\t: 1
model name\t: AMD EPYC
stepping\t: 2

processor\t: 1
model name\t: another
"""


def test_cpus_of_one_name_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "cpuinfo"
    monkeypatch.setattr(device_info, "_CPU_INFO", info)
    models = []
    for text in (INFO, INFO.replace("model\t\t: 1\n", "model\t\t: 17\n")):
        info.write_text(text)
        assert device_info.name(CPU) == "AMD EPYC"
        models.append(device_info.exact_model(CPU))
    assert models[0].startswith("AMD EPYC, cpu family 25, model 1, stepping 2, ")
    assert models[0] != models[1]


def test_a_cpu_has_a_name_without_linux(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_info, "_CPU_INFO", tmp_path / "missing")
    assert device_info.name(CPU)


def test_available_cores_is_positive() -> None:
    assert 1 <= device_info.available_cores() <= (os.cpu_count() or 1)


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
    assert device_info._cpu_quota(tmp_path) == quota


@pytest.mark.parametrize(("quota", "cores"), [(0.2, 1), (1.5, 2), (64.0, 3), (math.inf, 3)])
def test_available_cores_respect_quota_and_affinity(
    quota: float, cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2}, raising=False)
    monkeypatch.setattr(device_info, "_cpu_quota", lambda _: quota)
    assert device_info.available_cores() == cores


def test_no_quota_without_control_groups(tmp_path: Path) -> None:
    assert device_info._cpu_quota(tmp_path) == math.inf
