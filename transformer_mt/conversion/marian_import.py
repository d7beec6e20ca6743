"""Conversion of MarianMT models of Hugging Face transformers, such as OPUS-MT, to model folders.

The layers are the same, so the import is exact; only dimensions and pieces are in another order:

* MarianMT has all sines before the cosines: the dimensions of the model are reordered.
* Its decoder starts with ``<pad>``, a symbol that Marian itself does not have and that must never
  be generated. Here it is the start symbol ``<s>``, with a bias that takes its probability away,
  and ``<pad>``, which our batches do not contain, is a row of zeros.
* Ids are places in the SentencePiece models (``marian_vocabulary``).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformer_mt import checkpoint as ckpt
from transformer_mt import files, hub_models, model_folder, run_layout
from transformer_mt.config import ModelConfig, SearchConfig, TokenizerConfig, TrainJob
from transformer_mt.config.checks import is_language_code
from transformer_mt.config.data import DataConfig
from transformer_mt.config.train import CARD_NAME, CardConfig, TrainConfig
from transformer_mt.conversion.marian_vocabulary import convert_vocabularies
from transformer_mt.conversion.marian_weights import convert, read_weights
from transformer_mt.conversion.transformers_model import LAYER_NORM_EPS
from transformer_mt.data.subwords.tokenizer import Tokenizer
from transformer_mt.errors import InputError

_SIZES = {
    **dict.fromkeys(("d_model", "vocab_size", "decoder_start_token_id"), int),
    **dict.fromkeys(("encoder_layers", "encoder_attention_heads", "encoder_ffn_dim"), int),
    **dict.fromkeys(("decoder_layers", "decoder_attention_heads", "decoder_ffn_dim"), int),
}
"""Required keys of a MarianMT ``config.json``, and the types of their values."""
_ACTIVATIONS = {"relu": "relu", "swish": "swish", "silu": "swish", "gelu": "gelu"}


def import_model(folder: Path, output: Path, reference: str) -> None:
    """Converts a MarianMT folder to a model folder.

    Args:
        folder: The MarianMT folder.
        output: An empty folder.
        reference: What the user calls the model: a path, or ``hf://ORG/NAME``.
    """
    try:
        settings = files.read_json(folder / hub_models.CONFIG_JSON, _SIZES)
        tokenizer = _read_optional(folder / "tokenizer_config.json")
        separate = bool(tokenizer.get("separate_vocabs"))
        source, target = convert_vocabularies(folder, settings, output, separate=separate)
        model = _model_config(settings)
        job = _job(folder, settings, tokenizer, model, reference)
        weights = convert(read_weights(folder), model, source, target)
        ckpt.save_tensors(weights, output / run_layout.WEIGHTS)
        model_folder.write_config(output, job, Tokenizer(output))  # reports damaged files
    except InputError as error:
        if str(folder) in str(error):
            raise
        raise InputError(f"cannot use the model {folder}: {error}") from None


def _read_optional(path: Path) -> dict[str, Any]:
    """The object in a JSON file; empty if there is no file."""
    content: dict[str, Any] = files.read_json(path, {}) if path.exists() else {}
    return content


def _number(settings: Mapping[str, Any], key: str, default: float) -> Any:
    """A number of a configuration; the default if it is missing or null."""
    return default if settings.get(key) is None else settings[key]


def _model_config(settings: Mapping[str, Any]) -> ModelConfig:
    """The architecture of a ``config.json``; ``InputError`` for one that ours cannot represent."""
    for key in ("attention_heads", "ffn_dim"):
        sizes = settings[f"encoder_{key}"], settings[f"decoder_{key}"]
        if sizes[0] != sizes[1]:
            raise InputError(f"its encoder and decoder differ in {key}: {sizes[0]} and {sizes[1]}")
    activation = str(settings.get("activation_function"))
    if activation not in _ACTIVATIONS:
        raise InputError(f"activation_function={activation} is not supported")
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


def _job(
    folder: Path,
    settings: Mapping[str, Any],
    tokenizer: Mapping[str, Any],
    model: ModelConfig,
    reference: str,
) -> TrainJob:
    """The configuration of the model folder."""
    search = {**settings, **_read_optional(folder / "generation_config.json")}
    longest_source = min(_number(settings, "max_position_embeddings", 512), 512)
    if type(limit := tokenizer.get("model_max_length")) is int:
        longest_source = min(longest_source, limit)
    source = _language(tokenizer.get("source_lang"), "und")
    target = _language(tokenizer.get("target_lang"), "mul")
    name = hub_models.repository(reference) or folder.resolve().name
    return TrainJob(
        run_dir=str(folder),
        data=DataConfig(
            src_lang=source,
            tgt_lang=target if target != source else "mul",
            normalization=str(tokenizer.get("normalization", "moses")),
        ),
        tokenizer=TokenizerConfig(type="unigram", joint=model.tied_embeddings == "all"),
        model=model,
        train=TrainConfig(init_from=reference),
        decode=SearchConfig(
            beam_size=int(_number(search, "num_beams", 1)),
            # The inverse of ``transformers_model.generation_settings``.
            length_penalty=round(max(_number(search, "length_penalty", 1), 0) / 0.8, 6),
            max_source_tokens=int(max(longest_source - 1, 1)),
        ),
        card=CardConfig(name=name if CARD_NAME.fullmatch(name) else None),
    )


def _language(code: object, unknown: str) -> str:
    """A language code; one that stands for several languages, such as ROMANCE, is unknown."""
    return code if isinstance(code, str) and is_language_code(code) else unknown
