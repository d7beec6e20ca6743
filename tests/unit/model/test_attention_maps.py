"""Attention weights against ``nn.MultiheadAttention``, and the absence of side effects."""

from itertools import chain

import pytest
import torch
from support.models import tiny_config
from torch import Tensor, nn

from transformer_mt.batch import Packed
from transformer_mt.model.attention_maps import attention_maps
from transformer_mt.model.transformer import Transformer

SRC, TGT = [5, 6, 7, 8, 9, 3], [2, 11, 12, 13, 3]
H, D = 2, 12


def model_of(**changes: object) -> Transformer:
    torch.manual_seed(1)
    layers = {"num_encoder_layers": 2, "num_decoder_layers": 3}
    return Transformer(tiny_config(d_model=D, dropout=0.3, **layers, **changes), 20).eval()


def maps_of(model: Transformer) -> dict[str, list[Tensor]]:
    return attention_maps(model, SRC, TGT[:-1])


def torch_weights(wq: Tensor, wk: Tensor, query: Tensor, key: Tensor, causal: bool) -> Tensor:
    """The weights of ``torch.nn.MultiheadAttention`` with these projections: [H, T, S]."""
    peer = nn.MultiheadAttention(D, H, bias=False, batch_first=True)
    with torch.no_grad():
        assert peer.in_proj_weight is not None
        peer.in_proj_weight[: 2 * D] = torch.cat((wq, wk))
    mask = torch.ones(len(query), len(key)).triu(1).bool() if causal else None
    _, weights = peer(query[None], key[None], key[None], attn_mask=mask, average_attn_weights=False)
    return weights[0]


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_weights_equal_torch_multihead_attention(norm: str) -> None:
    model = model_of(norm=norm)
    layers = [*model.encoder, *model.decoder]
    own = [layer.get_submodule("self_attention") for layer in layers]
    cross = [layer.get_submodule("cross_attention") for layer in model.decoder]
    seen: dict[nn.Module, Tensor] = {}
    with torch.no_grad():
        memory = model.encode(Packed.from_sequences([SRC]))
        for module in (*own, *cross):
            module.register_forward_pre_hook(lambda module, args: seen.update({module: args[0]}))
        maps = maps_of(model)
        for i, module in enumerate(own):
            x = seen[module]
            wq, wk = module.get_parameter("qkv_proj.weight")[: 2 * D].chunk(2)
            expected = torch_weights(wq, wk, x, x, causal=i >= 2)
            torch.testing.assert_close([*maps["encoder"], *maps["decoder"]][i], expected)
        for i, module in enumerate(cross):
            x = seen[module]
            # Keys and values of all layers are one matrix: the keys of layer i are its part 2i.
            wk = model.source_projection.proj.weight.chunk(2 * len(cross))[2 * i]
            wq = module.get_parameter("q_proj.weight")
            torch.testing.assert_close(maps["cross"][i], torch_weights(wq, wk, x, memory, False))


def test_shapes_with_different_value_size() -> None:
    model = model_of(norm="pre", d_k=4, d_v=7)
    with torch.autocast("cpu", torch.bfloat16):  # the weights are in fp32 all the same
        maps = maps_of(model)
    S, T = len(SRC), len(TGT) - 1  # the last token is predicted, not read
    assert [tuple(m.shape) for m in maps["encoder"]] == [(H, S, S)] * 2
    assert [tuple(m.shape) for m in maps["decoder"]] == [(H, T, T)] * 3
    assert [tuple(m.shape) for m in maps["cross"]] == [(H, T, S)] * 3
    for weights in chain(*maps.values()):
        assert (weights.dtype, weights.device.type) == (torch.float32, "cpu")
    assert not any(module._forward_pre_hooks for module in model.modules())
