"""Conversion of a model to CTranslate2's format, stored in the model folder.

The result is a plain CTranslate2 model that any program can load; its tokens are the pieces of
``tokenizer.model``, of which it contains a copy.
"""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from transformer_mt import files, run_layout
from transformer_mt.config import ModelConfig, TrainJob
from transformer_mt.data.subwords.tokenizer import BOS, EOS, UNK, Tokenizer
from transformer_mt.errors import InputError
from transformer_mt.model.attention import SelfAttention
from transformer_mt.model.embedding import sinusoids
from transformer_mt.model.layers import LAYER_NORM_EPS, DecoderLayer, EncoderLayer, FeedForward
from transformer_mt.model.transformer import Transformer

Spec = Any
"""A node of CTranslate2's model specification; the library is untyped."""

_VERSION = 1
"""Version of the conversion; when it changes, models are converted again."""

_MADE_FROM = "made_from.json"
_SINUSOIDS = 2048
"""Number of sinusoidal positions to write; the model itself has no limit."""


def check_shape(config: ModelConfig) -> None:
    """Raises ``InputError`` if CTranslate2 does not support the shape of a model."""
    for name, size in (("d_k", config.key_size), ("d_v", config.value_size)):
        if size * config.num_heads != config.d_model:
            raise InputError(
                f"CTranslate2 does not support this model: model.{name}={size} is not d_model / "
                f"num_heads = {config.d_model} / {config.num_heads}; translate with engine=torch"
            )


def num_positions(config: ModelConfig) -> int:
    """Maximum length of a sequence, start or end symbol included, of a converted model."""
    return config.max_positions if config.positions == "learned" else _SINUSOIDS


def checksum(model: Transformer, tokenizer: Tokenizer) -> str:
    """SHA-256 of a model and its vocabulary, as hexadecimal digits.

    It is computed from memory, because a training run may replace the files meanwhile.
    """
    pieces = tokenizer.vocabulary
    digest = hashlib.sha256(json.dumps([asdict(model.config), pieces]).encode())
    for name, parameter in model.named_parameters():
        digest.update(name.encode())
        digest.update(parameter.detach().cpu().numpy().data)
    return digest.hexdigest()


def convert(
    folder: Path, model: Transformer, tokenizer: Tokenizer, compute_type: str
) -> tuple[Path, str | None]:
    """Converts a model, unless a conversion of the same weights exists.

    It is stored in ``ctranslate2/<compute_type>`` in the model folder or, where that cannot be
    written or has links, such as in the Hugging Face cache, in our cache.

    Returns:
        The folder of the converted model, and a message for the user if it was converted now.

    Raises:
        InputError: CTranslate2 does not support the model, or it cannot be stored anywhere.
    """
    check_shape(model.config)
    made_from = {"model": checksum(model, tokenizer), "version": _VERSION}
    in_folder = folder / run_layout.CTRANSLATE2
    cache = files.expand_user(TrainJob.cache_dir) / "ctranslate2" / str(made_from["model"])[:16]
    linked = in_folder.is_symlink() or (folder / run_layout.WEIGHTS).is_symlink()
    places = [cache] if linked else [in_folder, cache]
    for parent in places:
        if _is_valid(parent / compute_type, made_from):
            return parent / compute_type, None
    obstacles = []
    for parent in places:
        target = parent / compute_type
        try:
            parent.mkdir(parents=True, exist_ok=True)
            with files.locked(parent / ".lock"):
                if not _is_valid(target, made_from):  # another process may have been faster
                    _write(target, made_from, model, tokenizer, folder / run_layout.TOKENIZER)
        except OSError as error:
            obstacles.append(f"{parent} cannot be written ({error.strerror or error})")
        else:
            because = "".join(f"; {obstacle}" for obstacle in obstacles)
            return target, f"converted the model for CTranslate2: {target}{because}"
    raise InputError(
        f"cannot store the converted model: {'; '.join(obstacles)}; set engine=torch to do without"
    )


def save(
    folder: Path, model: Transformer, tokenizer: Tokenizer, vocabulary: Path, compute_type: str
) -> None:
    """Writes a converted model and a copy of its vocabulary file into an empty folder.

    The model must have a supported shape (``check_shape``) and be on the CPU.
    """
    spec = specification(model, tokenizer)
    spec.register_file(str(vocabulary))
    spec.validate()
    spec.optimize(quantization=compute_type)
    spec.save(str(folder))


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
        positions = sinusoids(_SINUSOIDS, config.d_model)
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

    pieces = list(tokenizer.vocabulary)  # CTranslate2 may pad it
    spec.register_source_vocabulary(pieces)
    spec.register_target_vocabulary(pieces)
    spec.config.layer_norm_epsilon = LAYER_NORM_EPS
    spec.config.unk_token = pieces[UNK]
    spec.config.bos_token = spec.config.decoder_start_token = pieces[BOS]
    spec.config.eos_token = pieces[EOS]
    spec.config.add_source_eos = True
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


def _is_valid(converted: Path, made_from: dict[str, object]) -> bool:
    """Whether a folder is a conversion of this model with all files intact."""
    try:
        found = files.read_json(converted / _MADE_FROM)
        checksums = found.pop("files")
        same = found == made_from and checksums == _checksums(converted, checksums)
        return same and bool(checksums)
    except (OSError, ValueError, AttributeError, KeyError, TypeError):
        return False


def _checksums(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """SHA-256 of each of these files of a folder."""
    return {name: files.sha256(folder / Path(name).name) for name in names}


def _write(
    target: Path, made_from: dict[str, object], model: Transformer, tokenizer: Tokenizer, file: Path
) -> None:
    with files.new_folder(target, replace=True) as unfinished:
        save(unfinished, model, tokenizer, file, target.name)
        checksums = _checksums(unfinished, sorted(path.name for path in unfinished.iterdir()))
        files.write_text(unfinished / _MADE_FROM, json.dumps({**made_from, "files": checksums}))
