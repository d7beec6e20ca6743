"""SentencePiece tokenizers: one vocabulary for both languages, as in the paper (§5.1), or two.

A vocabulary is one SentencePiece model, ``tokenizer.model``, or a folder of two, ``source.spm`` and
``target.spm``. An id is the place of a piece in its model.
"""

import hashlib
import re
import shutil
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import sentencepiece as spm

from transformer_mt import files
from transformer_mt.config.source import TAG
from transformer_mt.data.text.lines import is_blank
from transformer_mt.data.text.normalization import ASCII, Normalizer
from transformer_mt.data.text.tags import split_tag
from transformer_mt.errors import InputError
from transformer_mt.files import reading
from transformer_mt.run_layout import SIDE_TOKENIZERS, TOKENIZER

PAD, UNK, BOS, EOS = 0, 1, 2, 3
"""Ids of the special symbols, the same in every vocabulary."""

BREAKS = "\t\n\v\f\r\x1c\x1d\x1e\x85\u2028\u2029"
"""Tabs and line breaks of any script; they count as spaces."""
_MARKS = [
    *"\xa0\xad\u061c\u1680\u180e\u3000\ufeff",
    *map(chr, [*range(0x2000, 0x2010), *range(0x202A, 0x2030), *range(0x205F, 0x2070)]),
]
"""No-break and other spaces, and characters of no width: soft hyphens, joiners, direction marks and
byte order marks. Editors, web pages and joined files leave them in text, unseen."""
_BREAKS_TO_SPACES = str.maketrans(dict.fromkeys(BREAKS, " "))


class Tokenizer:
    """Converts text to subword ids and back with a trained SentencePiece model.

    Args:
        vocabulary: A SentencePiece model, or a folder with one or two (``vocabulary_files``).
    """

    def __init__(self, vocabulary: Path):
        model, *others = vocabulary_files(vocabulary)
        self.tgt = Tokenizer(others[0]) if others else self
        """Tokenizer of the target language; this one if both languages share it."""
        with reading(model, RuntimeError, remedy="copy it again, or name a SentencePiece model"):
            if not (content := model.read_bytes()):  # which SentencePiece would accept
                raise EOFError("the file is empty")
            self._sp = spm.SentencePieceProcessor(model_proto=content)
            pieces: list[str] = self._sp.id_to_piece([*range(self._sp.get_piece_size())])
        self.checksum = hashlib.sha256(content).hexdigest()
        """SHA-256 of the file; of two files, of their checksums."""
        if others:
            both = repr([self.checksum, self.tgt.checksum])
            self.checksum = hashlib.sha256(both.encode()).hexdigest()
        self.vocabulary = pieces
        """All pieces, by id."""
        self.vocab_size = len(pieces)
        """Number of pieces, special symbols included."""
        self.is_joint = self.tgt.vocabulary == pieces
        """Whether both languages have the same ids."""
        self._has_accents = re.search("[\u0300-\u036f]", "".join(pieces)) is not None
        """Whether the vocabulary has accents as characters of their own (combining marks)."""
        self.tags = {
            piece: i
            for i, piece in enumerate(pieces)
            if self._sp.is_control(i) and TAG.fullmatch(piece)
        }
        """Id of each symbol that a source line may start with (``data/text/tags.py``)."""
        ids = (self._sp.pad_id(), self._sp.unk_id(), self._sp.bos_id(), self._sp.eos_id())
        if ids != (PAD, UNK, BOS, EOS):
            raise InputError(
                f"{model}: pad, unk, bos, eos have the ids {ids}, but must have "
                f"{(PAD, UNK, BOS, EOS)}: train it with --pad_id=0 --unk_id=1 --bos_id=2 --eos_id=3"
            )

    @property
    def num_ids(self) -> int:
        """Number of pieces of the larger vocabulary of the two languages."""
        return max(self.vocab_size, self.tgt.vocab_size)

    @cached_property
    def spelling(self) -> frozenset[int]:
        """Ids that stand for characters that the vocabulary lacks: ``<unk>`` and byte pieces."""
        return frozenset({UNK, *filter(self._sp.is_byte, range(self.vocab_size))})

    def encode(self, text: str) -> list[int]:
        """Ids of a text, without special symbols; a blank one has none."""
        line = one_line(text)
        ids: list[int] = self._sp.encode(line)
        if UNK in ids:  # characters of a piece that only the other language uses (``conversion/``)
            ids = self._sp.piece_to_id(self._sp.encode(line, out_type=str))
        return ids

    def normalize(self, line: str) -> str:
        """A source line as the model reads it: without the marks that its training text did not
        have, and after the model's own normalisation, if it is of another program.
        """
        text: str = self._sp.normalize(self.without_unknown_marks(line))
        return text.replace("▁", " ")

    @cached_property
    def _unknown_marks(self) -> re.Pattern[str] | None:
        """The marks that are neither in the vocabulary nor changed by the model's normalisation."""
        known, marks = set(self.vocabulary), [*_MARKS, *ASCII]
        unknown = [c for c in marks if c not in known and c in self._sp.normalize(f"a{c}a")]
        return re.compile(f"[{re.escape(''.join(unknown))}]") if unknown else None

    def without_unknown_marks(self, line: str) -> str:
        """A source text without marks that the vocabulary lacks, which would change the translation
        of the text around them; spaces, quotes, dashes and ellipses become those of ASCII, and
        letters are composed with their accents (NFC), which macOS and PDF files separate.

        Those that its training text had stay: Persian, Hindi and some emoji need joiners.
        """
        line = line if self._has_accents else unicodedata.normalize("NFC", line)

        def replacement(mark: re.Match[str]) -> str:
            return ASCII.get(mark[0], " " * mark[0].isspace())

        return self._unknown_marks.sub(replacement, line) if self._unknown_marks else line

    def encode_text(self, text: str, tag: str, normalizer: Normalizer) -> list[int]:
        """Ids of a source text, normalised for its tag; the tag itself is not among them."""
        return self.encode(self.without_unknown_marks(normalizer.src(text, tag)))

    def encode_source(self, line: str, normalizer: Normalizer) -> list[int]:
        """Ids of a source line, of its tag first."""
        tag, text = split_tag(line, self.tags)
        ids = self.encode_text(text, tag, normalizer)
        return [self.tags[tag], *ids] if tag and ids else ids

    def encode_pairs(
        self, pairs: Iterable[tuple[str, str]], normalizer: Normalizer
    ) -> Iterator[tuple[list[int], list[int]]]:
        """Ids of both lines of each pair, which are normalised by the tag of the source."""
        for source, target in pairs:
            tgt = normalizer.tgt(target, split_tag(source, self.tags)[0])
            yield self.encode_source(source, normalizer), self.tgt.encode(tgt)

    def num_tags(self, ids: Sequence[int]) -> int:
        """Number of tags at the start of the ids of a source line: 0 or 1."""
        return int(len(ids) > 0 and ids[0] in self.tags.values())

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids; special symbols are omitted."""
        text: str = self._sp.decode(list(ids))
        return text

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Piece of each id; the first piece of a word starts with ``▁``."""
        return list(map(self.vocabulary.__getitem__, ids))


