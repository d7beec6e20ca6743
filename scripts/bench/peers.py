"""The peers of ``train.py``: our model built from layers of PyTorch and of Hugging Face.

Both peers train as careful users would train them: padded batches, padded keys masked, and
``is_causal``, which the fast kernels support without a mask (padding follows the real targets, so
it needs no mask). Their attention has biases, which the paper and our model do not have; they
start at zero. Dropout is applied where the paper has it (§5.4) and nowhere else: dropout on
attention weights would slow the peers down.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from transformer_mt.batch import Batch
from transformer_mt.config import ModelConfig, OptimizerConfig
from transformer_mt.conversion.transformers_model import model_settings
from transformer_mt.data.store.token_store import Indices, TokenStore
from transformer_mt.data.subwords.tokenizer import BOS, PAD
from transformer_mt.distributed.world import World
from transformer_mt.kernels.choice import choose_kernels
from transformer_mt.model.embedding import sinusoids
from transformer_mt.model.transformer import Transformer
from transformer_mt.training.step import TrainStep, autocast

VARIANTS = [
    "ours-fp32", "ours-fp32-again", "ours-bf16",
    "torch-fp32", "torch-bf16", "marian-fp32", "marian-bf16",
]  # fmt: skip
WITH_DROPOUT = {
    f"ours-{precision}-{setting}": setting
    for precision in ("fp32", "bf16")
    for setting in ("attention_dropout", "activation_dropout")
}
"""Variants that are measured by request only, and the setting of the model that is 0.1 in them."""
SMOOTHING = 0.1
MAX_POSITIONS = 1024


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


@dataclass(frozen=True)
class Update:
    """The pairs of one update, collated for our model and for the peers."""

    ours: Batch
    padded: list[PaddedPairs]
    src_tokens: int
    tgt_tokens: int
    """Number of target tokens; like ``flops``, without padding."""
    flops: float
    layout_seconds: tuple[float, float]
    """Seconds to collate the pairs, for our model and for the peers."""

    @property
    def padded_tokens(self) -> int:
        """Tokens in the peers' batches, padding included."""
        return sum(part.src.numel() + part.tgt_in.numel() for part in self.padded)


class TorchPeer(nn.Module):
    """``torch.nn.Transformer`` between tied, scaled embeddings with sinusoids."""

    positions: Tensor

    def __init__(self, ours: Transformer):
        super().__init__()
        c = _post_norm(ours.config)
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
        _fill(self, torch_weights(ours))

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
    """Hugging Face's ``MarianMTModel``."""

    def __init__(self, ours: Transformer):
        super().__init__()
        from transformers import MarianConfig, MarianMTModel

        c = _post_norm(ours.config)
        settings = model_settings(ours, MAX_POSITIONS)
        self.model = MarianMTModel(MarianConfig(**settings, attn_implementation="sdpa"))
        for module in self.model.modules():
            if isinstance(module, nn.LayerNorm):
                module.eps = c.layer_norm_eps
        table = sinusoids(MAX_POSITIONS, c.d_model)
        positions = {f"model.{side}.embed_positions.weight": table for side in _STACKS}
        _fill(self.model, {**marian_weights(ours), **positions})

    def forward(self, pairs: PaddedPairs) -> Tensor:
        """Logits, [B, T, V]."""
        mask = None if pairs.src_padding is None else ~pairs.src_padding
        ids = {"input_ids": pairs.src, "decoder_input_ids": pairs.tgt_in}
        return self.model(**ids, attention_mask=mask, use_cache=False).logits


class PeerStep:
    """One update of a peer, with the interface of ``TrainStep`` and the same fused Adam."""

    def __init__(self, peer: nn.Module, config: OptimizerConfig, smoothing: float, precision: str):
        self._peer, self._smoothing, self._precision = peer, smoothing, precision
        self.optimizer = torch.optim.Adam(
            peer.parameters(), betas=(config.beta1, config.beta2), eps=config.eps, fused=True
        )

    def __call__(
        self, micro_batches: Sequence[PaddedPairs], num_targets: int, lr: float, seed: int
    ) -> Tensor:
        """Returns the loss, summed over target tokens."""
        torch.manual_seed(seed)
        self.optimizer.param_groups[0]["lr"] = lr
        self.optimizer.zero_grad(set_to_none=True)
        device = micro_batches[0].src.device
        total = torch.zeros((), device=device)
        for pairs in micro_batches:
            with autocast(device, self._precision):  # computes cross_entropy in fp32
                loss = F.cross_entropy(
                    self._peer(pairs).flatten(0, 1),
                    pairs.tgt_out.flatten(),
                    ignore_index=PAD,
                    reduction="sum",
                    label_smoothing=self._smoothing,
                )
            (loss / num_targets).backward()
            total += loss.detach()
        self.optimizer.step()
        return total


# Weights.

_STACKS = ("encoder", "decoder")


