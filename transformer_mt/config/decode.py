"""Schemas of translation: ``decode/`` and the job of ``mt-translate``."""

import math
from dataclasses import dataclass, field, fields, replace

from transformer_mt.config.checks import at_least, choice, require
from transformer_mt.errors import InputError

COMPUTE_TYPES = ("auto", "fast", "float32", "int8", "float16", "bfloat16")
"""Values of ``compute_type``; few devices support all types."""

_MAXIMA = {"beam_size": 1000, "max_extra_tokens": 10_000, "min_length": 10_000}
"""Upper limits, so that an untrusted model folder cannot make one line take forever."""


@dataclass(kw_only=True, frozen=True)
class DecodeConfig:
    """Beam search (§6.1) or random sampling."""

    beam_size: int = 4
    """Number of beams; 1 is greedy search. The paper uses 4 (§6.1)."""
    length_penalty: float = 0.6
    """α of the length penalty ((5 + |Y|) / 6)^α. From GNMT (Wu et al. 2016, eq. 14); the paper uses
    0.6 (§6.1)."""
    max_extra_tokens: int = 50
    """Maximum output length in tokens beyond the source's. The paper uses 50 (§6.1)."""
    max_source_tokens: int = 256
    """Lines with more tokens are translated in parts. ``mt-train`` sets it to
    ``data.cleaning.max_tokens``, the longest that training sees. Such lines are counted."""
    batch_tokens: int | None = None
    """Maximum number of tokens in a batch. null: 8192 on a CPU; on a GPU, as many as its memory
    easily holds. Padding and beams count."""
    min_length: int = 0
    """Minimum number of tokens of a translation."""
    max_length: int | None = None
    """Maximum number of tokens of a translation. null: no limit besides ``max_extra_tokens``."""
    no_repeat_ngram: int = 0
    """Size of n-grams that may not repeat in a translation. 0 disables this n-gram blocking."""
    sampling: bool = False
    """Sample tokens at random instead of beam search. It is useful for back-translation. A sample
    depends on its line and the seed, not on the other lines."""
    temperature: float = 1.0
    """Sampling: temperature of the distribution. Probabilities are raised to the power
    1 / temperature."""
    top_k: int = 0
    """Sampling: use only the k most probable tokens. 0 uses all."""
    top_p: float = 1.0
    """Sampling: use only the top tokens of this probability mass. These are the fewest tokens that
    together have at least this probability (nucleus sampling); 1 uses all."""
    seed: int = 1
    """Sampling: random seed."""

    def __post_init__(self) -> None:
        for key, value in vars(self).items():
            require(not isinstance(value, str), f"decode.{key}={value!r} must not be text")
        positive = ("batch_tokens", "beam_size", "max_source_tokens")
        at_least(1, self, *positive, prefix="decode.")
        others = ("max_extra_tokens", "min_length", "no_repeat_ngram", "top_k")
        at_least(0, self, *others, prefix="decode.")
        for key, maximum in _MAXIMA.items():
            value = getattr(self, key)
            require(value <= maximum, f"decode.{key}={value} must be ≤ {maximum:,}")
        require(
            self.max_length is None or self.max_length >= max(self.min_length, 1),
            f"decode.max_length={self.max_length} must be ≥ 1 and ≥ decode.min_length",
        )
        require(
            math.isfinite(self.temperature) and self.temperature > 0,
            f"decode.temperature={self.temperature} must be > 0",
        )
        require(0 < self.top_p <= 1, f"decode.top_p={self.top_p} must be in (0, 1]")
        require(
            self.sampling or (self.temperature, self.top_k, self.top_p) == (1, 0, 1),
            "temperature, top_k and top_p apply to sampling only: set sampling=true too",
        )
        require(
            0 <= self.length_penalty <= 10,  # larger values overflow
            f"decode.length_penalty={self.length_penalty} must be 0 to 10",
        )

    def with_settings(self, job: object) -> "DecodeConfig":
        """These settings, overridden by a job's settings of the same names that are not None.

        Raises:
            InputError: The settings are invalid or conflict.
        """
        names = (key.name for key in fields(self))
        given = {name: value for name in names if (value := getattr(job, name, None)) is not None}
        try:
            settings = replace(self, **given)
        except InputError as error:  # in a job they have no prefix
            raise InputError(str(error).replace("decode.", "")) from None
        require(
            settings.sampling or "seed" not in given,
            "seed applies to sampling only: set sampling=true too",
        )
        return settings

    @property
    def is_plain_beam_search(self) -> bool:
        """Whether this is beam search without constraints, which every engine supports."""
        return (self.min_length, self.no_repeat_ngram, self.sampling) == (0, 0, False)


