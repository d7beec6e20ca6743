"""Hardware-dependent defaults."""

import sys
import sysconfig
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from transformer_mt.config import ModelConfig
from transformer_mt.errors import InputError
from transformer_mt.training import hardware
from transformer_mt.training.hardware import default_max_tokens, pick_precision, should_compile

CPU, GPU = torch.device("cpu"), torch.device("cuda")
BASE, BIG = ModelConfig(), ModelConfig(d_model=1024, d_ff=4096, num_heads=16)


@pytest.mark.parametrize("fast", [True, False])
def test_auto_precision_is_bf16_on_hardware_with_fast_bf16(
    fast: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def supported(including_emulation: bool = True) -> bool:
        return fast or including_emulation  # older GPUs emulate it, slowly

    monkeypatch.setattr(torch.cuda, "is_bf16_supported", supported)
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: fast)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False, raising=False)
    for device in (CPU, GPU):
        assert pick_precision("auto", device) == ("bf16" if fast else "fp32")
        assert pick_precision("fp16", device) == "fp16"


@pytest.mark.parametrize(
    ("choice", "model", "device", "precision", "picked"),
    [
        (None, BASE, CPU, "bf16", False),
        (True, BASE, CPU, "fp32", True),
        (None, BASE, GPU, "bf16", True),
        (False, BASE, GPU, "bf16", False),
        (None, BASE, GPU, "fp32", False),
        (None, ModelConfig(d_k=16), GPU, "bf16", False),  # Table 3, row B: d_v is 64
        (None, ModelConfig(d_model=96, d_k=12, d_v=12), GPU, "bf16", False),
    ],
)
def test_step_is_compiled_where_possible(
    choice: bool | None,
    model: ModelConfig,
    device: torch.device,
    precision: str,
    picked: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    monkeypatch.setattr(hardware, "_has_compiler", lambda: True)
    assert should_compile(choice, model, device, precision) is picked


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
    monkeypatch.setenv("CC", sys.executable)  # any program
    headers = Path(sysconfig.get_path("include"), "Python.h").exists()
    assert should_compile(None, BASE, GPU, "bf16") is headers


def test_compile_true_is_rejected_where_impossible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "Tesla T4")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (7, 5))
    with pytest.raises(InputError, match="needs bf16"):
        should_compile(True, BASE, GPU, "fp32")
    with pytest.raises(InputError, match=r"Ampere GPU or later; here: bf16.*Tesla T4"):
        should_compile(True, BASE, GPU, "bf16")
    assert should_compile(None, BASE, GPU, "bf16") is False


def test_default_max_tokens_grow_with_memory_and_shrink_with_the_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def tokens(model: ModelConfig, gigabytes: int) -> int:
        properties = SimpleNamespace(total_memory=gigabytes * 2**30)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
        return default_max_tokens(model, GPU)

    assert tokens(BASE, 139) > 25_000  # the paper's update in one pass
    assert 2000 < tokens(BASE, 8) < tokens(BASE, 24) < 25_000
    assert tokens(BIG, 24) == pytest.approx(tokens(BASE, 24) / 2, rel=0.01)
    assert default_max_tokens(BASE, CPU) == 8192
