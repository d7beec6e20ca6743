"""Initial weights; a model prepared for decoding gives the logits of the original."""

from typing import Any

import pytest
import torch
from torch import Tensor

from transformer_mt.batch import Packed
from transformer_mt.config import ModelConfig
from transformer_mt.kernels import products
from transformer_mt.model.transformer import Transformer, for_inference

SOURCES = [[5, 9, 7, 3], [8, 3], [6, 6, 3]]


def transformer(**config: Any) -> Transformer:
    torch.manual_seed(3)
    sizes: dict[str, Any] = {"d_model": 24, "d_ff": 40, "num_heads": 3}
    layers: dict[str, Any] = {"num_encoder_layers": 2, "num_decoder_layers": 2}
    return Transformer(ModelConfig(**sizes, **layers, **config), 50).eval()


def steps(model: Transformer) -> Tensor:
    with torch.inference_mode():
        state = model.init_decoder_state(Packed.from_sequences(SOURCES), 2)
        own = torch.arange(2).expand(3, 2)
        logits = [model.decode_step(torch.full((3, 2), 4 + t), own, state) for t in range(3)]
    return torch.stack(logits).float()


@pytest.mark.parametrize(("norm", "gain"), [("post", 1.0), ("pre", 1 / 6)])
def test_initial_weights(norm: str, gain: float) -> None:
    """Glorot's variances for each W^Q, W^K and W^V, though they are merged.

    Pre-norm: 1 / (2 · layers) of them for what is added to the residual stream.
    """
    layers: dict[str, Any] = {"num_encoder_layers": 3, "num_decoder_layers": 3}
    config = ModelConfig(d_model=128, d_k=8, d_v=24, attention_bias=True, norm=norm, **layers)
    torch.manual_seed(3)
    sizes = {"qkv_proj": [64, 64, 192], "source_projection": [64, 192] * 3}
    for name, parameter in Transformer(config, 500).named_parameters():
        if name.endswith("bias"):
            assert not parameter.any()
        elif "embedding" in name:
            assert float(parameter.detach().var()) == pytest.approx(1 / 128, rel=0.03)
        elif "norm" not in name:
            parts = next((sizes[key] for key in sizes if key in name), [len(parameter)])
            expected = gain if "out_proj" in name or "linear2" in name else 1.0
            for matrix in parameter.detach().split(parts):
                variance = expected * 2 / sum(matrix.shape)
                assert float(matrix.var()) == pytest.approx(variance, rel=0.05), name
                assert float(matrix.abs().max()) <= (3 * variance) ** 0.5 + 1e-6


@pytest.fixture(autouse=True)
def prepack_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """The products of these models are too small for the prepacked kernel otherwise."""
    monkeypatch.setattr(products, "_SMALL", 0)


@pytest.mark.parametrize("config", [{}, {"norm": "pre", "positions": "learned", "d_v": 5}])
def test_decoding_steps_give_the_same_logits(config: dict[str, Any]) -> None:
    model = transformer(**config)
    before = {name: p.clone() for name, p in model.named_parameters()}
    expected = steps(model)
    ready = for_inference(model)
    assert isinstance(ready.packed_output, products.PackedLinear)
    torch.testing.assert_close(steps(ready), expected)
    rounded = steps(for_inference(model, torch.bfloat16))
    assert not torch.equal(rounded, expected)
    assert (rounded - expected).abs().max() < 0.05 * expected.abs().max()
    assert torch.equal(steps(model), expected)
    after = dict(model.named_parameters())
    assert after.keys() == before.keys()
    assert all(torch.equal(after[name], before[name]) for name in before)


def test_layers_of_others_keep_what_they_compute() -> None:
    class Adapter(products.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) - 1

    model = transformer()
    for layer in model.decoder:
        feed_forward: Any = layer.feed_forward
        adapter = Adapter(*feed_forward.linear1.weight.T.shape)
        adapter.load_state_dict(feed_forward.linear1.state_dict())
        feed_forward.linear1 = adapter
        feed_forward.linear2.register_forward_pre_hook(lambda _, x: x[0] * 2)
    torch.testing.assert_close(steps(for_inference(model)), steps(model))


def test_small_products_stay_in_fp32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "_SMALL", 2**19)
    model = transformer()
    assert torch.equal(steps(for_inference(model, torch.bfloat16)), steps(model))
