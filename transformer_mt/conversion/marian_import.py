"""MarianMT models of Hugging Face transformers, such as those of OPUS-MT, as model folders of ours.

The layers are the same, so the import is exact; only dimensions and pieces are numbered otherwise:

* MarianMT has all sines before the cosines: the dimensions of the model are reordered.
* Its decoder starts with ``<pad>``, a symbol that Marian itself does not have and that must never
  be generated. Here it is the start symbol ``<s>``, with a bias that takes its probability away,
  and ``<pad>``, which our batches do not contain, is a row of zeros.
* Special symbols have the ids that they always have here; the other pieces keep their order.

A folder is not trusted: names, shapes and sizes are checked before weights are read, and nothing in
it can name code to run.

Shapes: D model; V vocabulary.
"""

import math
import pickle
import pickletools
import re
import zipfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import torch
from torch import Tensor

from transformer_mt import checkpoint as ckpt
from transformer_mt import files, hub_models, model_folder, run_layout
from transformer_mt.config import DecodeConfig, ModelConfig, TokenizerConfig, TrainJob
from transformer_mt.config.data import DataConfig
from transformer_mt.config.train import CardConfig, TrainConfig
from transformer_mt.conversion.transformers_model import LAYER_NORM_EPS, sines_first
from transformer_mt.data.subwords.tokenizer import BOS, PAD, Tokenizer, read_pieces
from transformer_mt.errors import InputError, first_line, printable

START_BIAS = -100.0
"""Output bias of ``<s>`` and ``<pad>``: e^−100 is no probability."""

_SIZES = {
    **dict.fromkeys(("d_model", "vocab_size", "decoder_start_token_id"), int),
    **dict.fromkeys(("encoder_layers", "encoder_attention_heads", "encoder_ffn_dim"), int),
    **dict.fromkeys(("decoder_layers", "decoder_attention_heads", "decoder_ffn_dim"), int),
}
"""What a ``config.json`` must have."""
_ACTIVATIONS = {"relu": "relu", "swish": "swish", "silu": "swish", "gelu": "gelu"}
_SPECIAL = ("<pad>", "<unk>", "<s>", "</s>")
"""Our special symbols, by id."""
_IGNORED = {f"model.{stack}.embed_positions.weight" for stack in ("encoder", "decoder")}
"""Tensors that some files have and nothing needs: the sinusoids."""
_MAX_FILE_BYTES = 2**24
_MAX_EXTRA_BYTES = 2**26
"""Bytes of a file of weights besides those of the model."""
_MAX_PICKLE_BYTES = 2**22
"""Maximum size of the list of tensors in a ``pytorch_model.bin``."""

Shapes = dict[str, tuple[int, ...]]
Weights = dict[str, Tensor]


def import_model(folder: Path, output: Path, reference: str) -> None:
    """Writes a MarianMT folder as a model folder of ours.

    Args:
        folder: The MarianMT folder.
        output: An empty folder.
        reference: What the user calls the model: a path, or ``hf://ORG/NAME``.

    Raises:
        InputError: A file is missing or damaged, or the model has a feature that is not supported.
    """
    try:
        _import(folder, output, reference)
    except InputError as error:
        if str(folder) in str(error):
            raise
        raise InputError(f"cannot use the model {folder}: {error}") from None


