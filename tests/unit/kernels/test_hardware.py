"""This machine's processor and cores; freed memory, kept until it is released; threads."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from transformer_mt.kernels import hardware

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
    monkeypatch.setattr(hardware, "_CPU_INFO", info)
    models = []
    for text in (INFO, INFO.replace("model\t\t: 1\n", "model\t\t: 17\n")):
        info.write_text(text)
        assert hardware.device_name(CPU) == "AMD EPYC"
        models.append(hardware.exact_cpu())
    assert models[0].startswith("AMD EPYC, cpu family 25, model 1, stepping 2, ")
    assert models[0] != models[1]


@pytest.mark.parametrize(
    ("quota", "cores"),
    [(None, 3), ("max", 3), ("20000", 1), ("150000", 2), ("250000", 3), ("6400000", 3)],
)
def test_available_cores_respect_quota_and_affinity(
    quota: str | None, cores: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2}, raising=False)
    monkeypatch.setattr(hardware, "_CPU_QUOTA", tmp_path / "cpu.max")
    if quota is not None:
        (tmp_path / "cpu.max").write_text(f"{quota} 100000\n")
    assert hardware.available_cores() == cores


needs_glibc = pytest.mark.skipif(
    sys.platform != "linux" or not (os.confstr("CS_GNU_LIBC_VERSION") or "").startswith("glibc"),
    reason="needs glibc",
)

PROGRAM = """
from transformer_mt.kernels import hardware

def resident_mb():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 / 1e6

hardware.keep_freed_memory()
before = resident_mb()
blocks = [b"x" * 1_000_000 for _ in range(100)]
blocks = blocks[-1:]  # the last block keeps the top of the heap
kept = resident_mb() - before
hardware.release_freed_memory()
print(kept, resident_mb() - before)
"""


@needs_glibc
def test_freed_memory_is_kept_until_it_is_released() -> None:
    output = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, check=True)
    kept, released = map(float, output.stdout.split())
    assert kept > 90
    assert released < 10


def test_a_background_thread_computes_alone_and_leaves_others_their_threads() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        with hardware.background_thread("name") as thread:
            assert thread.submit(torch.get_num_threads).result() == 1
            assert torch.get_num_threads() == 3
        with ThreadPoolExecutor(1) as later:
            assert later.submit(torch.get_num_threads).result() == 3
    finally:
        torch.set_num_threads(before)
