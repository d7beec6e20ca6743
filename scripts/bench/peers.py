"""The peers of ``real_run.py``: our model built from layers of PyTorch and of Hugging Face.

Both peers train as careful users would train them: padded batches, padded keys masked, and
``is_causal``, which the fast kernels support without a mask (padding follows the real targets, so
it needs no mask). Their attention has biases, which the paper and our model do not have; they
start at zero. Dropout is applied where the paper has it (§5.4) and nowhere else: dropout on
attention weights would slow the peers down.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from transformer_mt import compose
from transformer_mt.config import ModelConfig
from transformer_mt.conversion.transformers_model import (
    LAYER_NORM_EPS,
    convert_weights,
    model_settings,
)
from transformer_mt.data.store.token_store import Indices, TokenStore
from transformer_mt.data.subwords.tokenizer import BOS, PAD
from transformer_mt.model.layers import sinusoids
from transformer_mt.model.transformer import Transformer
from transformer_mt.training.step import DTYPES

MAX_POSITIONS = 1024


def model_config(name: str) -> ModelConfig:
    """A model of ``configs/model`` with what the peers have: post-norm, and their ε."""
    config = compose([f"model={name}"]).model
    return replace(config, norm="post", layer_norm_eps=LAYER_NORM_EPS)


@dataclass(frozen=True)
class PaddedPairs:
    """Pairs as rows of equal length: B pairs, S source and T target positions."""

    src: Tensor
    """[B, S] int64."""
    src_padding: Tensor | None
    """[B, S] bool, True for padding; None without padding."""
    tgt_in: Tensor
    """[B, T] int64: the target, shifted right."""
    tgt_out: Tensor
    """[B, T] int64."""

    @classmethod
    def collate(cls, store: TokenStore, group: Indices) -> "PaddedPairs":
        """Reads pairs from the store and pads them."""
        src = [torch.from_numpy(store.src[i].astype(np.int64)) for i in group]
        tgt = [torch.from_numpy(store.tgt[i].astype(np.int64)) for i in group]
        shifted = [F.pad(t[:-1], (1, 0), value=BOS) for t in tgt]
        real = pad_sequence([torch.ones_like(s) for s in src], batch_first=True).bool()
        return cls(
            pad_sequence(src, batch_first=True, padding_value=PAD),
            None if bool(real.all()) else ~real,
            pad_sequence(shifted, batch_first=True, padding_value=PAD),
            pad_sequence(tgt, batch_first=True, padding_value=PAD),
        )

    def to(self, device: torch.device) -> "PaddedPairs":
        """The same pairs on another device."""
        padding = None if self.src_padding is None else self.src_padding.to(device)
        src, tgt_in, tgt_out = (t.to(device) for t in (self.src, self.tgt_in, self.tgt_out))
        return PaddedPairs(src, padding, tgt_in, tgt_out)


class TorchPeer(nn.Module):
    """``torch.nn.Transformer`` between tied, scaled embeddings with sinusoids."""

    positions: Tensor

    def __init__(self, ours: Transformer):
        super().__init__()
        c = ours.config
        assert c.norm == "post"
        self.embedding = nn.Embedding(ours.vocab_size, c.d_model)
        self.register_buffer("positions", sinusoids(MAX_POSITIONS, c.d_model))
        self.dropout = nn.Dropout(c.dropout)
        self.transformer = nn.Transformer(
            c.d_model, c.num_heads, c.num_encoder_layers, c.num_decoder_layers, c.d_ff, c.dropout,
            layer_norm_eps=c.layer_norm_eps, batch_first=True,
        )  # fmt: skip
        # PyTorch adds a final norm to both stacks, which the paper does not have.
        self.transformer.encoder.norm = self.transformer.decoder.norm = None
        for layer in self.transformer.modules():
            if isinstance(layer, nn.MultiheadAttention):
                layer.dropout = 0.0
            elif isinstance(layer, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer):
                layer.dropout.p = 0.0  # after the ReLU
        missing, unexpected = self.load_state_dict(torch_weights(ours), strict=False)
        assert not unexpected
        biases = {name for name, _ in self.named_parameters() if name.endswith("bias")}
        assert {*missing} <= {"positions", *biases}  # PyTorch sets those of attention to zero

    def forward(self, pairs: PaddedPairs) -> Tensor:
        """Logits, [B, T, V]."""
        future = nn.Transformer.generate_square_subsequent_mask(
            pairs.tgt_in.shape[1], device=pairs.tgt_in.device
        )
        hidden: Tensor = self.transformer(
            self._embed(pairs.src),
            self._embed(pairs.tgt_in),
            tgt_mask=future,
            tgt_is_causal=True,
            src_key_padding_mask=pairs.src_padding,
            memory_key_padding_mask=pairs.src_padding,
        )
        return F.linear(hidden, self.embedding.weight)

    def _embed(self, tokens: Tensor) -> Tensor:
        scaled = self.embedding(tokens) * math.sqrt(self.embedding.embedding_dim)
        return self.dropout(scaled + self.positions[: tokens.shape[1]])


class MarianPeer(nn.Module):
    """Hugging Face's ``MarianMTModel``, converted as ``mt-export`` converts it."""

    def __init__(self, ours: Transformer):
        super().__init__()
        from transformers import MarianConfig, MarianMTModel

        settings = model_settings(ours, MAX_POSITIONS)
        self.model = MarianMTModel(MarianConfig(**settings, attn_implementation="sdpa"))
        weights = convert_weights(ours, MAX_POSITIONS)
        _, unexpected = self.model.load_state_dict(weights, strict=False)
        assert not unexpected
        self.model.tie_weights()

    def forward(self, pairs: PaddedPairs) -> Tensor:
        """Logits, [B, T, V]."""
        mask = None if pairs.src_padding is None else ~pairs.src_padding
        ids = {"input_ids": pairs.src, "decoder_input_ids": pairs.tgt_in}
        return self.model(**ids, attention_mask=mask, use_cache=False).logits