def _import(folder: Path, output: Path, reference: str) -> None:
    settings = _read(folder / "config.json", _SIZES)
    tokenizer = _read(folder / "tokenizer_config.json", {}, optional=True)
    vocabularies = _vocabularies(folder, settings, separate=bool(tokenizer.get("separate_vocabs")))
    source, target = vocabularies[0], vocabularies[-1]
    model = _model_config(settings)
    if model.tied_embeddings == "all" and source.pieces != target.pieces:
        raise InputError("its source and target share embeddings, but not a vocabulary")
    job = _job(folder, settings, tokenizer, model, reference)
    weights = _read_weights(folder, _shapes(model, source.size, target.size))
    ckpt.save_tensors(_our_weights(weights, model, source, target), output / run_layout.WEIGHTS)
    if (folder / run_layout.TOKENIZER).exists():
        names: tuple[str, ...] = (run_layout.TOKENIZER,)
    else:
        names = run_layout.SIDE_TOKENIZERS
        for name, vocabulary in zip(run_layout.PIECES, vocabularies, strict=False):
            ids = {piece: i for i, piece in enumerate(vocabulary.pieces)}
            files.write_json(output / name, ids)
    for name in names:
        try:
            (output / name).write_bytes(files.read_regular(folder / name, _MAX_FILE_BYTES))
        except OSError as error:
            raise InputError(f"cannot read {folder / name}: {error.strerror}") from None
    Tokenizer.load(output)  # reports damaged files
    model_folder.write_config(output, job, output)


def _read(path: Path, types: Mapping[str, type], *, optional: bool = False) -> dict[str, Any]:
    """The object in a JSON file."""
    try:
        content: dict[str, Any] = files.read_json(path, types)
    except FileNotFoundError:
        if optional:
            return {}
        raise InputError(f"cannot read {path}: there is no such file") from None
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {path}: {printable(first_line(error))}") from None
    return content


def _number(settings: Mapping[str, Any], key: str, default: float) -> Any:
    """A number of a configuration, if it is there."""
    value = settings.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"{key}={printable(str(value)[:40])} is not a number")
    return value


def _model_config(settings: Mapping[str, Any]) -> ModelConfig:
    for key in ("attention_heads", "ffn_dim"):
        sizes = settings[f"encoder_{key}"], settings[f"decoder_{key}"]
        if sizes[0] != sizes[1]:
            raise InputError(f"its encoder and decoder differ in {key}: {sizes[0]} and {sizes[1]}")
    activation = str(settings.get("activation_function"))
    if activation not in _ACTIVATIONS:
        raise InputError(f"activation_function={printable(activation[:40])} is not supported")
    shared = settings.get("share_encoder_decoder_embeddings", True) is True
    tied = settings.get("tie_word_embeddings", True) is True
    return ModelConfig(
        d_model=settings["d_model"],
        d_ff=settings["encoder_ffn_dim"],
        num_heads=settings["encoder_attention_heads"],
        num_encoder_layers=settings["encoder_layers"],
        num_decoder_layers=settings["decoder_layers"],
        dropout=_number(settings, "dropout", 0.1),
        attention_dropout=_number(settings, "attention_dropout", 0),
        activation_dropout=_number(settings, "activation_dropout", 0),
        attention_bias=True,
        output_bias=True,
        activation=_ACTIVATIONS[activation],
        layer_norm_eps=LAYER_NORM_EPS,
        scale_embeddings=settings.get("scale_embedding", False) is True,
        tied_embeddings="none" if not tied else "all" if shared else "decoder",
    )


class _Vocabulary(NamedTuple):
    """The vocabulary of a language."""

    pieces: list[str]
    """Its pieces, by our id."""
    ids: list[int]
    """Their id of each; the number of their pieces for one that they do not have."""
    size: int
    """Number of their pieces."""


def _vocabularies(
    folder: Path, settings: Mapping[str, Any], *, separate: bool
) -> list[_Vocabulary]:
    """Those of source and target, or one for both."""
    start = settings["decoder_start_token_id"]
    if (folder / run_layout.TOKENIZER).exists():  # an exported model of ours
        pieces = Tokenizer(folder / run_layout.TOKENIZER).vocabulary
        _check_size(settings, "vocab_size", pieces)
        return [_Vocabulary(pieces, [*range(len(pieces))], len(pieces))]
    theirs = [read_pieces(folder / run_layout.PIECES[0])]
    _check_size(settings, "vocab_size", theirs[0])
    if separate:
        theirs.append(read_pieces(folder / run_layout.PIECES[1]))
        _check_size(settings, "decoder_vocab_size", theirs[1])
    if not 0 <= start < len(theirs[-1]):
        raise InputError(f"decoder_start_token_id={start} is not an id of its vocabulary")
    return [_renumbered(pieces, theirs[-1][start]) for pieces in theirs]


