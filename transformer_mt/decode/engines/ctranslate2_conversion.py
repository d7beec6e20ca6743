"""Conversion of a model to CTranslate2's format.

The result is a plain CTranslate2 model that any program can load; its tokens are the pieces of
``tokenizer.model``, of which it contains a copy.
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from transformer_mt.data.subwords.tokenizer import Tokenizer, copy_vocabulary
from transformer_mt.decode.engines.converted_models import SINUSOIDS, special_tokens
from transformer_mt.model.embedding import sinusoids
from transformer_mt.model.layers import (
    LAYER_NORM_EPS,
    DecoderLayer,
    EncoderLayer,
    FeedForward,
    SelfAttention,
)
from transformer_mt.model.transformer import Transformer

Spec = Any
"""A node of CTranslate2's model specification; the library is untyped."""


def save(
    folder: Path, model: Transformer, tokenizer: Tokenizer, vocabulary: Path, compute_type: str
) -> None:
    """Writes a converted model and a copy of its vocabulary into an empty folder.

    The model must have a supported shape (``converted_models.check_shape``) and be on the CPU.
    """
    spec = specification(model, tokenizer)
    spec.validate()
    spec.optimize(quantization=compute_type)
    spec.save(str(folder))
    copy_vocabulary(vocabulary, folder)


def specification(model: Transformer, tokenizer: Tokenizer) -> Spec:
    """The model as a CTranslate2 specification, as its own converters make them."""
    from ctranslate2.specs import TransformerSpec

    config = model.config
    spec = TransformerSpec.from_config(
        (config.num_encoder_layers, config.num_decoder_layers),
        config.num_heads,
        pre_norm=config.norm == "pre",
    )
    embedding = _copy(model.embedding.weight)
    if config.positions == "learned":
        positions = _copy(model.embedding.positions)
    else:  # CTranslate2's default has other frequencies, and all sines before the cosines
        positions = sinusoids(SINUSOIDS, config.d_model)
    spec.encoder.embeddings[0].weight = embedding
    spec.decoder.embeddings.weight = embedding
    spec.decoder.projection.weight = embedding
    spec.encoder.position_encodings.encodings = positions
    spec.decoder.position_encodings.encodings = positions

    for layer, out in zip(model.encoder, spec.encoder.layer, strict=True):
        assert isinstance(layer, EncoderLayer)
        _set_self_attention(out.self_attention, layer.self_attention, layer.residual1.norm)
        _set_feed_forward(out.ffn, layer.feed_forward, layer.residual2.norm)
    # Projections of the source to keys and values: one matrix, two parts for each layer.
    sources = model.source_projection
    parts = sources.proj.weight.split(sources.sizes)
    for i, (layer, out) in enumerate(zip(model.decoder, spec.decoder.layer, strict=True)):
        assert isinstance(layer, DecoderLayer)
        _set_self_attention(out.self_attention, layer.self_attention, layer.residual1.norm)
        _set_norm(out.attention.layer_norm, layer.residual2.norm)
        queries, keys_values, outputs = out.attention.linear
        queries.weight = _copy(layer.cross_attention.q_proj.weight)
        keys_values.weight = torch.cat(parts[2 * i : 2 * i + 2]).detach()
        outputs.weight = _copy(layer.cross_attention.out_proj.weight)
        _set_feed_forward(out.ffn, layer.feed_forward, layer.residual3.norm)
    if config.norm == "pre":
        _set_norm(spec.encoder.layer_norm, model.encoder_norm)
        _set_norm(spec.decoder.layer_norm, model.decoder_norm)

    spec.register_source_vocabulary([*tokenizer.vocabulary])  # a copy: CTranslate2 may pad it
    spec.register_target_vocabulary([*tokenizer.tgt.vocabulary])
    spec.config.layer_norm_epsilon = LAYER_NORM_EPS
    for name, value in special_tokens(tokenizer.tgt.vocabulary).items():
        setattr(spec.config, name, value)
    return spec


def _set_self_attention(spec: Spec, attention: SelfAttention, norm: nn.Module) -> None:
    spec.linear[0].weight = _copy(attention.qkv_proj.weight)
    spec.linear[1].weight = _copy(attention.out_proj.weight)
    _set_norm(spec.layer_norm, norm)


def _set_feed_forward(spec: Spec, network: FeedForward, norm: nn.Module) -> None:
    for out, linear in ((spec.linear_0, network.linear1), (spec.linear_1, network.linear2)):
        out.weight, out.bias = _copy(linear.weight), _copy(linear.bias)
    _set_norm(spec.layer_norm, norm)


def _set_norm(spec: Spec, norm: nn.Module) -> None:
    assert isinstance(norm, nn.LayerNorm)
    spec.gamma, spec.beta = _copy(norm.weight), _copy(norm.bias)


def _copy(weight: Tensor) -> Tensor:
    # CTranslate2 quantizes in place, which must not change the model.
    return weight.detach().clone()
