"""PyTorch's Transformer layers with the weights of one of our models, as a reference for tests."""

import math
import re
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from transformer_mt.batch import Packed
from transformer_mt.model.transformer import Transformer


def sequences(packed: Packed) -> list[Tensor]:
    """Splits packed tokens into sequences, which begin at position 0."""
    starts = torch.cat(
        (torch.nonzero(packed.positions == 0)[:, 0], torch.tensor([packed.tokens.numel()]))
    )
    return list(packed.tokens.split(starts.diff().tolist()))


NAMES = {
    r"^embedding\.weight": "embedding",
    r"^untied_source\.weight": "source_embedding",
    r"^untied_output": "output",
    r"^embedding\.positions": "positions",
    r"^(encoder|decoder)\.": r"\1.layers.",
    r"^(encoder|decoder)_norm\.": r"\1.norm.",
    r"residual(\d)\.norm": r"norm\1",
    r"feed_forward\.": "",
    r"self_attention\.": "self_attn.",
    r"cross_attention\.": "multihead_attn.",
    r"\b(qkv|q|kv)_proj\.(weight|bias)": r"in_proj_\2",
}
"""Patterns of our parameter names → their names in ``Twin``."""


def by_layer(model: Transformer) -> Iterator[tuple[str, Tensor, Tensor | None]]:
    """Names, values and gradients of the parameters, matrices shared by layers split by layer."""
    for name, parameter in model.named_parameters():
        if not name.startswith("source_projection"):
            yield name, parameter.data, parameter.grad
            continue
        values = parameter.data.chunk(len(model.decoder))
        grads = (
            [None] * len(values) if parameter.grad is None else parameter.grad.chunk(len(values))
        )
        for i, (value, grad) in enumerate(zip(values, grads, strict=True)):
            kind = name.rpartition(".")[2]
            yield f"decoder.{i}.cross_attention.kv_proj.{kind}", value, grad


def counterpart(name: str, d_model: int) -> tuple[str, slice]:
    """Name of the twin's parameter that corresponds to one of ours, and the rows in it."""
    rows = {"q_proj": slice(d_model), "kv_proj": slice(d_model, None)}
    mine = rows.get(name.split(".")[-2:][0], slice(None))
    for pattern, replacement in NAMES.items():
        name = re.sub(pattern, replacement, name)
    return name, mine


class Twin(nn.Module):
    """PyTorch's encoder and decoder stacks on padded sequences, with our model's weights."""

    def __init__(self, model: Transformer):
        super().__init__()
        c = model.config
        kwargs: dict[str, Any] = {
            "dropout": 0.0,
            "layer_norm_eps": c.layer_norm_eps,
            "activation": {"swish": nn.functional.silu}.get(c.activation, c.activation),
            "batch_first": True,
            "norm_first": c.norm == "pre",
        }
        encoder_layer = nn.TransformerEncoderLayer(c.d_model, c.num_heads, c.d_ff, **kwargs)
        decoder_layer = nn.TransformerDecoderLayer(c.d_model, c.num_heads, c.d_ff, **kwargs)

        def norm() -> nn.LayerNorm | None:
            return nn.LayerNorm(c.d_model, eps=c.layer_norm_eps) if c.norm == "pre" else None

        self.encoder = nn.TransformerEncoder(
            encoder_layer, c.num_encoder_layers, norm(), enable_nested_tensor=False
        )
        self.decoder = nn.TransformerDecoder(decoder_layer, c.num_decoder_layers, norm())
        self.scale = math.sqrt(c.d_model) if c.scale_embeddings else 1.0
        weight = model.embedding.weight.detach().clone()
        self.embedding = self.source_embedding = nn.Parameter(weight)
        if c.tied_embeddings != "all":
            self.source_embedding = nn.Parameter(model.source_embedding.weight.detach().clone())
        self.output = self.embedding
        if c.tied_embeddings == "none":
            self.output = nn.Parameter(model.output_weight.detach().clone())
        self.output_bias = nn.Parameter(torch.zeros(model.vocab_size))
        self.double()
        for name, parameter in self.named_parameters():
            if name.endswith(("in_proj_bias", "attn.out_proj.bias")):
                nn.init.zeros_(parameter)  # the projections of the paper have none
        if c.positions == "learned":
            self.positions = nn.Parameter(model.embedding.positions.detach().clone())
        else:
            self.positions = nn.Parameter(model.embedding.sinusoids, requires_grad=False)
        self.source_dropout: nn.Module = nn.Identity()
        self.target_dropout: nn.Module = nn.Identity()
        for name, value, _ in by_layer(model):
            theirs, rows = counterpart(name, c.d_model)
            self.get_parameter(theirs).data[rows] = value

    def forward(self, src: list[Tensor], tgt: list[Tensor]) -> tuple[Tensor, Tensor]:
        """Encoder outputs and logits of all tokens but padding, packed."""
        (src_tokens, src_real), (tgt_tokens, tgt_real) = padded(src), padded(tgt)
        causal = nn.Transformer.generate_square_subsequent_mask(
            tgt_tokens.shape[1], dtype=self.embedding.dtype
        )
        embedded = self.source_embedding[src_tokens] * self.scale
        x = self.source_dropout(embedded + self.positions[: src_tokens.shape[1]])
        hidden = self.encoder(x, src_key_padding_mask=~src_real)
        embedded = self.embedding[tgt_tokens] * self.scale
        x = self.target_dropout(embedded + self.positions[: tgt_tokens.shape[1]])
        out = self.decoder(x, hidden, tgt_mask=causal, memory_key_padding_mask=~src_real)
        return hidden[src_real], out[tgt_real] @ self.output.T + self.output_bias


def padded(tokens: list[Tensor]) -> tuple[Tensor, Tensor]:
    """[B, longest] tokens, and True where they are real."""
    real = pad_sequence([torch.ones_like(t) for t in tokens], batch_first=True).bool()
    return pad_sequence(tokens, batch_first=True), real
