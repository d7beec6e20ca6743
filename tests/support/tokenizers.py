"""Small SentencePiece models for tests."""

import random
from collections.abc import Sequence
from pathlib import Path

from transformer_mt.config import TokenizerConfig
from transformer_mt.data.subwords.tokenizer import Tokenizer
from transformer_mt.data.subwords.vocabulary_training import train_tokenizer

WORDS = ["Hundehaus", "Scheune", "Füchse", "springt", "schläft", "über", "rot", "rote", "Haus"]


def random_lines(number: int = 200) -> list[str]:
    """Lines of one to nine of ``WORDS``, the same at every call."""
    rng = random.Random(1)
    return [" ".join(rng.choices(WORDS, k=rng.randint(1, 9))) for _ in range(number)]


def small_tokenizer(path: Path, text: Sequence[str] = (), **config: object) -> Tokenizer:
    """A tokenizer trained on a text (default: ``random_lines``) and saved as ``path``.

    Args:
        path: File to write.
        text: Lines to train on.
        config: Fields of ``TokenizerConfig``; 290 pieces by default.
    """
    settings = TokenizerConfig(**{"vocab_size": 290, **config})  # type: ignore[arg-type]
    path.write_bytes(train_tokenizer(text or random_lines(), settings))
    return Tokenizer(path)
