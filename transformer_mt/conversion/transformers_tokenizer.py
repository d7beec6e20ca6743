"""Our vocabulary as a fast tokenizer of Hugging Face transformers (``tokenizer.json``).

It splits text as SentencePiece does, without needing it, and includes ``data.normalization`` as far
as its building blocks allow (``normalization_gap``).
"""

import base64
import re
from collections.abc import Iterable
from typing import Any

from sentencepiece import sentencepiece_model_pb2 as sentencepiece_proto

from transformer_mt.config import DataConfig, TrainJob
from transformer_mt.data.subwords.tokenizer import BREAKS, EOS, UNK, Tokenizer
from transformer_mt.data.text.normalization import QUOTE_SPACE, REPLACEMENTS
from transformer_mt.errors import InputError

Json = dict[str, Any]

_SPACE = "▁"
"""SentencePiece's mark of a space."""
_SPECIAL = ("pad", "unk", "bos", "eos")
"""Roles of the first pieces, by id."""


def tokenizer_files(tokenizer: Tokenizer, trained: TrainJob) -> Json:
    """The files of the tokenizer of a model, by name."""
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": trained.decode.max_source_tokens + 1,
        "model_input_names": ["input_ids", "attention_mask"],
        "padding_side": "right",
        "clean_up_tokenization_spaces": False,
        "split_special_tokens": True,  # "</s>" in a text is not the end symbol
        **{f"{role}_token": tokenizer.vocabulary[i] for i, role in enumerate(_SPECIAL)},
        **languages(trained.data),
    }
    return {
        "tokenizer.json": convert_tokenizer(tokenizer, trained.data.normalization),
        "tokenizer_config.json": settings,
    }


def languages(data: DataConfig) -> Json:
    """What ``tokenizer_config.json`` says about the text; transformers needs no normalisation."""
    return {
        "source_lang": data.src_lang,
        "target_lang": data.tgt_lang,
        "normalization": data.normalization,  # for our own import
    }


def convert_tokenizer(tokenizer: Tokenizer, normalization: str) -> Json:
    """Content of ``tokenizer.json``, for text with the given ``data.normalization``.

    Raises:
        InputError: The vocabulary has a feature of SentencePiece that the tokenizers library does
            not have.
    """
    model_proto = sentencepiece_proto.ModelProto  # type: ignore[attr-defined]
    proto = model_proto.FromString(tokenizer.serialized)
    _check(proto)
    byte_fallback = bool(proto.trainer_spec.byte_fallback)
    model = _MODELS[proto.trainer_spec.model_type](tokenizer, byte_fallback)
    decoders: list[Json] = [{"type": "Replace", "pattern": {"String": _SPACE}, "content": " "}]
    decoders += [{"type": "ByteFallback"}] if byte_fallback else []
    decoders += [{"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]
    end = tokenizer.vocabulary[EOS]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            *(_added(i, tokenizer.vocabulary[i]) for i in range(len(_SPECIAL))),
            *(_added(i, tag, special=False) for tag, i in tokenizer.tags.items()),
        ],
        "normalizer": {
            "type": "Sequence",
            "normalizers": [
                *_NORMALIZERS.get(normalization, []),
                _replace(_any_of(BREAKS), " "),
                *_sentencepiece_rules(proto.normalizer_spec),
            ],
        },
        "pre_tokenizer": _split_special(tokenizer) if model["type"] == "Unigram" else None,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [_sequence("A"), _symbol(end)],
            "pair": [_sequence("A"), _symbol(end), _sequence("B"), _symbol(end)],
            "special_tokens": {end: {"id": end, "ids": [EOS], "tokens": [end]}},
        },
        "decoder": {"type": "Sequence", "decoders": decoders},
        "model": model,
    }


def normalization_gap(normalization: str) -> str | None:
    """The part of ``data.normalization`` that the converted tokenizer omits; None if it has all."""
    return {
        "standard": f"of HTML entities it resolves &{'; &'.join(_ENTITIES)}; only",
        "moses_lowercase": "it expects lower-case Moses tokens, which the model writes too",
    }.get(normalization)


