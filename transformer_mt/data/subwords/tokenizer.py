"""SentencePiece tokenizer with one vocabulary for both languages (§5.1)."""

import io
import random
import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import sentencepiece as spm

from transformer_mt.config import TokenizerConfig
from transformer_mt.data.text.lines import is_blank
from transformer_mt.errors import InputError
from transformer_mt.files import read_regular

T = TypeVar("T")

PAD, UNK, BOS, EOS = 0, 1, 2, 3
"""Ids of the special symbols, the same in every vocabulary."""

_MAX_BYTES = 2**24
"""Maximum size of a model file: half a million pieces take less, and memory 25 times as much."""

BREAKS = "\t\n\v\f\r\x1c\x1d\x1e\x85\u2028\u2029"
"""Tabs and line breaks of any script; they count as spaces."""
_BREAKS_TO_SPACES = str.maketrans(dict.fromkeys(BREAKS, " "))


class Tokenizer:
    """Converts text to subword ids and back with a trained SentencePiece model.

    Args:
        model: Path of a ``tokenizer.model`` file, which is not trusted.

    Raises:
        InputError: The file does not exist, is not a SentencePiece model, or gives the special
            symbols other ids.
    """

    def __init__(self, model: Path):
        try:
            content = read_regular(model, _MAX_BYTES)
            if not content:
                raise InputError(f"cannot load the vocabulary {model}: the file is empty")
            self._sp = spm.SentencePieceProcessor(model_proto=content)
            self.vocabulary: list[str] = self._sp.id_to_piece([*range(self.vocab_size)])
            """All pieces, by id."""
        except (OSError, RuntimeError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not a SentencePiece model"
            raise InputError(f"cannot load the vocabulary {model}: {reason}") from None
        ids = (self._sp.pad_id(), self._sp.unk_id(), self._sp.bos_id(), self._sp.eos_id())
        if ids != (PAD, UNK, BOS, EOS):
            raise InputError(
                f"{model}: pad, unk, bos, eos have the ids {ids}, but must have "
                f"{(PAD, UNK, BOS, EOS)}: train it with --pad_id=0 --unk_id=1 --bos_id=2 --eos_id=3"
            )

    @property
    def vocab_size(self) -> int:
        """Number of pieces, special symbols included."""
        return int(self._sp.get_piece_size())

    @property
    def serialized(self) -> bytes:
        """The SentencePiece model, a serialised ``ModelProto``."""
        return bytes(self._sp.serialized_model_proto())

    def scores(self) -> dict[int, float]:
        """Score of each piece of text by id, without special symbols and byte pieces."""
        sp = self._sp
        return {
            i: sp.get_score(i)
            for i in range(self.vocab_size)
            if not (sp.is_control(i) or sp.is_unknown(i) or sp.is_byte(i) or sp.is_unused(i))
        }

    @cached_property
    def spelling(self) -> frozenset[int]:
        """Ids that stand for characters that the vocabulary lacks: ``<unk>`` and byte pieces."""
        return frozenset(i for i in range(self.vocab_size) if i == UNK or self._sp.is_byte(i))

    def encode(self, lines: Iterable[str]) -> list[list[int]]:
        """Ids of each line, without special symbols; a blank line has none."""
        return [self._sp.encode(one_line(line)) for line in lines]

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """Text of each sequence of ids; special symbols are omitted."""
        return [self._sp.decode(list(sequence)) for sequence in ids]

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Piece of each id; the first piece of a word starts with ``▁``."""
        return [self.vocabulary[i] for i in ids]


def one_line(text: str) -> str:
    """Replaces tabs and line breaks of any script by spaces; a blank text becomes empty.

    No-break spaces stay: French needs them.
    """
    return "" if is_blank(text) else text.translate(_BREAKS_TO_SPACES)


def train_tokenizer(lines: Iterable[str], config: TokenizerConfig) -> bytes:
    """Trains a SentencePiece model on all lines; blank ones are skipped.

    Args:
        lines: Sentences of both languages, e.g. a sample of the training data.
        config: Type and size of the model. ``max_sentences`` and ``seed`` are not used here:
            the caller samples the corpus with ``reservoir_sample``, because SentencePiece 0.2.3
            samples differently in each process, whatever its seed.

    Returns:
        The serialised SentencePiece model, its normalisation rule included.

    Raises:
        InputError: The text is too small for ``config.vocab_size``, or there is none.
    """
    model = io.BytesIO()
    text = (one_line(line) for line in lines if not is_blank(line))
    try:
        spm.SentencePieceTrainer.train(
            sentence_iterator=text,
            model_writer=model,
            model_type=config.type,
            vocab_size=config.vocab_size,
            character_coverage=config.character_coverage,
            byte_fallback=config.byte_fallback,
            normalization_rule_name=config.normalization,
            shuffle_input_sentence=False,
            pad_id=PAD,
            unk_id=UNK,
            bos_id=BOS,
            eos_id=EOS,
            minloglevel=2,
        )
    except RuntimeError as error:
        raise InputError(_explain(str(error), config)) from None
    return model.getvalue()


def train_tokenizer_on_file(text: Path, config: TokenizerConfig) -> bytes:
    """Trains a SentencePiece model on the lines of a file; see ``train_tokenizer``."""
    with text.open(encoding="utf-8", newline="\n") as lines:
        return train_tokenizer((line.removesuffix("\n") for line in lines), config)


def reservoir_sample(items: Iterable[T], size: int, seed: int) -> list[T]:
    """Uniform sample of at most ``size`` items, in memory for ``size`` items (Algorithm R)."""
    rng = random.Random(seed)
    sample: list[T] = []
    for number, item in enumerate(items):
        if number < size:
            sample.append(item)
        elif (position := rng.randrange(number + 1)) < size:
            sample[position] = item
    return sample


def _explain(error: str, config: TokenizerConfig) -> str:
    """An error of SentencePiece as what to change."""
    if highest := re.search(r"value <= (\d+)", error):
        return (
            f"tokenizer.vocab_size={config.vocab_size} is too large for this text: set "
            f"tokenizer.vocab_size={highest[1]} or less"
        )
    if lowest := re.search(r"smaller than required_chars\. \d+ vs (\d+)", error):
        return (
            f"tokenizer.vocab_size={config.vocab_size} is too small for the characters of "
            f"this text (with special and byte pieces): set it to {lowest[1]} or more, or lower "
            "tokenizer.character_coverage"
        )
    if "sentences_.empty()" in error or "!sentences" in error:
        return "there is no text to train a vocabulary on: every training line is empty"
    return f"SentencePiece could not train a vocabulary: {' '.join(error.split())}"