def vocabulary_files(vocabulary: Path) -> list[Path]:
    """The files of a vocabulary, which is a file itself or a folder; they may be missing.

    In a folder these are ``tokenizer.model`` alone, or ``source.spm`` and ``target.spm``.
    """
    if not vocabulary.is_dir():
        return [vocabulary]
    sides = list(map(vocabulary.joinpath, SIDE_TOKENIZERS))
    return sides if sides[0].exists() else [vocabulary / TOKENIZER]


def copy_vocabulary(vocabulary: Path, folder: Path) -> None:
    """Copies the files of a vocabulary to a folder, each atomically."""
    for path in vocabulary_files(vocabulary):
        name = path.name if vocabulary.is_dir() else TOKENIZER
        with files.atomic(folder / name) as temporary:
            shutil.copyfile(path, temporary)


def add_tags(vocabulary: Path, tags: Sequence[str], folder: Path) -> None:
    """Copies a vocabulary to a folder, with tags that it does not have as its last pieces."""
    from sentencepiece import sentencepiece_model_pb2 as sentencepiece_proto

    source = Tokenizer(vocabulary)
    for tag in tags:
        if tag in source.vocabulary:
            raise InputError(f"tag={tag} is a piece of text in {vocabulary}: choose another tag")
    copy_vocabulary(vocabulary, folder)
    source_model, *others = vocabulary_files(folder)
    for model in [source_model, *(others if source.is_joint else [])]:
        proto = sentencepiece_proto.ModelProto.FromString(model.read_bytes())  # type: ignore[attr-defined]
        for tag in tags:
            proto.pieces.add(piece=tag, type=sentencepiece_proto.ModelProto.SentencePiece.CONTROL)  # type: ignore[attr-defined]
        model.write_bytes(proto.SerializeToString())


def vocabulary_settings(vocabulary: Path) -> dict[str, Any]:
    """How SentencePiece trained a vocabulary (its source side): fields of ``TokenizerConfig``.

    A type for which ``TokenizerConfig`` has no name is left out.
    """
    from sentencepiece import sentencepiece_model_pb2 as sentencepiece_proto

    content = vocabulary_files(vocabulary)[0].read_bytes()
    spec = sentencepiece_proto.ModelProto.FromString(content).trainer_spec  # type: ignore[attr-defined]
    # A float of 32 bits, and of other programs perhaps below what we accept.
    settings = {"character_coverage": max(0.98, round(spec.character_coverage, 6))}
    kind = spec.ModelType.Name(spec.model_type).lower()
    return settings | ({"type": kind} if kind in ("bpe", "unigram") else {})


def one_line(text: str) -> str:
    """Replaces tabs and line breaks of any script by spaces; a blank text becomes empty.

    No-break spaces stay: French needs them.
    """
    return "" if is_blank(text) else text.translate(_BREAKS_TO_SPACES)
