"""Search settings: those that a model folder records (config group ``decode/``), and all others."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from transformer_mt.config.checks import Checked, number, require

COMPUTE_TYPES = ("auto", "fast", "float32", "bfloat16", "int8", "float16")
"""Values of ``compute_type``; few devices support all types."""


@dataclass(kw_only=True, frozen=True)
class SearchConfig(Checked, prefix="decode."):
    """Beam search (§6.1): what a training run decides, and its model folder records."""

    # Upper limits, so that an untrusted model folder cannot make a line endless or take all memory.

    beam_size: int = number(4, at_least=1, at_most=1000)
    """Number of beams; 1 is greedy search. The paper uses 4 (§6.1)."""
    length_penalty: float = number(0.6, at_least=0, at_most=10)  # larger values overflow
    """Exponent α of the length penalty; larger values favour longer translations. Scores are
    divided by ((5 + |Y|) / 6)^α (GNMT, Wu et al. 2016, eq. 14); the paper uses 0.6 (§6.1)."""
    max_extra_tokens: int = number(50, at_least=0, at_most=10_000)
    """Maximum output length in tokens beyond the length of the source. The paper uses 50 (§6.1)."""
    max_source_tokens: int = number(256, at_least=1, at_most=100_000)
    """Translate lines with more tokens in parts. ``mt-train`` sets it to
    ``data.cleaning.max_tokens``, the longest that training sees. Such lines are counted."""

    @property
    def in_words(self) -> str:
        """The search in words, for a reader of its translations' scores."""
        if self.beam_size == 1:
            return "greedy search"
        return f"beam search with {self.beam_size} beams, length penalty {self.length_penalty:g}"

    def with_settings(self, given: Mapping[str, Any]) -> "DecodeConfig":
        """The settings of a translation: these, overridden by given ones, and the given others.

        Raises:
            InputError: The settings are invalid or conflict.
            TypeError: There is no setting of a given name.
        """
        return DecodeConfig(**{**asdict(self), **given})


@dataclass(kw_only=True, frozen=True)
class DecodeConfig(SearchConfig):
    """Settings of a translation, of which a model folder records those of ``SearchConfig``."""

    batch_tokens: int | None = number(None, at_least=1, at_most=10_000_000)
    """Maximum number of tokens in a batch, padding and beams included. null: 8192 on a CPU; on a
    GPU, as many as its memory easily holds."""
    min_length: int = number(0, at_least=0, at_most=10_000)
    """Minimum number of tokens of a translation."""
    max_length: int | None = number(None, at_least=1)
    """Maximum number of tokens of a translation. null: no limit besides ``max_extra_tokens``."""
    no_repeat_ngram: int = number(0, at_least=0)
    """Never repeat an n-gram of this size in a translation; 0 = off."""
    sampling: bool = False
    """Sample tokens at random instead of searching, for example for back-translation. A sample
    depends on its line and the seed, not on the other lines."""
    temperature: float = number(1.0, above=0)
    """With sampling: raise probabilities to the power 1 / temperature."""
    top_k: int = number(0, at_least=0)
    """With sampling: draw from this many of the most probable tokens; 0: from all."""
    top_p: float = number(1.0, above=0, at_most=1)
    """With sampling: draw from the fewest tokens that together have this probability (nucleus
    sampling); 1: from all."""
    seed: int = 1
    """With sampling: random seed."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.max_length is None or self.max_length >= self.min_length,
            f"max_length={self.max_length} must be ≥ min_length",
        )
        for name in () if self.sampling else ("temperature", "top_k", "top_p", "seed"):
            require(
                getattr(self, name) == getattr(DecodeConfig, name),
                f"{name} applies to sampling only: set sampling=true too",
            )

    def check_nbest(self, nbest: int) -> None:
        """Raises ``InputError`` if a search with these settings has no ``nbest`` translations."""
        require(
            self.sampling or nbest <= self.beam_size,
            f"nbest={nbest} needs a beam_size of at least {nbest}",
        )


def search_settings(job: object) -> dict[str, Any]:
    """A job's settings that are fields of ``DecodeConfig``, without those that are None."""
    values = {key.name: getattr(job, key.name, None) for key in fields(DecodeConfig)}
    return {name: value for name, value in values.items() if value is not None}
