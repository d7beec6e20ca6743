"""A model folder in CTranslate2's format: converted once, and kept beside the weights.

What is written is a plain CTranslate2 model that any program can load; it reads and writes the
pieces of ``tokenizer.model``, of which it holds a copy.
"""

import hashlib
import json
import shutil
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock
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
"""A node of CTranslate2's description of a model; the library has no types."""

_VERSION = 1
"""Of what is written here: where it changes, every model is converted anew."""

_MADE_FROM = "made_from.json"
_SINUSOIDS = 2048
"""Positions written for a model whose positions have no end."""


def check_shape(config: ModelConfig) -> None:
    """Refuses a model that CTranslate2 has no layout for.

    Raises:
        InputError: Its heads do not share d_model out evenly.
    """
    for name, size in (("d_k", config.key_size), ("d_v", config.value_size)):
        if size * config.num_heads != config.d_model:
            raise InputError(
                f"CTranslate2 cannot hold this model: its model.{name}={size} is not d_model / "
                f"num_heads = {config.d_model} / {config.num_heads}; say engine=torch"
            )


def num_positions(config: ModelConfig) -> int:
    """The longest sequence, start or end symbol included, that a converted model takes."""
    return config.max_positions if config.positions == "learned" else _SINUSOIDS


def checksum(model: Transformer, tokenizer: Tokenizer) -> str:
    """Of a model and its vocabulary.

    It is taken from memory and not from the files, which a training run may replace meanwhile.
    """
    pieces = tokenizer.vocabulary
    digest = hashlib.sha256(json.dumps([asdict(model.config), pieces]).encode())
    for name, parameter in model.named_parameters():
        digest.update(name.encode())
        digest.update(parameter.detach().numpy().data)
    return digest.hexdigest()


def convert(
    folder: Path,
    model: Transformer,
    tokenizer: Tokenizer,
    compute_type: str,
) -> tuple[Path, str | None]:
    """Where the converted model lies; it is written if there is none of these weights yet.

    That is ``ctranslate2/<compute_type>`` beside the weights, or a folder of the cache where the
    model folder cannot be written.

    Args:
        folder: A model folder.
        model: What it holds, on the CPU.
        tokenizer: Its vocabulary.
        compute_type: How the weights are stored: ``float32``, ``int8`` and so on.

    Returns:
        The converted folder, and a line for the user if it was written now.

    Raises:
        InputError: CTranslate2 cannot hold the model, or there is no place to write it to.
    """
    check_shape(model.config)
    wanted = {"model": checksum(model, tokenizer), "version": _VERSION}
    beside = folder / "ctranslate2"
    cache = files.expand_user(TrainJob.cache_dir) / "ctranslate2" / str(wanted["model"])[:16]

    for parent in (beside, cache):
        if _is_whole(parent / compute_type, wanted):
            return parent / compute_type, None
    obstacles = []
    for parent in (beside, cache):
        place = parent / compute_type
        try:
            parent.mkdir(parents=True, exist_ok=True)
            with FileLock(parent / ".lock"):
                if not _is_whole(place, wanted):  # another process may have been faster
                    _write(place, wanted, model, tokenizer, folder / run_layout.TOKENIZER)
        except OSError as error:
            obstacles.append(f"{parent} cannot be written ({error.strerror or error})")
        else:
            because = "".join(f"; {obstacle}" for obstacle in obstacles)
            return place, f"converted the model for CTranslate2: {place}{because}"
    raise InputError(f"no place for the converted model: {'; '.join(obstacles)}")


def specification(model: Transformer, tokenizer: Tokenizer) -> Spec:
    """The model as CTranslate2's own converters describe one."""
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
    else:  # CTranslate2's own have other frequencies, and all the sines before the cosines
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
    # Keys and values of the source: rows of one matrix, two parts for each layer.
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
    # CTranslate2 rounds to int8 in place: the model must not see it.
    return weight.detach().clone()


def _is_whole(place: Path, wanted: dict[str, object]) -> bool:
    """Whether a converted folder is of this model, and every file as it was written."""
    try:
        found = json.loads((place / _MADE_FROM).read_text(encoding="utf-8"))
        checksums = found.pop("files")
        return bool(found == wanted and checksums and checksums == _checksums(place, checksums))
    except (OSError, ValueError, AttributeError, KeyError, TypeError):
        return False


def _checksums(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """SHA-256 of files of a folder."""
    return {name: files.sha256(folder / Path(name).name) for name in names}


def _write(
    place: Path,
    made_from: dict[str, object],
    model: Transformer,
    tokenizer: Tokenizer,
    vocabulary: Path,
) -> None:
    unfinished = place.with_name(f".{place.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    try:
        spec = specification(model, tokenizer)
        spec.register_file(str(vocabulary))
        spec.validate()
        spec.optimize(quantization=place.name)
        spec.save(str(unfinished))
        checksums = _checksums(unfinished, sorted(file.name for file in unfinished.iterdir()))
        files.write_text(unfinished / _MADE_FROM, json.dumps({**made_from, "files": checksums}))
        for file in unfinished.iterdir():
            files.sync(file)
        shutil.rmtree(place, ignore_errors=True)  # of weights that are no longer there
        unfinished.rename(place)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
