"""The layers that a smaller model starts from; tokens that fit a GPU; whether to compile."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from support.models import tiny_config

from transformer_mt.batch import Packed
from transformer_mt.config import ModelConfig
from transformer_mt.errors import InputError
from transformer_mt.model.transformer import Transformer
from transformer_mt.training import setup
from transformer_mt.training.setup import default_max_tokens, evenly_spaced_layers

CONFIG = tiny_config(
    d_v=6, num_encoder_layers=4, num_decoder_layers=3, attention_bias=True, output_bias=True
)


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize(
    ("encoder", "decoder"), [([0], [0]), ([0, 3], [0, 2]), ([0, 1, 3], [0, 1, 2])]
)
@torch.no_grad()
def test_a_smaller_model_computes_what_the_chosen_layers_of_the_larger_one_do(
    norm: str, encoder: list[int], decoder: list[int]
) -> None:
    torch.manual_seed(0)
    teacher = Transformer(replace(CONFIG, norm=norm), 11).eval()
    for parameter in teacher.parameters():
        parameter.normal_()
    sizes = {"num_encoder_layers": len(encoder), "num_decoder_layers": len(decoder)}
    student = Transformer(replace(teacher.config, **sizes), 11).eval()
    initial = evenly_spaced_layers(teacher, student.config)
    student.load_state_dict({name: initial[name] for name in student.state_dict()})

    src, tgt = Packed.from_sequences([[4, 5, 6], [7]]), Packed.from_sequences([[2, 8], [2, 9, 10]])
    x = teacher.embedding(src.tokens, src.positions, 3)
    for i in encoder:
        x = teacher.encoder[i](x, src.boundaries)
    cross = teacher.source_projection(teacher.encoder_norm(x))
    y = teacher.embedding(tgt.tokens, tgt.positions, 3)
    for i in decoder:
        y = teacher.decoder[i](y, tgt.boundaries, cross[i], src.boundaries)
    expected = teacher.logits(teacher.decoder_norm(y))
    logits = student.logits(student.decode(tgt, student.encode(src), src))
    torch.testing.assert_close(logits, expected)


def test_default_max_tokens_grow_with_memory_and_shrink_with_the_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def tokens(model: ModelConfig, gigabytes: int, compiled: bool) -> int:
        properties = SimpleNamespace(total_memory=gigabytes * 2**30)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
        return default_max_tokens(model, torch.device("cuda"), 37000 if compiled else None)

    base, big = ModelConfig(), ModelConfig(d_model=1024, d_ff=4096, num_heads=16)
    for compiled, memory in ((False, 80), (True, 24)):
        assert tokens(base, memory, compiled) > 25_000  # the paper's update in one pass
        assert 2000 < tokens(base, 8, compiled) < tokens(base, memory // 2, compiled) < 25_000
    assert tokens(big, 24, False) == pytest.approx(tokens(base, 24, False) / 2, rel=0.01)
    assert tokens(base, 24, True) / 2 < tokens(big, 24, True) < tokens(base, 24, True)
    assert default_max_tokens(base, torch.device("cpu")) == 8192


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
    monkeypatch.setattr(setup, "_has_compiler", lambda: True)
    if isinstance(picked, bool):
        assert setup._should_compile(setting, model, device, precision) is picked
    else:
        with pytest.raises(InputError, match=picked):
            setup._should_compile(setting, model, device, precision)


def test_step_is_not_compiled_without_a_c_compiler(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    monkeypatch.setenv("CC", "/no/such/compiler")
    assert setup._should_compile(None, BASE, GPU, "bf16") is False
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "needs a C compiler (gcc or clang)" in caplog.text
    assert setup._should_compile(None, BASE, GPU, "fp32") is False
    assert setup._should_compile(False, BASE, GPU, "bf16") is False
    assert len(caplog.records) == 1  # no warning where nothing would be compiled
    with pytest.raises(InputError, match=r"train\.compile=true needs a C compiler"):
        setup._should_compile(True, BASE, GPU, "bf16")