def peer_loss(
    peer: nn.Module, pairs: PaddedPairs, smoothing: float, precision: str, reduction: str
) -> Tensor:
    """Cross entropy, ``mean`` or ``sum`` over target tokens; in fp32 under autocast, too."""
    with torch.autocast(pairs.src.device.type, DTYPES[precision], enabled=precision != "fp32"):
        return F.cross_entropy(
            peer(pairs).flatten(0, 1),
            pairs.tgt_out.flatten(),
            ignore_index=PAD,
            reduction=reduction,
            label_smoothing=smoothing,
        )


def peer_adam(peer: nn.Module, lr: float) -> torch.optim.Optimizer:
    """Adam with the constants of the paper, fused as ours."""
    return torch.optim.Adam(peer.parameters(), lr=lr, betas=(0.9, 0.98), eps=1e-9, fused=True)


def torch_weights(ours: Transformer) -> dict[str, Tensor]:
    """Our weights under the names of ``TorchPeer``.

    Its ``in_proj_weight`` is W^Q, W^K and W^V, stacked.
    """
    w = dict(ours.named_parameters())
    cross_kv = ours.source_projection.proj.weight.chunk(len(ours.decoder))  # [2D, D] a layer
    theirs: dict[str, Tensor] = {"embedding.weight": w["embedding.weight"]}
    for stack, layers in (("encoder", ours.encoder), ("decoder", ours.decoder)):
        for i in range(len(layers)):
            mine, name = f"{stack}.{i}", f"transformer.{stack}.layers.{i}"
            own = f"{mine}.self_attention"
            theirs[f"{name}.self_attn.in_proj_weight"] = w[f"{own}.qkv_proj.weight"]
            theirs[f"{name}.self_attn.out_proj.weight"] = w[f"{own}.out_proj.weight"]
            if stack == "decoder":
                cross = f"{mine}.cross_attention"
                projections = (w[f"{cross}.q_proj.weight"], cross_kv[i])
                theirs[f"{name}.multihead_attn.in_proj_weight"] = torch.cat(projections)
                theirs[f"{name}.multihead_attn.out_proj.weight"] = w[f"{cross}.out_proj.weight"]
            for kind in ("weight", "bias"):
                for k in (1, 2):
                    theirs[f"{name}.linear{k}.{kind}"] = w[f"{mine}.feed_forward.linear{k}.{kind}"]
                for k in (1, 2) if stack == "encoder" else (1, 2, 3):
                    theirs[f"{name}.norm{k}.{kind}"] = w[f"{mine}.residual{k}.norm.{kind}"]
    return theirs