def _check_size(settings: Mapping[str, Any], key: str, pieces: list[str]) -> None:
    if settings.get(key) != len(pieces):
        raise InputError(f"its vocabulary has {len(pieces):,} pieces, not {key}={settings[key]}")


def _renumbered(theirs: list[str], start: str) -> _Vocabulary:
    """A vocabulary in our order: special symbols first.

    Args:
        theirs: The pieces by their id.
        start: The piece that the decoder starts with.
    """
    ids = {piece: i for i, piece in enumerate(theirs)}
    if missing := [name for name in ("<pad>", "<unk>", "</s>") if name not in ids]:
        raise InputError(f"its vocabulary has no {missing[0]}")
    special = [ids[name] if name in ids else len(theirs) for name in _SPECIAL]
    if start == "<pad>":
        if "<s>" in ids:
            raise InputError("its vocabulary has <s>, but its decoder does not start with it")
        special[PAD], special[BOS] = len(theirs), ids["<pad>"]
    elif start != "<s>" and BOS:
        raise InputError(f"its decoder starts with {printable(start)}, not with <pad> or <s>")
    rest = sorted({*range(len(theirs))} - {*special})
    return _Vocabulary([*_SPECIAL, *(theirs[i] for i in rest)], [*special, *rest], len(theirs))


def _job(
    folder: Path,
    settings: Mapping[str, Any],
    tokenizer: Mapping[str, Any],
    model: ModelConfig,
    reference: str,
) -> TrainJob:
    """The configuration of the model folder."""
    search = {**settings, **_read(folder / "generation_config.json", {}, optional=True)}
    longest = search.get("max_length")
    longest_source = _number(settings, "max_position_embeddings", 512)
    source = _language(tokenizer.get("source_lang"), "und")
    target = _language(tokenizer.get("target_lang"), "mul")
    name = hub_models.repository(reference) or folder.resolve().name
    return TrainJob(
        run_dir=str(folder),
        data=DataConfig(
            src_lang=source,
            tgt_lang=target if target != source else "mul",
            normalization=tokenizer.get("normalization", "moses"),
        ),
        tokenizer=TokenizerConfig(joint=model.tied_embeddings == "all"),
        model=model,
        train=TrainConfig(init_from=reference),
        decode=DecodeConfig(
            beam_size=_number(search, "num_beams", 1),
            # The inverse of ``transformers_model.generation_settings``.
            length_penalty=round(max(_number(search, "length_penalty", 1), 0) / 0.8, 6),
            max_length=max(longest - 2, 1) if type(longest) is int else None,
            max_source_tokens=int(max(min(longest_source, 512) - 1, 1)),
        ),
        card=CardConfig(name=name if re.fullmatch(r"([\w.-]+/)?[\w.-]+", name) else None),
    )


def _language(code: object, unknown: str) -> str:
    """A language code; one that stands for several languages, such as ROMANCE, is unknown."""
    return code if isinstance(code, str) and re.fullmatch("[A-Za-z]{2,3}", code) else unknown