@dataclass(kw_only=True, frozen=True)
class TranslateJob:
    """Settings of ``mt-translate``. Search settings that are null are the model folder's."""

    model: str = ""
    """Model folder, or ``hf://ORG/NAME[@REVISION]`` on the Hugging Face Hub; required."""
    input: str | None = None
    """File to translate; null: standard input."""
    output: str | None = None
    """File to write; null: standard output."""
    format: str = "text"
    """Output format: ``text``, or ``jsonl`` with scores."""
    nbest: int = 1
    """Number of translations of each line, best first. It needs ``format=jsonl``; with ``sampling``
    they are in random order."""
    engine: str = "auto"
    """Translation engine: ``torch``, ``ctranslate2`` or ``auto``. ``auto`` is CTranslate2 where it
    is installed and can do the job, on a CPU, and otherwise torch; they give the same translations,
    ties and rounding aside."""
    compute_type: str = "auto"
    """``auto``, ``float32``, ``bfloat16``, ``int8``, ``float16`` or ``fast``. ``auto`` never trades
    accuracy for speed: it is float32. ``fast`` is int8 where CTranslate2 can do the job, otherwise
    bfloat16 where the hardware is fast at it, otherwise float32; unless it is float32, some
    translations and all scores change slightly. int8 needs CTranslate2, float16 a GPU."""
    split: str = "none"
    """``none``, or ``sentences`` to translate the sentences of each line one by one."""
    markup: str = "text"
    """``keep`` preserves tags, placeholders and addresses; ``text`` translates them like any other
    text."""
    device: str = "auto"
    """``cpu``, ``cuda`` or ``auto``."""
    step: int | None = None
    """Use the checkpoint of this training step. null: the final, averaged weights."""
    ensemble: list[str] = field(default_factory=list)
    """More models with the same vocabulary. Their probabilities are averaged with those of
    ``model``, whose settings are used."""
    prefix: str | None = None
    """File with the beginning of each line's translation. It has as many lines as the input."""
    score: str | None = None
    """File with translations to score, one per line; nothing is translated. It has as many lines as
    the input."""
    alignment: bool = False
    """Add word alignments to the output. It needs ``format=jsonl``."""
    cache_dir: str = "~/.cache/transformer_mt"
    """Folder of converted models that cannot be stored with the model. ``~/.cache`` is
    ``$XDG_CACHE_HOME`` where that is set."""
    # Every field of DecodeConfig; written out, because type checkers cannot see generated fields.
    beam_size: int | None = None
    length_penalty: float | None = None
    max_extra_tokens: int | None = None
    max_source_tokens: int | None = None
    batch_tokens: int | None = None
    min_length: int | None = None
    max_length: int | None = None
    no_repeat_ngram: int | None = None
    sampling: bool | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        require(bool(self.model), "no model given: set model=FOLDER (see --help)")
        choice("format", self.format, "text", "jsonl")
        choice("compute_type", self.compute_type, *COMPUTE_TYPES)
        choice("split", self.split, "none", "sentences")
        choice("markup", self.markup, "text", "keep")
        choice("device", self.device, "auto", "cpu", "cuda")
        for key in ("input", "output", "prefix", "score"):
            require(getattr(self, key) != "", f"{key}= is empty: set {key}=FILE, or leave it out")
        for key in ("input", "output"):
            message = f"{key}=-: leave {key} out for standard {key}; a file of that name is ./-"
            require(getattr(self, key) != "-", message)
        at_least(1, self, "nbest")
        require(
            self.nbest == 1 or self.format == "jsonl",
            f"nbest={self.nbest} needs format=jsonl: text is one line out for each line in",
        )
        require(
            not self.alignment or self.format == "jsonl",
            "alignment=true needs format=jsonl: text cannot hold alignments",
        )
        if self.score is not None:
            for key, used in (
                ("prefix", self.prefix is not None),
                ("alignment", self.alignment),
                ("nbest", self.nbest > 1),
                ("sampling", bool(self.sampling)),
            ):
                require(not used, f"{key} cannot be used with score, which does not translate")
        for setting, used in (
            ("split=sentences", self.split == "sentences"),
            ("markup=keep", self.markup == "keep"),
        ):
            for key in ("prefix", "score", "alignment") if used else ():
                message = f"{key} applies to whole lines: it cannot be used with {setting}"
                require(getattr(self, key) in (None, False), message)
