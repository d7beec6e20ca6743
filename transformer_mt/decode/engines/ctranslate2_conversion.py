"""Conversion of a model to CTranslate2's format.

The result is a plain CTranslate2 model that any program can load; its tokens are the pieces of the
vocabulary (``tokenizer.model``, or ``source.spm`` and ``target.spm``), of which it has a copy.
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from transformer_mt.batch import Batch, Packed
from transformer_mt.data.subwords.tokenizer import BOS, EOS, UNK, Tokenizer, copy_vocabulary
from transformer_mt.decode.engine import SINUSOIDS, UnavailableError
from transformer_mt.model.layers import (
    DecoderLayer,
    EncoderLayer,
    FeedForward,
    SelfAttention,
    sinusoids,
)
from transformer_mt.model.transformer import Transformer

Spec = Any
"""A node of CTranslate2's model specification; the library is untyped."""


def save(
    folder: Path, model: Transformer, tokenizer: Tokenizer, vocabulary: Path, compute_type: str
) -> None:
    """Writes a converted model and a copy of its vocabulary into an empty folder.

    The model must have a supported shape (``engine.check_supported``) and be on the CPU.

    Raises:
        UnavailableError: The converted model computes something else, because a layer was changed.
    """
    spec = specification(model, tokenizer)
    spec.validate()
    spec.optimize(quantization=compute_type)
    spec.save(str(folder))
    copy_vocabulary(vocabulary, folder)
    _compare(folder, model, tokenizer, 0.1 if compute_type.startswith("int") else 0.01)


def _compare(folder: Path, model: Transformer, tokenizer: Tokenizer, tolerance: float) -> None:
    """Raises ``UnavailableError`` unless both models give some pieces the same log-probabilities.

    Args:
        folder: The converted model.
        model: The model.
        tokenizer: Its vocabulary.
        tolerance: Maximum sum of the differences, as a share of the sum of the log-probabilities.
    """
    import ctranslate2

    src, tgt = (range(size - 5, size) for size in (tokenizer.vocab_size, tokenizer.tgt.vocab_size))
    sides = Packed.from_sequences([[*src, EOS]]), Packed.from_sequences([[BOS, *tgt]])
    tgt_out = torch.tensor([*tgt, EOS])
    with torch.inference_mode():
        log_probs = model.logits(model(Batch(*sides, tgt_out))).log_softmax(-1)
    expected = log_probs.gather(1, tgt_out[:, None])[:, 0]
    pieces = [[tokenizer.vocabulary[i] for i in src]], [[tokenizer.tgt.vocabulary[i] for i in tgt]]
    (found,) = ctranslate2.Translator(str(folder), compute_type="float32").score_batch(*pieces)
    differences = (torch.tensor(found.log_probs) - expected).abs().sum()
    if differences > tolerance * expected.abs().sum():  # false for NaN, which engines report
        raise UnavailableError("CTranslate2 does not compute what the layers of this model do")


def specification(model: Transformer, tokenizer: Tokenizer) -> Spec:
    """The model as a CTranslate2 specification, as its own converters make them."""
    from ctranslate2.specs import TransformerSpec
    from ctranslate2.specs.common_spec import Activation

    config = model.config
    activation = getattr(Activation, config.activation.upper(), None)
    if activation is None:
        raise UnavailableError(f"CTranslate2 does not support model.activation={config.activation}")
    spec = TransformerSpec.from_config(
        (config.num_encoder_layers, config.num_decoder_layers),
        config.num_heads,
        pre_norm=config.norm == "pre",
        activation=activation,
    )
    for stack, embedding, out in (
        (spec.encoder, model.source_embedding, spec.encoder.embeddings[0]),
        (spec.decoder, model.embedding, spec.decoder.embeddings),
    ):
        out.weight = _copy(embedding.weight)
        stack.scale_embeddings = config.scale_embeddings
        # CTranslate2's default has other frequencies, and all sines before the cosines.
        stack.position_encodings.encodings = (
            _copy(embedding.positions)
            if config.positions == "learned"
            else sinusoids(SINUSOIDS, config.d_model)
        )
    spec.decoder.projection.weight = _copy(model.output_weight)
    if model.output_bias is not None:
        spec.decoder.projection.bias = _copy(model.output_bias)

    for layer, out in zip(model.encoder, spec.encoder.layer, strict=True):
        assert isinstance(layer, EncoderLayer)
        _set_self_attention(out.self_attention, layer.self_attention, layer.residual1.norm)
        _set_feed_forward(out.ffn, layer.feed_forward, layer.residual2.norm)
    # Projections of the source to keys and values: one matrix, two parts for each layer.
    size = sum(model.source_projection.sizes[:2])
    for i, (layer, out) in enumerate(zip(model.decoder, spec.decoder.layer, strict=True)):
        assert isinstance(layer, DecoderLayer)
        _set_self_attention(out.self_attention, layer.self_attention, layer.residual1.norm)
        _set_norm(out.attention.layer_norm, layer.residual2.norm)
        queries, keys_values, outputs = out.attention.linear
        _set_linear(queries, layer.cross_attention.q_proj)
        _set_linear(keys_values, model.source_projection.proj, slice(size * i, size * (i + 1)))
        _set_linear(outputs, layer.cross_attention.out_proj)
        _set_feed_forward(out.ffn, layer.feed_forward, layer.residual3.norm)
    if config.norm == "pre":
        _set_norm(spec.encoder.layer_norm, model.encoder_norm)
        _set_norm(spec.decoder.layer_norm, model.decoder_norm)

    spec.register_source_vocabulary([*tokenizer.vocabulary])  # a copy: CTranslate2 may pad it
    spec.register_target_vocabulary([*tokenizer.tgt.vocabulary])
    spec.config.layer_norm_epsilon = config.layer_norm_eps
    spec.config.unk_token = tokenizer.tgt.vocabulary[UNK]
    spec.config.bos_token = tokenizer.tgt.vocabulary[BOS]
    spec.config.decoder_start_token = tokenizer.tgt.vocabulary[BOS]
    spec.config.eos_token = tokenizer.tgt.vocabulary[EOS]
    spec.config.add_source_eos = True
    return spec


def _set_self_attention(spec: Spec, attention: SelfAttention, norm: nn.Module) -> None:
    _set_linear(spec.linear[0], attention.qkv_proj)
    _set_linear(spec.linear[1], attention.out_proj)
    _set_norm(spec.layer_norm, norm)


def _set_feed_forward(spec: Spec, network: FeedForward, norm: nn.Module) -> None:
    _set_linear(spec.linear_0, network.linear1)
    _set_linear(spec.linear_1, network.linear2)
    _set_norm(spec.layer_norm, norm)


def _set_linear(spec: Spec, linear: nn.Linear, rows: slice = slice(None)) -> None:
    spec.weight = _copy(linear.weight[rows])
    if linear.bias is not None:
        spec.bias = _copy(linear.bias[rows])


def _set_norm(spec: Spec, norm: nn.Module) -> None:
    assert isinstance(norm, nn.LayerNorm)
    spec.gamma, spec.beta = _copy(norm.weight), _copy(norm.bias)


def _copy(weight: Tensor) -> Tensor:
    # CTranslate2 quantizes in place, which must not change the model.
    return weight.detach().clone()
