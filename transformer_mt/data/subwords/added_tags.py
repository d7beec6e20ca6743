"""Tags of a corpus, and vocabularies that get further tags, as for fine-tuning."""

from collections.abc import Container, Sequence
from pathlib import Path

from transformer_mt import files
from transformer_mt.config import DataConfig
from transformer_mt.data.subwords.tokenizer import Tokenizer, copy_vocabulary, vocabulary_files
from transformer_mt.errors import InputError


def missing_tags(data: DataConfig, vocabulary: Container[str] = ()) -> list[str]:
    """Tags of the training sources that a vocabulary does not have."""
    tags = dict.fromkeys(source.tag for source in data.train if source.tag)
    return [tag for tag in tags if tag not in vocabulary]


def add_tags(vocabulary: Path, tags: Sequence[str], folder: Path) -> None:
    """Copies a vocabulary to a folder, with tags that it does not have as its last pieces.

    Raises:
        InputError: A tag is a piece of text of the vocabulary.
    """
    from sentencepiece import sentencepiece_model_pb2 as sentencepiece_proto

    source = Tokenizer.load(vocabulary)
    for tag in tags:
        if tag in source.vocabulary:
            raise InputError(f"tag={tag} is a piece of text in {vocabulary}: choose another tag")
    copy_vocabulary(vocabulary, folder)
    model, *others = vocabulary_files(folder)
    if others[1:]:
        pieces = {piece: i for i, piece in enumerate([*source.vocabulary, *tags])}
        files.write_json(others[1], pieces)
        return
    proto = sentencepiece_proto.ModelProto.FromString(model.read_bytes())  # type: ignore[attr-defined]
    for tag in tags:
        proto.pieces.add(piece=tag, type=sentencepiece_proto.ModelProto.SentencePiece.CONTROL)  # type: ignore[attr-defined]
    model.write_bytes(proto.SerializeToString())