def _shapes(model: ModelConfig, source_size: int, target_size: int) -> Shapes:
    """Names and shapes of the tensors of a MarianMT model."""
    d, f = model.d_model, model.d_ff
    shapes: Shapes = {"final_logits_bias": (1, target_size)}
    for name in ("shared", "encoder.embed_tokens"):
        shapes[f"model.{name}.weight"] = source_size, d
    for name in ("model.decoder.embed_tokens", "lm_head"):
        shapes[f"{name}.weight"] = target_size, d
    for stack, layers, attentions in (
        ("encoder", model.num_encoder_layers, ["self_attn"]),
        ("decoder", model.num_decoder_layers, ["self_attn", "encoder_attn"]),
    ):
        for prefix in (f"model.{stack}.layers.{i}." for i in range(layers)):
            parts = {"fc1": (f, d), "fc2": (d, f), "final_layer_norm": (d,)}
            for attention in attentions:
                parts |= {f"{attention}.{kind}_proj": (d, d) for kind in ("q", "k", "v", "out")}
                parts[f"{attention}_layer_norm"] = (d,)
            for part, shape in parts.items():
                shapes[f"{prefix}{part}.weight"], shapes[f"{prefix}{part}.bias"] = shape, shape[:1]
    return shapes


def _read_weights(folder: Path, expected: Shapes) -> Weights:
    """The tensors of a model.

    Raises:
        InputError: The file is missing or damaged, or has tensors that MarianMT does not have.
    """
    path = folder / run_layout.WEIGHTS
    if not path.exists():
        path = folder / hub_models.PICKLE

    def check(shapes: Shapes) -> None:
        for name, shape in shapes.items():
            if name not in _IGNORED and expected.get(name) != shape:
                wanted = expected.get(name, "no such tensor")
                raise InputError(
                    f"{path}: {printable(name[:100])} has shape {shape}, expected {wanted}"
                )

    if path.name == run_layout.WEIGHTS:
        tensors = ckpt.read_tensors(path, check)
    else:
        tensors = _read_pickle(path, 4 * sum(map(math.prod, expected.values())))
        check({name: tuple(tensor.shape) for name, tensor in tensors.items()})
    for name, tensor in tensors.items():
        if tensor.layout != torch.strided or not tensor.is_floating_point() or tensor.is_meta:
            raise InputError(f"{path}: {printable(name[:100])} is not a matrix of numbers")
    return tensors


def _read_pickle(path: Path, num_bytes: int) -> Weights:
    """The tensors of a ``pytorch_model.bin``, in memory only as far as they are used.

    ``weights_only`` runs none of the code that a pickle can name. What remains is that a pickle can
    describe more than there is memory, so its size, and that of the file, is limited first.
    """
    try:
        with files.open_regular(path, num_bytes + _MAX_EXTRA_BYTES) as file:
            is_zip = file.read(4) == b"PK\3\4"
            file.seek(0)
            _check_archive(file) if is_zip else _check_old_format(file)
        tensors = torch.load(path, map_location="cpu", weights_only=True, mmap=is_zip)
        if not isinstance(tensors, dict) or not all(
            isinstance(name, str) and isinstance(tensor, Tensor) for name, tensor in tensors.items()
        ):
            raise ValueError("it is not a dictionary of tensors")
    except FileNotFoundError:
        raise InputError(
            f"cannot use the model {path.parent}: it has neither {run_layout.WEIGHTS} nor "
            f"{path.name}"
        ) from None
    except Exception as error:  # of the unpickler, the archive or the allocator: any type
        reason = first_line(error)
        if isinstance(error, pickle.UnpicklingError):  # a page of advice to trust the file
            reason = "it contains more than tensors, or is damaged"
        raise InputError(f"cannot read {path}: {printable(reason[:200])}") from None
    return tensors


def _check_archive(file: BinaryIO) -> None:
    """Raises ``ValueError`` if an archive of tensors would need more memory than its size."""
    with zipfile.ZipFile(file) as archive:
        for entry in archive.infolist():
            if entry.compress_type != zipfile.ZIP_STORED:
                raise ValueError("it is compressed")
            if entry.filename.endswith(".pkl") and entry.file_size > _MAX_PICKLE_BYTES:
                raise ValueError(f"its list of tensors has {entry.file_size:,} bytes")


def _check_old_format(file: BinaryIO) -> None:
    """``ValueError`` if the pickles that a file of PyTorch < 1.6 starts with are too large."""
    for _ in range(5):  # magic number, version, system, tensors, names of their storages
        for _ in pickletools.genops(file):
            if file.tell() > _MAX_PICKLE_BYTES:
                raise ValueError(f"its list of tensors has more than {_MAX_PICKLE_BYTES:,} bytes")


