"""Small SentencePiece models for tests."""

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import sentencepiece as spm

from transformer_mt.config import TokenizerConfig
from transformer_mt.data.subwords.tokenizer import Tokenizer
from transformer_mt.data.subwords.vocabulary_training import train_tokenizer

WORDS = ["Hundehaus", "Scheune", "Füchse", "springt", "schläft", "über", "rot", "rote", "Haus"]


def random_lines(number: int = 200) -> list[str]:
    """Lines of one to nine of ``WORDS``, the same at every call."""
    rng = random.Random(1)
    return [" ".join(rng.choices(WORDS, k=rng.randint(1, 9))) for _ in range(number)]


@contextmanager
def options_of_others(**options: Any) -> Iterator[None]:
    """Vocabularies are trained with options of SentencePiece for which there are no settings."""
    train = spm.SentencePieceTrainer.train
    patched = lambda **given: train(**given | options)  # noqa: E731
    with patch.object(spm.SentencePieceTrainer, "train", patched):
        yield


def small_tokenizer(
    path: Path, text: Sequence[str] = (), tags: Sequence[str] = (), **config: Any
) -> Tokenizer:
    """A tokenizer of 290 pieces, trained on a text (default: ``random_lines``), as a file."""
    settings = TokenizerConfig(**{"vocab_size": 290, **config})
    path.write_bytes(train_tokenizer(text or random_lines(), settings, tags))
    return Tokenizer(path)
