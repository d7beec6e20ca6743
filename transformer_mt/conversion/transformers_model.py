"""Our weights and settings as a model of Hugging Face transformers.

Post-norm models become MarianMT, pre-norm models Blenderbot: the same layers, with a norm before
each sub-layer and one at the end. Pegasus has them too, but transformers.js has only Blenderbot;
M2M100 has sinusoids of other frequencies, which are not stored with the model.

Two differences are compensated, so that the logits agree to rounding:

* MarianMT computes its sinusoids itself, all sines before the cosines, and never stores positions:
  the dimensions of the model are reordered. Blenderbot stores positions, ours or learned ones.
* Both have ε = 1e-5 in LayerNorm(x) = (x − μ) / √(σ² + ε), ours is 1e-6 by default. A residual
  stream that is √10 times as large has the variance 10 σ², which makes 1e-5 act like 1e-6: layers
  that read the stream are divided by √10, those that write to it multiplied. Embeddings plus
  Marian's own sinusoids cannot be enlarged, so the first norm of each of its stacks keeps the
  larger ε.

Shapes: D model; V vocabulary.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from transformer_mt.config import ModelConfig, SearchConfig
from transformer_mt.data.subwords.tokenizer import BOS, EOS, PAD, UNK
from transformer_mt.decode.engine import unsupported_shape
from transformer_mt.errors import InputError
from transformer_mt.model.layers import DecoderLayer, EncoderLayer, FeedForward, sinusoids
from transformer_mt.model.transformer import Transformer

NUM_POSITIONS = 1024
"""Minimum number of sinusoidal positions; the model itself has no limit."""
LAYER_NORM_EPS = 1e-5
_CLASSES = {
    "post": ("marian", "MarianMTModel"),
    "pre": ("blenderbot", "BlenderbotForConditionalGeneration"),
}
"""``model_type`` and class for each ``model.norm``."""

Weights = dict[str, Tensor]
"""Weights by their names in transformers."""


def check_supported(config: ModelConfig) -> None:
    """Raises ``InputError`` if transformers has no class for the shape of a model."""
    if config.norm == "post" and config.positions == "learned":
        raise InputError(
            "format=transformers does not support model.positions=learned with model.norm=post: "
            "MarianMT has sinusoids only, and no other post-norm class has learned positions "
            "without a norm after them; set format=ctranslate2"
        )
    if config.norm == "pre" and config.tied_embeddings != "all":
        raise InputError(
            f"format=transformers does not support model.tied_embeddings={config.tied_embeddings} "
            "with model.norm=pre: Blenderbot has one matrix; set format=ctranslate2"
        )
    if unsupported := unsupported_shape(config):
        raise InputError(f"format=transformers does not support {', '.join(unsupported)}")


def model_settings(model: Transformer, num_positions: int) -> dict[str, Any]:
    """Content of ``config.json``."""
    config = model.config
    model_type, name = _CLASSES[config.norm]
    # Blenderbot, a model of dialogues, does not repeat three words of its input by default.
    own = {"encoder_no_repeat_ngram_size": 0} if config.norm == "pre" else {}
    return {
        **own,
        "architectures": [name],
        "model_type": model_type,
        "is_encoder_decoder": True,
        "vocab_size": model.src_vocab_size,
        "decoder_vocab_size": model.vocab_size,
        "d_model": config.d_model,
        "encoder_layers": config.num_encoder_layers,
        "encoder_attention_heads": config.num_heads,
        "encoder_ffn_dim": config.d_ff,
        "decoder_layers": config.num_decoder_layers,
        "decoder_attention_heads": config.num_heads,
        "decoder_ffn_dim": config.d_ff,
        "max_position_embeddings": num_positions,
        "activation_function": config.activation,
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        "activation_dropout": config.activation_dropout,
        "scale_embedding": config.scale_embeddings,
        "share_encoder_decoder_embeddings": config.tied_embeddings == "all",
        "tie_word_embeddings": config.tied_embeddings != "none",
        **_TOKENS,
    }


def generation_settings(config: SearchConfig, num_positions: int) -> dict[str, Any]:
    """Content of ``generation_config.json``: the model's own search as far as ``generate`` has it.

    ``generate`` divides log-probabilities by |Y|^p, ours are divided by ((5 + |Y|) / 6)^α. With
    p = 0.8 α both prefer longer translations equally at 20 symbols, where their logarithms have the
    same slope, α |Y| / (5 + |Y|). The maximum length of ``generate`` does not depend on the source.
    """
    longest = config.max_source_tokens + config.max_extra_tokens
    settings = {
        **_TOKENS,
        "suppress_tokens": [PAD, UNK, BOS],
        # Start and end symbol included; the last symbol needs no position.
        "max_length": min(longest + 2, num_positions + 1),
        "num_beams": config.beam_size,
    }
    if config.beam_size > 1:
        settings["length_penalty"] = round(0.8 * config.length_penalty, 6)
        settings["early_stopping"] = True
    return settings


def num_positions(config: ModelConfig, decode: SearchConfig) -> int:
    """Maximum length of a sequence, start or end symbol included, of the converted model."""
    if config.positions == "learned":
        return config.max_positions
    return max(NUM_POSITIONS, decode.max_source_tokens + decode.max_extra_tokens + 1)


_TOKENS = {
    "pad_token_id": PAD,
    "bos_token_id": BOS,
    "eos_token_id": EOS,
    "forced_eos_token_id": EOS,
    "decoder_start_token_id": BOS,
}


def convert_weights(model: Transformer, num_positions: int) -> Weights:
    """The weights of a supported model (``check_supported``), by their transformers names.

    ``num_positions`` positions are stored.
    """
    config = model.config
    pre = config.norm == "pre"
    order = torch.arange(config.d_model) if pre else sines_first(config.d_model)
    scale = math.sqrt(LAYER_NORM_EPS / config.layer_norm_eps)
    plain, large = _Basis(order, 1.0), _Basis(order, scale)
    embedded = large if pre else plain
    bias = torch.zeros(model.vocab_size) if model.output_bias is None else model.output_bias
    weights = {"final_logits_bias": bias[None]}
    if config.tied_embeddings == "all":
        # One matrix: the last norm undoes the scale of the input.
        weights["model.shared.weight"] = embedded.write(model.embedding.weight.T).T
    else:
        source, target = model.source_embedding.weight, model.embedding.weight
        weights["model.encoder.embed_tokens.weight"] = plain.read(source)
        weights["model.decoder.embed_tokens.weight"] = plain.read(target)
    if config.tied_embeddings == "none":
        weights["lm_head.weight"] = plain.read(model.output_weight)
    if pre:
        learned = config.positions == "learned"
        ours = model.embedding.positions if learned else sinusoids(num_positions, config.d_model)
        positions = embedded.write(ours.T).T
        final = _Basis(order, 1 / scale)
        for stack, norm, basis in (
            ("encoder", model.encoder_norm, plain),
            ("decoder", model.decoder_norm, final),
        ):
            weights[f"model.{stack}.embed_positions.weight"] = positions.clone()
            weights |= _norm(f"model.{stack}.layer_norm", norm, basis)

    sources = model.source_projection
    cross_kv = _with_bias(sources.proj).split(sources.sizes)
    for stack, layers in (("encoder", model.encoder), ("decoder", model.decoder)):
        stream = embedded
        for i, layer in enumerate(layers):
            assert isinstance(layer, EncoderLayer | DecoderLayer)
            name = f"model.{stack}.layers.{i}"
            within = plain if pre else large  # where all norms but the last of a stack write
            last = within if i < len(layers) - 1 else plain
            read = plain if pre else stream
            own = layer.self_attention
            q, k, v = _with_bias(own.qkv_proj).split(own.sizes)
            heads = q, k, v, _with_bias(own.out_proj)
            weights |= _attention(f"{name}.self_attn", heads, read, read, stream)
            weights |= _norm(f"{name}.self_attn_layer_norm", layer.residual1.norm, within)
            read, stream = within, large
            final_norm = layer.residual2.norm
            if isinstance(layer, DecoderLayer):
                cross = layer.cross_attention
                k, v = cross_kv[2 * i : 2 * i + 2]
                heads = _with_bias(cross.q_proj), k, v, _with_bias(cross.out_proj)
                weights |= _attention(f"{name}.encoder_attn", heads, read, plain, stream)
                weights |= _norm(f"{name}.encoder_attn_layer_norm", final_norm, within)
                final_norm = layer.residual3.norm
            weights |= _feed_forward(name, layer.feed_forward, read, stream)
            weights |= _norm(f"{name}.final_layer_norm", final_norm, last)
    return {name: tensor.detach().contiguous() for name, tensor in weights.items()}


@dataclass(frozen=True)
class _Basis:
    """Representation of D-dimensional vectors in the other model: reordered and scaled."""

    order: Tensor
    scale: float

    def read(self, weight: Tensor) -> Tensor:
        """[M, D] weight of a layer whose input has this representation."""
        return weight[:, self.order] / self.scale

    def write(self, weight: Tensor) -> Tensor:
        """[D, …] weight or bias of a layer whose output has this representation."""
        return weight[self.order] * self.scale


def sines_first(d_model: int) -> Tensor:
    """The order of our dimensions in MarianMT: all sines, then all cosines."""
    return torch.arange(d_model).view(-1, 2).T.flatten()


def _with_bias(linear: nn.Linear) -> Tensor:
    """[M, D + 1], the weight of a layer and, as its last column, its bias or zeros."""
    bias = linear.weight.new_zeros(len(linear.weight)) if linear.bias is None else linear.bias
    return torch.cat([linear.weight, bias[:, None]], dim=1)


def _attention(
    name: str, heads: tuple[Tensor, ...], query: _Basis, memory: _Basis, output: _Basis
) -> Weights:
    """An attention layer: Q, K, V and the output matrix, with their biases as last column."""
    q, k, v, out = heads
    weights = {"out": (output.write(out[:, :-1]), output.write(out[:, -1]))}
    for key, weight, basis in (("q", q, query), ("k", k, memory), ("v", v, memory)):
        weights[key] = basis.read(weight), weight[:, -1]
    return {
        f"{name}.{key}_proj.{kind}": tensor
        for key, pair in weights.items()
        for kind, tensor in zip(("weight", "bias"), pair, strict=True)
    }


def _feed_forward(name: str, network: FeedForward, read: _Basis, output: _Basis) -> Weights:
    return {
        f"{name}.fc1.weight": read.read(network.linear1.weight),
        f"{name}.fc1.bias": network.linear1.bias,
        f"{name}.fc2.weight": output.write(network.linear2.weight),
        f"{name}.fc2.bias": output.write(network.linear2.bias),
    }


def _norm(name: str, norm: nn.Module, output: _Basis) -> Weights:
    assert isinstance(norm, nn.LayerNorm)
    return {f"{name}.weight": output.write(norm.weight), f"{name}.bias": output.write(norm.bias)}
