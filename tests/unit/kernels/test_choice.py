"""Choice of precision and kernel by processor, and again for a run that resumes; compilation."""

import logging
from pathlib import Path
from typing import Any

import pytest
import torch

from transformer_mt.config import ModelConfig
from transformer_mt.errors import InputError
from transformer_mt.kernels import choice, hardware
from transformer_mt.kernels.choice import (
    Kernels,
    choose_kernels,
    require_short_attention,
    should_compile,
)

CPU, GPU, OLD_GPU = map(torch.device, ("cpu", "cuda", "cuda:1"))
BASE = ModelConfig()

PROCESSORS = {
    "Zen 3": ("AuthenticAMD", "avx2"),
    "Zen 4": ("AuthenticAMD", "avx2 avx512f avx512_bf16"),
    "Zen 4, no oneDNN": ("AuthenticAMD", "avx2 avx512f avx512_bf16"),
    "Xeon": ("GenuineIntel", "avx2 avx512f avx512_bf16"),
    "Xeon with AMX": ("GenuineIntel", "avx2 avx512f avx512_bf16 amx_bf16 amx_tile"),
    "ARM": ("", ""),
}


@pytest.fixture
def processor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Takes a name of ``PROCESSORS``."""
    monkeypatch.setattr(hardware, "_CPU_INFO", tmp_path / "cpuinfo")

    def become(name: str) -> None:
        monkeypatch.setattr(choice, "HAS_ONEDNN", "no oneDNN" not in name)
        vendor, flags = PROCESSORS[name]
        text = f"vendor_id\t: {vendor}\nflags\t\t: {flags}\n" if vendor else ""
        (tmp_path / "cpuinfo").write_text(text)

    return become


@pytest.mark.parametrize(
    ("name", "products", "precision", "chosen"),
    [
        ("Zen 3", "auto", "auto", "fp32 torch"),
        ("Zen 4", "auto", "auto", "bf16 torch"),
        ("Xeon", "auto", "auto", "fp32 torch"),
        ("Xeon with AMX", "auto", "auto", "bf16 torch_transposed"),
        ("ARM", "auto", "auto", "fp32 torch"),
        ("Zen 4", "auto", "fp32", "fp32 onednn"),
        ("Xeon with AMX", "auto", "fp32", "fp32 torch"),
        ("Xeon", "auto", "bf16", "bf16 torch_transposed"),
        ("Zen 4", "torch", "fp32", "fp32 torch"),
        ("Zen 3", "onednn", "auto", "fp32 onednn"),
        ("Zen 4", "onednn", "auto", "bf16 torch"),  # which is oneDNN's
        ("Zen 4, no oneDNN", "auto", "fp32", "fp32 torch"),
        ("Zen 4, no oneDNN", "onednn", "fp32", "fp32 torch"),
    ],
)
def test_the_processor_decides_what_the_settings_leave_open(
    name: str, products: str, precision: str, chosen: str, processor: Any
) -> None:
    processor(name)
    assert choose_kernels(products, precision, CPU) == Kernels(*chosen.split())


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
    recorded = Kernels("fp32", "onednn")  # on this machine's CPU
    assert choose_kernels("auto", "auto", GPU, recorded) == Kernels(precision)
    assert choose_kernels("auto", "fp16", GPU) == Kernels("fp16")


def test_a_resumed_run_keeps_its_choice(processor: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    choices = "fp32 torch", "fp32 onednn", "bf16 torch", "bf16 torch_transposed"
    for name in PROCESSORS.keys() - {"Zen 4, no oneDNN"}:
        processor(name)
        for recorded in (Kernels(*text.split()) for text in choices):
            assert choose_kernels("auto", "auto", CPU, recorded) == recorded
    # Settings come first.
    onednn = Kernels("fp32", "onednn")
    assert choose_kernels("torch", "auto", CPU, onednn) == Kernels("fp32", "torch")
    assert choose_kernels("auto", "bf16", CPU, onednn).precision == "bf16"
    assert not caplog.records


@pytest.mark.parametrize(
    ("name", "products", "chosen"),
    [
        ("Zen 4", "mixed", "onednn"),
        ("Zen 4", {"9x4": {"forward": "torch"}}, "onednn"),
        ("Zen 4, no oneDNN", "onednn", "torch"),
    ],
)
def test_a_choice_that_is_not_available_is_made_again_in_the_same_precision(
    name: str, products: Any, chosen: str, processor: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    processor(name)
    recorded = Kernels("fp32", products)
    assert choose_kernels("auto", "auto", CPU, recorded) == Kernels("fp32", chosen)
    assert len(caplog.records) == 1


@pytest.mark.parametrize(
    ("setting", "model", "device", "precision", "picked"),
    [
        (None, BASE, CPU, "bf16", False),
        (True, BASE, CPU, "fp32", True),
        (None, BASE, GPU, "bf16", True),
        (False, BASE, GPU, "bf16", False),
        (None, BASE, GPU, "fp32", False),
        (True, BASE, GPU, "fp32", "needs bf16"),
        (None, BASE, OLD_GPU, "bf16", False),
        (True, BASE, OLD_GPU, "bf16", r"Ampere GPU or later; here: bf16.*Tesla T4"),
        (None, ModelConfig(d_k=16), GPU, "bf16", False),  # Table 3, row B: d_v is 64
        (None, ModelConfig(d_model=96, d_k=12, d_v=12), GPU, "bf16", False),
    ],
)
def test_step_is_compiled_where_possible(
    setting: bool | None,
    model: ModelConfig,
    device: torch.device,
    precision: str,
    picked: bool | str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    capability = {GPU: (9, 0), OLD_GPU: (7, 5)}
    monkeypatch.setattr(torch.cuda, "get_device_capability", capability.get)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "Tesla T4")
    monkeypatch.setattr(choice, "_has_compiler", lambda: True)
    if isinstance(picked, bool):
        assert should_compile(setting, model, device, precision) is picked
    else:
        with pytest.raises(InputError, match=picked):
            should_compile(setting, model, device, precision)


def test_step_is_not_compiled_without_a_c_compiler(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    monkeypatch.setenv("CC", "/no/such/compiler")
    assert should_compile(None, BASE, GPU, "bf16") is False
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "needs a C compiler (gcc or clang)" in caplog.text
    assert should_compile(None, BASE, GPU, "fp32") is False
    assert should_compile(False, BASE, GPU, "bf16") is False
    assert len(caplog.records) == 1  # no warning where nothing would be compiled
    with pytest.raises(InputError, match=r"train\.compile=true needs a C compiler"):
        should_compile(True, BASE, GPU, "bf16")


def test_attention_for_short_sequences_is_rejected_where_impossible() -> None:
    require_short_attention(BASE, GPU, True)
    for model, device, compiled in ((BASE, CPU, True), (BASE, GPU, False)):
        with pytest.raises(InputError, match=r"train\.attention_kernel=short needs"):
            require_short_attention(model, device, compiled)
    with pytest.raises(InputError, match="d_k=24: remove the setting"):
        require_short_attention(ModelConfig(d_k=24, d_v=24), GPU, True)
