"""SentencePiece: one subword vocabulary for both languages (§5.1)."""

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

T = TypeVar("T")

PAD, UNK, BOS, EOS = 0, 1, 2, 3
"""Ids of the special symbols; the same in every vocabulary of this project."""


_BREAKS = str.maketrans(dict.fromkeys("\t\n\v\f\r\x1c\x1d\x1e\x85\u2028\u2029", " "))


class Tokenizer:
    """Text to subword ids and back, by a trained SentencePiece model.

    Args:
        model: A ``tokenizer.model`` file. Nothing in it is executed.

    Raises:
        InputError: The file is absent, is no SentencePiece model, or numbers the special symbols
            otherwise than this project does.
    """

    def __init__(self, model: Path):
        try:
            content = model.read_bytes()
            if not content:
                raise InputError(f"cannot load the vocabulary {model}: the file is empty")
            self._sp = spm.SentencePieceProcessor(model_proto=content)
        except (OSError, RuntimeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not a SentencePiece model"
            raise InputError(f"cannot load the vocabulary {model}: {reason}") from None
        ids = (self._sp.pad_id(), self._sp.unk_id(), self._sp.bos_id(), self._sp.eos_id())
        if ids != (PAD, UNK, BOS, EOS):
            raise InputError(
                f"{model}: pad, unk, bos, eos have the ids {ids}, not {(PAD, UNK, BOS, EOS)}; "
                "train it with --pad_id=0 --unk_id=1 --bos_id=2 --eos_id=3"
            )

    @property
    def vocab_size(self) -> int:
        """Number of pieces, special symbols included."""
        return int(self._sp.get_piece_size())

    def scores(self) -> dict[int, float]:
        """What the model gives each piece of text; special symbols and bytes are none."""
        sp = self._sp
        return {
            i: sp.get_score(i)
            for i in range(self.vocab_size)
            if not (sp.is_control(i) or sp.is_unknown(i) or sp.is_byte(i) or sp.is_unused(i))
        }

    def encode(self, lines: Sequence[str], num_threads: int = 1) -> list[list[int]]:
        """Ids of each line, without special symbols; a line that shows nothing has none."""
        ids: list[list[int]] = self._sp.encode(
            [one_line(line) for line in lines], num_threads=num_threads
        )
        return ids

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """Text of each sequence of ids; special symbols give no text."""
        return [self._sp.decode(list(sequence)) for sequence in ids]

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """The pieces themselves; a piece that begins a word begins with ``▁``."""
        vocabulary = self.vocabulary
        return [vocabulary[i] for i in ids]

    @cached_property
    def vocabulary(self) -> list[str]:
        """All pieces, by id."""
        return [self._sp.id_to_piece(i) for i in range(self.vocab_size)]


def one_line(text: str) -> str:
    """The text without tabs and line breaks of any script, which are spaces to every model here.

    No-break spaces stay: French needs them.
    """
    return "" if is_blank(text) else text.translate(_BREAKS)


def train_tokenizer(lines: Iterable[str], config: TokenizerConfig) -> bytes:
    """Learns a vocabulary; memory is bounded by ``config.max_sentences``.

    Returns:
        The serialised SentencePiece model, its normalisation rule included.

    Raises:
        InputError: The text is too small for ``config.vocab_size``, or there is none.
    """
    model = io.BytesIO()
    text = (one_line(line) for line in lines if not is_blank(line))
    try:
        spm.SentencePieceTrainer.train(
            # Drawn here: SentencePiece 0.2.3 draws anew in each process, whatever its seed.
            sentence_iterator=iter(draw(text, config.max_sentences, config.seed)),
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


def draw(items: Iterable[T], size: int, seed: int) -> list[T]:
    """At most ``size`` of the items, each as likely, in memory for no more (a reservoir)."""
    chance = random.Random(seed)
    kept: list[T] = []
    for number, item in enumerate(items):
        if number < size:
            kept.append(item)
        elif (place := chance.randrange(number + 1)) < size:
            kept[place] = item
    return kept


def _explain(error: str, config: TokenizerConfig) -> str:
    if highest := re.search(r"value <= (\d+)", error):
        return (
            f"tokenizer.vocab_size={config.vocab_size} is more than this text can fill: set "
            f"tokenizer.vocab_size={highest[1]} or less"
        )
    if lowest := re.search(r"smaller than required_chars\. \d+ vs (\d+)", error):
        return (
            f"tokenizer.vocab_size={config.vocab_size} is too small for the characters of "
            f"this text (with special and byte pieces): set it to {lowest[1]} or more, or lower "
            "tokenizer.character_coverage"
        )
    if "sentences_.empty()" in error or "!sentences" in error:
        return "there is no text to learn a vocabulary from: every training line is empty"
    return f"SentencePiece could not learn a vocabulary: {' '.join(error.split())}"
