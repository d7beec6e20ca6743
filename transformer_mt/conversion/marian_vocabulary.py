"""Vocabularies of MarianMT folders, as SentencePiece models whose places are the ids.

transformers splits text with ``source.spm`` and ``target.spm``, and looks up the ids of the pieces
in ``vocab.json``, or in one such file for each language. Here an id is a place in the SentencePiece
model, so the pieces of both models are put into the order of the vocabulary. They keep their scores
and types, and with them every segmentation. The vocabulary has

* first the special symbols, with the ids that they always have here. A ``<s>`` that the decoder
  does not start with, as in newer models, is left out: no text has it;
* the other pieces of ``vocab.json``, in its order. Those that only the other language has are of
  the type ``UNUSED``, language tokens ``CONTROL``: no text is split into them;
* last, pieces that ``vocab.json`` lacks. In transformers they become ``<unk>``, so they have its
  embedding, and are never generated.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from sentencepiece import sentencepiece_model_pb2 as sentencepiece_proto

from transformer_mt import run_layout
from transformer_mt.config.source import TAG
from transformer_mt.data.subwords.tokenizer import BOS, PAD, UNK
from transformer_mt.errors import InputError
from transformer_mt.files import reading
from transformer_mt.hub_models import MARIAN_IDS

_SPECIAL = ("<pad>", "<unk>", "<s>", "</s>")
"""Our special symbols, by id."""
_UNKNOWN, _CONTROL, _UNUSED = 2, 3, 5
"""``ModelProto.SentencePiece.Type``."""

Model = Any
"""A SentencePiece ``ModelProto``; its classes are made at run time."""


class Vocabulary(NamedTuple):
    """The vocabulary of a language."""

    pieces: list[str]
    """Its pieces, by our id."""
    ids: list[int]
    """Their id of each; the number of their pieces for one that they do not have."""
    size: int
    """Number of their pieces."""


def convert_vocabularies(
    folder: Path, settings: Mapping[str, Any], output: Path, *, separate: bool
) -> tuple[Vocabulary, Vocabulary]:
    """Writes the SentencePiece models of a MarianMT folder with the ids of its vocabulary.

    Args:
        folder: The MarianMT folder.
        settings: Its ``config.json``.
        output: An existing folder.
        separate: Whether each language has a vocabulary of its own.

    Returns:
        The vocabularies of source and target.
    """
    models = [_read_model(folder / name) for name in run_layout.SIDE_TOKENIZERS]
    theirs = [_read_pieces(folder / name) for name in MARIAN_IDS[: 1 + separate]]
    for key, pieces in zip(("vocab_size", "decoder_vocab_size"), theirs, strict=False):
        if (size := settings.get(key, settings["vocab_size"])) != len(pieces):
            raise InputError(f"its vocabulary has {len(pieces):,} pieces, not {key}={size}")
    start = theirs[-1][settings["decoder_start_token_id"]]
    vocabularies = []
    for i, (name, model) in enumerate(zip(run_layout.SIDE_TOKENIZERS, models, strict=True)):
        text = dict.fromkeys(
            piece.piece
            for each in ([model] if separate else models)
            for piece in each.pieces
            if piece.type not in (_UNKNOWN, _CONTROL)
        )
        vocabulary = _vocabulary(theirs[i * separate], start, text)
        _reorder(model, vocabulary.pieces, text)
        (output / name).write_bytes(model.SerializeToString(deterministic=True))
        vocabularies.append(vocabulary)
    return vocabularies[0], vocabularies[1]


def _read_model(path: Path) -> Model:
    with reading(path, DecodeError, remedy="copy or download it again"):
        model = sentencepiece_proto.ModelProto.FromString(path.read_bytes())  # type: ignore[attr-defined]
        if not model.pieces:
            raise ValueError("it has no pieces")
    return model


def _read_pieces(path: Path) -> list[str]:
    """The pieces of a ``vocab.json``, by id."""
    with reading(path, remedy="copy or download it again"):
        ids = json.loads(path.read_bytes())
        return sorted(ids, key=ids.__getitem__)


def _vocabulary(theirs: list[str], start: str, text: Iterable[str]) -> Vocabulary:
    """A vocabulary in our order.

    Args:
        theirs: The pieces by their id.
        start: The piece that the decoder starts with.
        text: All pieces that text is split into.
    """
    ids = {piece: i for i, piece in enumerate(theirs)}
    special = [ids.get(name, len(theirs)) for name in _SPECIAL]
    if start == "<pad>":
        special[PAD], special[BOS] = len(theirs), ids["<pad>"]
    elif start != "<s>":
        raise InputError(f"its decoder starts with {start}, not with <pad> or <s>")
    rest = [piece for piece in theirs if piece not in _SPECIAL]
    lacking = [piece for piece in text if piece not in ids]
    ours = [*special, *map(ids.__getitem__, rest), *[ids["<unk>"]] * len(lacking)]
    return Vocabulary([*_SPECIAL, *rest, *lacking], ours, len(theirs))


def _reorder(model: Model, vocabulary: list[str], text: Mapping[str, None]) -> None:
    """Gives a SentencePiece model the pieces of a vocabulary, in its order.

    Args:
        model: The model, which is changed.
        vocabulary: All pieces.
        text: Those that text is split into, in this language or in the other.
    """
    own = {piece.piece: piece for piece in model.pieces}
    lowest = min(piece.score for piece in model.pieces) - 1  # BPE merges in the order of scores
    pieces = []
    for i, name in enumerate(vocabulary):
        if i < len(_SPECIAL):
            settings = {"score": 0.0, "type": _UNKNOWN if i == UNK else _CONTROL}
        elif TAG.fullmatch(name) and (name.startswith(">>") or name not in text):
            settings = {"score": 0.0, "type": _CONTROL}
        elif name in own:
            settings = {"score": own[name].score, "type": own[name].type}
        else:
            settings = {"score": lowest, "type": _UNUSED}
        pieces.append({"piece": name, **settings})
    del model.pieces[:]
    for piece in pieces:
        model.pieces.add(**piece)
    for i, (kind, name) in enumerate(zip(("pad", "unk", "bos", "eos"), _SPECIAL, strict=True)):
        setattr(model.trainer_spec, f"{kind}_piece", name)
        setattr(model.trainer_spec, f"{kind}_id", i)