def _our_weights(
    theirs: Weights, model: ModelConfig, source: _Vocabulary, target: _Vocabulary
) -> Weights:
    """The weights by our names."""
    dims = sines_first(model.d_model).argsort()

    def get(*names: str) -> Tensor:
        """The first of some tensors that exists."""
        for name in names:
            if name in theirs:
                return theirs[name].float()
        raise InputError(f"the model has no tensor {names[0]}")

    def both(name: str, parts: Iterable[str], order: Callable[[Tensor], Tensor]) -> None:
        """Adds a layer's weight and bias, which are those of several layers of theirs."""
        for kind in ("weight", "bias"):
            tensors = [get(f"{part}.{kind}") for part in parts]
            ours[f"{name}.{kind}"] = order(torch.cat(tensors))

    def reads(x: Tensor) -> Tensor:
        """Reorders the input of a layer; it has no effect on a bias."""
        return x[:, dims] if x.dim() > 1 else x

    def writes(x: Tensor) -> Tensor:
        """Reorders the output of a layer."""
        return x[dims]

    def rows(vocabulary: _Vocabulary, *names: str) -> Tensor:
        matrix = get(*(f"{name}.weight" for name in names))
        return torch.cat([matrix, matrix.new_zeros(1, len(dims))])[vocabulary.ids][:, dims]

    ours: Weights = {}
    tied = model.tied_embeddings
    shared, of_source, of_target, output = (
        *("model.shared", "model.encoder.embed_tokens", "model.decoder.embed_tokens", "lm_head"),
    )
    if tied == "all":
        ours["embedding.weight"] = rows(target, shared, of_source, of_target, output)
    else:
        ours["untied_source.weight"] = rows(source, of_source, shared)
        ours["embedding.weight"] = rows(target, of_target, *[output] * (tied == "decoder"), shared)
    if tied == "none":
        ours["untied_output"] = rows(target, output)
    bias = theirs.get("final_logits_bias", torch.zeros(1, target.size))[0].float()
    bias = torch.cat([bias, torch.full((1,), START_BIAS)])[target.ids]
    if target.ids[PAD] == target.size:
        bias[BOS] = START_BIAS
    ours["output_bias"] = bias
    for stack, layers in (
        ("encoder", model.num_encoder_layers),
        ("decoder", model.num_decoder_layers),
    ):
        for i in range(layers):
            their, our = f"model.{stack}.layers.{i}", f"{stack}.{i}"
            own = f"{their}.self_attn"
            both(f"{our}.self_attention.qkv_proj", [f"{own}.{k}_proj" for k in "qkv"], reads)
            both(f"{our}.self_attention.out_proj", [f"{own}.out_proj"], writes)
            norms = ["self_attn_layer_norm", "final_layer_norm"]
            if stack == "decoder":
                norms.insert(1, "encoder_attn_layer_norm")
                cross = f"{their}.encoder_attn"
                both(f"{our}.cross_attention.q_proj", [f"{cross}.q_proj"], reads)
                both(f"{our}.cross_attention.out_proj", [f"{cross}.out_proj"], writes)
            for number, norm in enumerate(norms, 1):
                both(f"{our}.residual{number}.norm", [f"{their}.{norm}"], writes)
            both(f"{our}.feed_forward.linear1", [f"{their}.fc1"], reads)
            both(f"{our}.feed_forward.linear2", [f"{their}.fc2"], writes)
    cross_kv = [
        f"model.decoder.layers.{i}.encoder_attn.{kind}_proj"
        for i in range(model.num_decoder_layers)
        for kind in "kv"
    ]
    both("source_projection.proj", cross_kv, reads)
    return {name: tensor.contiguous() for name, tensor in ours.items()}