def _check(proto: Any) -> None:
    problems = {
        f"type {proto.trainer_spec.model_type}": proto.trainer_spec.model_type not in _MODELS,
        "whitespace as suffix": proto.trainer_spec.treat_whitespace_as_suffix,
        "unescaped spaces": not proto.normalizer_spec.escape_whitespaces,
        "no dummy prefix": not proto.normalizer_spec.add_dummy_prefix,
        "spaces that are kept": not proto.normalizer_spec.remove_extra_whitespaces,
        "user-defined symbols": any(piece.type == piece.USER_DEFINED for piece in proto.pieces),
    }
    if found := [name for name, present in problems.items() if present]:
        raise InputError(
            f"format=transformers does not support this SentencePiece vocabulary: it has "
            f"{', '.join(found)}; set format=ctranslate2"
        )


def _bpe(tokenizer: Tokenizer, byte_fallback: bool) -> Json:
    """Merges in the order of SentencePiece, which joins the pair that makes the best piece.

    Each way to split a piece in two pieces is a merge.
    """
    scores = tokenizer.scores()
    ids = {tokenizer.vocabulary[i]: i for i in scores}
    merges = [
        (piece[:at], piece[at:])
        for piece in sorted(ids, key=lambda piece: -scores[ids[piece]])
        for at in range(1, len(piece))
        if piece[:at] in ids and piece[at:] in ids
    ]
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": tokenizer.vocabulary[UNK],
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": True,
        "byte_fallback": byte_fallback,
        "ignore_merges": False,
        "vocab": {piece: i for i, piece in enumerate(tokenizer.vocabulary)},
        "merges": [" ".join(pair) for pair in merges],
    }


def _unigram(tokenizer: Tokenizer, byte_fallback: bool) -> Json:
    scores = tokenizer.scores()
    lowest = min(scores.values())  # for special symbols, which text never contains
    return {
        "type": "Unigram",
        "unk_id": UNK,
        "vocab": [[piece, scores.get(i, lowest)] for i, piece in enumerate(tokenizer.vocabulary)],
        "byte_fallback": byte_fallback,
    }


def _split_special(tokenizer: Tokenizer) -> Json:
    """Splits text such as "</s>" or "<0x41>", which a unigram model would take for a symbol."""
    names = (tokenizer.vocabulary[i] for i in range(len(_SPECIAL)))
    symbols = [f"{re.escape(name[0])}(?={re.escape(name[1:])})" for name in names]
    pattern = {"Regex": "|".join([*symbols, "<(?=0x[0-9A-F]{2}>)"])}
    how = {"behavior": "MergedWithPrevious", "invert": False}
    return {"type": "Split", "pattern": pattern, **how}


_MODELS = {1: _unigram, 2: _bpe}
"""Conversion of each type of SentencePiece model."""


def _sentencepiece_rules(spec: Any) -> list[Json]:
    """Normalisation that the SentencePiece model contains."""
    rules: list[Json] = []
    if spec.precompiled_charsmap:
        charsmap = base64.b64encode(spec.precompiled_charsmap).decode()
        rules.append({"type": "Precompiled", "precompiled_charsmap": charsmap})
    return [
        *rules,
        _replace(" {2,}", " "),
        {"type": "Strip", "strip_left": True, "strip_right": True},
        {"type": "Prepend", "prepend": _SPACE},
        {"type": "Replace", "pattern": {"String": " "}, "content": _SPACE},
    ]


def _replace(pattern: str, content: str) -> Json:
    return {"type": "Replace", "pattern": {"Regex": pattern}, "content": content}


def _any_of(characters: Iterable[str]) -> str:
    """Regular expression for one of these characters."""
    codes = (f"\\x{{{ord(character):x}}}" for character in characters)
    return f"[{''.join(codes)}]"


def _added(i: int, piece: str, *, special: bool = True) -> Json:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": i, "content": piece, **flags, "special": special}


def _sequence(name: str) -> Json:
    return {"Sequence": {"id": name, "type_id": 0}}


def _symbol(piece: str) -> Json:
    return {"SpecialToken": {"id": piece, "type_id": 0}}


_NFC: Json = {"type": "NFC"}
_ENTITIES = {"amp": "&", "quot": '"', "apos": "'", "#39": "'", "lt": "<", "gt": ">", "nbsp": " "}
_NORMALIZERS = {
    "nfc": [_NFC],
    "standard": [
        _NFC,
        *(_replace(f"&{name};", character) for name, character in _ENTITIES.items()),
        _replace(QUOTE_SPACE.pattern, ""),
        *(
            _replace(_any_of(c for c, ascii_ in REPLACEMENTS.items() if ascii_ == content), content)
            for content in sorted(set(REPLACEMENTS.values()))
        ),
        _replace("''", '"'),
        _replace(r"\s+", " "),
    ],
}
"""``data.normalization`` in the building blocks of the tokenizers library."""
