"""The CPU or GPU: its name, its exact model, and whether its bf16 products are fast."""

import platform
import re
from pathlib import Path

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


def _cpu_info(key: str) -> str:
    """A value of the first core in Linux's list; empty where there is none."""
    text = _CPU_INFO.read_text() if _CPU_INFO.exists() else ""
    found = re.search(rf"^{key}\s*: (.*)$", text, re.MULTILINE)
    return found[1] if found else ""
