"""Whether the training step is compiled, by device, precision and sizes."""

import pytest
import torch

from transformer_mt.config import ModelConfig
from transformer_mt.errors import InputError
from transformer_mt.kernels import compilation
from transformer_mt.kernels.compilation import should_compile

CPU, GPU, OLD_GPU = map(torch.device, ("cpu", "cuda", "cuda:1"))
BASE = ModelConfig()


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
    monkeypatch.setattr(compilation, "_has_compiler", lambda: True)
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
