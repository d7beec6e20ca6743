"""Training of a subword vocabulary by SentencePiece (§5.1)."""

import io
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeVar

import sentencepiece as spm

from transformer_mt.config import TokenizerConfig
from transformer_mt.data.subwords.tokenizer import BOS, EOS, PAD, UNK, one_line
from transformer_mt.errors import InputError

T = TypeVar("T")

_SYMBOLS = 4 + 256
"""Number of special symbols and bytes of a vocabulary."""
_LARGE_SCRIPT_COVERAGE = 0.9995
"""SentencePiece's advice for languages with many characters, such as Chinese and Japanese."""


def train_tokenizer(
    lines: Iterable[str], config: TokenizerConfig, tags: Sequence[str] = ()
) -> bytes:
    """Trains a SentencePiece model on all lines but those that its trainer leaves out.

    These are blank lines, lines of more than 4,192 bytes, and lines with its mark ▅ (U+2585).

    Args:
        lines: Sentences of both languages, e.g. a sample of the training data.
        config: Type and size of the model. The caller samples the corpus, with
            ``reservoir_sample``: SentencePiece 0.2.3 samples differently in each process, whatever
            its seed.
        tags: Symbols to reserve; text never contains them.

    Returns:
        The serialised SentencePiece model.
    """
    model = io.BytesIO()
    try:
        spm.SentencePieceTrainer.train(
            sentence_iterator=filter(None, map(one_line, lines)),
            model_writer=model,
            model_type=config.type,
            vocab_size=config.vocab_size,
            character_coverage=config.character_coverage,
            byte_fallback=True,  # a character that is not a piece is spelled in bytes, not lost
            normalization_rule_name="identity",  # data.normalization does it
            shuffle_input_sentence=False,
            pad_id=PAD,
            unk_id=UNK,
            bos_id=BOS,
            eos_id=EOS,
            minloglevel=2,
            control_symbols=[*tags],
        )
    except RuntimeError as error:
        reason = str(error).rpartition("] ")[2]  # a sentence about the size
        reason = (
            f"{reason} model=auto chooses one." if reason else "every line is empty or too long"
        )
        raise InputError(
            f"cannot train a vocabulary with tokenizer.vocab_size={config.vocab_size}: {reason}"
        ) from None
    return model.getvalue()


def train_tokenizer_on_file(text: Path, config: TokenizerConfig, tags: Sequence[str]) -> bytes:
    """Trains a SentencePiece model on the lines of a file; see ``train_tokenizer``."""
    with text.open(encoding="utf-8", newline="\n") as lines:
        return train_tokenizer((line.removesuffix("\n") for line in lines), config, tags)


def fit_to_characters(characters: Counter[str], vocab_size: int) -> tuple[int, float]:
    """Vocabulary size and character coverage that leave room for subwords of several characters.

    Text of more characters than half of the vocabulary gets SentencePiece's coverage for such
    languages. A vocabulary that would still be too small is doubled until a quarter is free.

    Args:
        characters: The characters of the text, with their frequencies.
        vocab_size: Number of pieces that suits the size of the corpus.
    """
    coverage = 1.0 if len(characters) <= vocab_size / 2 else _LARGE_SCRIPT_COVERAGE
    covered, needed = 0, _SYMBOLS
    for _, count in characters.most_common():
        if covered >= coverage * characters.total():
            break
        covered, needed = covered + count, needed + 1
    while needed > 0.75 * vocab_size:
        vocab_size *= 2
    return vocab_size, coverage


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