def torch_weights(ours: Transformer) -> dict[str, Tensor]:
    """Our weights under the names of ``TorchPeer``.

    Its ``in_proj_weight`` is W^Q, W^K and W^V, stacked.
    """
    w = dict(ours.named_parameters())
    theirs: dict[str, Tensor] = {"embedding.weight": w["embedding.weight"]}
    for stack, layers in zip(_STACKS, (ours.encoder, ours.decoder), strict=True):
        for i in range(len(layers)):
            mine, name = f"{stack}.{i}", f"transformer.{stack}.layers.{i}"
            own = f"{mine}.self_attention"
            theirs[f"{name}.self_attn.in_proj_weight"] = w[f"{own}.qkv_proj.weight"]
            theirs[f"{name}.self_attn.out_proj.weight"] = w[f"{own}.out_proj.weight"]
            if stack == "decoder":
                cross = f"{mine}.cross_attention"
                projections = (w[f"{cross}.q_proj.weight"], cross_keys_and_values(ours, i))
                theirs[f"{name}.multihead_attn.in_proj_weight"] = torch.cat(projections)
                theirs[f"{name}.multihead_attn.out_proj.weight"] = w[f"{cross}.out_proj.weight"]
            for kind in ("weight", "bias"):
                for k in (1, 2):
                    theirs[f"{name}.linear{k}.{kind}"] = w[f"{mine}.feed_forward.linear{k}.{kind}"]
                for k in (1, 2) if stack == "encoder" else (1, 2, 3):
                    theirs[f"{name}.norm{k}.{kind}"] = w[f"{mine}.residual{k}.norm.{kind}"]
    return theirs


def cross_keys_and_values(ours: Transformer, layer: int) -> Tensor:
    """[2D, D]: W^K and W^V of the cross-attention of a decoder layer, stacked."""
    return ours.source_projection.proj.weight.chunk(len(ours.decoder))[layer]


_MARIAN_NAMES = {
    "self_attn": "self_attn",
    "multihead_attn": "encoder_attn",
    "linear1": "fc1",
    "linear2": "fc2",
    "norm1": "self_attn_layer_norm",
    "norm2": "encoder_attn_layer_norm",
    "norm3": "final_layer_norm",
}
"""Marian's name for each part of a decoder layer of ``nn.Transformer``."""


def marian_weights(ours: Transformer) -> dict[str, Tensor]:
    """Our weights under the names of ``MarianMTModel``."""
    torch_names = torch_weights(ours)
    theirs = {"model.shared.weight": torch_names.pop("embedding.weight")}
    for name, weight in torch_names.items():
        _, stack, _, i, part, kind = name.split(".", 5)
        marian = _MARIAN_NAMES[part]
        if (stack, part) == ("encoder", "norm2"):  # the last norm of an encoder layer
            marian = _MARIAN_NAMES["norm3"]
        layer = f"model.{stack}.layers.{i}.{marian}"
        if kind == "in_proj_weight":
            for projection, rows in zip("qkv", weight.chunk(3), strict=True):
                theirs[f"{layer}.{projection}_proj.weight"] = rows
        else:
            theirs[f"{layer}.{kind}"] = weight
    return theirs


def _fill(module: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Copies weights into a module; its other parameters are biases and are set to zero."""
    parameters = dict(module.named_parameters())
    assert weights.keys() <= parameters.keys(), weights.keys() - parameters.keys()
    with torch.no_grad():
        for name, parameter in parameters.items():
            if name in weights:
                parameter.copy_(weights[name])
            else:
                assert name.endswith("bias"), name
                parameter.zero_()


def _post_norm(config: ModelConfig) -> ModelConfig:
    """The config, which the peers must support."""
    assert config.norm == "post"
    assert config.positions == "sinusoidal"
    assert config.key_size * config.num_heads == config.d_model
    assert config.value_size * config.num_heads == config.d_model
    return config


# The variants.


@dataclass
class Variant:
    """A model and how to update it."""

    name: str
    model: nn.Module
    step: Callable[[Update, float, int], Tensor]
    """(pairs, learning rate, seed) → the loss, summed over target tokens."""
    loss: float = 0.0
    """Loss per target token before any update."""
    seconds: list[float] = field(default_factory=list)
    """Seconds of each round."""
    peak_bytes: int = 0
    """Peak memory on a GPU, without that of the other variants."""

    @property
    def precision(self) -> str:
        return self.name.split("-")[1]

    @property
    def held_bytes(self) -> int:
        """Memory between updates in bytes: weights, gradients and the two moments of Adam."""
        return 4 * sum(p.nbytes for p in self.model.parameters() if p.requires_grad)


def build(names: list[str], config: ModelConfig, vocab_size: int, world: World) -> list[Variant]:
    """All variants, with the same initial weights."""
    torch.manual_seed(1)
    initial = Transformer(config, vocab_size)
    return [build_one(name, initial, world) for name in names]


def build_one(name: str, initial: Transformer, world: World) -> Variant:
    kind, precision = name.split("-")[:2]
    if kind == "ours":
        dropout: dict[str, Any] = {WITH_DROPOUT[name]: 0.1} if name in WITH_DROPOUT else {}
        model = Transformer(replace(initial.config, **dropout), initial.vocab_size)
        model.load_state_dict(initial.state_dict())
        model.to(world.device)
        kernel = choose_kernels("auto", precision, world.device).products
        step = TrainStep(model, OptimizerConfig(), SMOOTHING, precision, world, kernel=kernel)

        def update(work: Update, lr: float, seed: int) -> Tensor:
            return step([work.ours], work.tgt_tokens, lr, seed).loss

        return Variant(name, model, update)
    peer = (TorchPeer if kind == "torch" else MarianPeer)(initial).to(world.device)
    peer_step = PeerStep(peer, OptimizerConfig(), SMOOTHING, precision)

    def peer_update(work: Update, lr: float, seed: int) -> Tensor:
        return peer_step(work.padded, work.tgt_tokens, lr, seed)

    return Variant(name, peer.train(), peer_update)
