"""The layers that a smaller model starts from, against a forward pass; tokens that fit a GPU."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from support.models import tiny_config

from transformer_mt.batch import Packed
from transformer_mt.config import ModelConfig
from transformer_mt.model.transformer import Transformer
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
