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


@pytest.mark.parametrize(
    ("name", "vendor", "flags", "precision", "is_zen_4"),
    [
        ("Zen 3", "AuthenticAMD", "avx2", "fp32", False),
        ("Zen 4", "AuthenticAMD", "avx2 avx512f avx512_bf16", "bf16", True),
        ("Xeon", "GenuineIntel", "avx2 avx512f avx512_bf16", "fp32", False),
        ("Xeon with AMX", "GenuineIntel", "avx2 avx512f avx512_bf16 amx_bf16", "bf16", False),
        ("ARM", "", "", "fp32", False),
    ],
)
def test_the_processor_decides_the_precision_of_training(
    name: str,
    vendor: str,
    flags: str,
    precision: str,
    is_zen_4: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hardware, "_CPU_INFO", tmp_path / "cpuinfo")
    hardware.is_amd_with_avx512.cache_clear()
    if vendor:
        (tmp_path / "cpuinfo").write_text(
            f"vendor_id\t: {vendor}\nmodel name\t: {name}\nflags\t\t: {flags}\n"
        )
        assert hardware.device_name(CPU) == name
    assert hardware.fastest_precision(CPU) == precision
    assert hardware.is_amd_with_avx512() is is_zen_4
    hardware.is_amd_with_avx512.cache_clear()


@pytest.mark.parametrize(
    ("capability", "precision"), [((8, 0), "bf16"), ((7, 5), "fp16"), ((6, 1), "fp32")]
)
def test_a_gpu_trains_in_the_precision_of_its_matrix_units(
    capability: tuple[int, int], precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        torch.cuda,
        "is_bf16_supported",
        lambda including_emulation=True: including_emulation or capability >= (8, 0),
    )
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    assert hardware.fastest_precision(torch.device("cuda")) == precision


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

hardware.set_up("cpu")
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
