"""Schemas of translation: ``decode/`` and the job of ``mt-translate``."""

import math
from dataclasses import dataclass

from transformer_mt.config.checks import choice, require


@dataclass(kw_only=True, frozen=True)
class DecodeConfig:
    """Beam search (§6.1)."""

    beam_size: int = 4
    length_penalty: float = 0.6
    """α of GNMT's ((5 + |Y|) / 6)^α."""
    max_extra_tokens: int = 50
    """Longest output: the source's length plus this many tokens."""
    max_source_tokens: int = 1024
    """Longer lines are cut into parts of at most this many tokens, and counted."""
    batch_tokens: int = 8192
    """Most tokens, padding and beams included, decoded at a time."""

    def __post_init__(self) -> None:
        for key in ("beam_size", "max_source_tokens", "batch_tokens"):
            require(getattr(self, key) >= 1, f"decode.{key}={getattr(self, key)} must be ≥ 1")
        require(
            math.isfinite(self.length_penalty) and self.length_penalty >= 0,
            f"decode.length_penalty={self.length_penalty} must be ≥ 0",
        )
        require(self.max_extra_tokens >= 0, "decode.max_extra_tokens must be ≥ 0")


@dataclass(kw_only=True, frozen=True)
class TranslateJob:
    """Everything ``mt-translate`` is told. A null decoding setting is the model folder's own."""

    model: str = ""
    """Model folder."""
    input: str | None = None
    """File to translate; null reads standard input."""
    output: str | None = None
    """File to write; null writes to standard output."""
    format: str = "text"
    """``text``, or ``jsonl`` with scores and all n best."""
    nbest: int = 1
    """Translations for each line, best first."""
    engine: str = "auto"
    """``torch``; ``auto`` takes the fastest engine there is, today ``torch``."""
    device: str = "auto"
    """``cpu``, ``cuda`` or ``auto``."""
    beam_size: int | None = None
    length_penalty: float | None = None
    max_extra_tokens: int | None = None
    max_source_tokens: int | None = None
    batch_tokens: int | None = None

    def __post_init__(self) -> None:
        require(bool(self.model), "no model given: say model=FOLDER (see --help)")
        choice("format", self.format, "text", "jsonl")
        choice("engine", self.engine, "auto", "torch")
        choice("device", self.device, "auto", "cpu", "cuda")
        require(self.nbest >= 1, f"nbest={self.nbest} must be ≥ 1")
        require(
            self.nbest == 1 or self.format == "jsonl",
            f"nbest={self.nbest} needs format=jsonl: text is one line out for each line in",
        )
