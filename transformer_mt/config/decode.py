"""Schemas of translation: ``decode/`` and the job of ``mt-translate``."""

import math
from dataclasses import dataclass, field, fields, replace

from transformer_mt.config.checks import choice, require
from transformer_mt.errors import InputError

COMPUTE_TYPES = ("float32", "int8", "float16", "bfloat16")
"""What an engine can be asked to compute in; few devices do all."""


@dataclass(kw_only=True, frozen=True)
class DecodeConfig:
    """Beam search (§6.1), or translations drawn at random."""

    beam_size: int = 4
    length_penalty: float = 0.6
    """α of GNMT's ((5 + |Y|) / 6)^α."""
    max_extra_tokens: int = 50
    """Longest output: the source's length plus this many tokens."""
    max_source_tokens: int = 256
    """Longer lines are cut into parts of at most this many tokens, and counted. ``mt-train`` makes
    it ``data.cleaning.max_tokens``: training sees no longer ones."""
    batch_tokens: int | None = None
    """Most tokens, padding and beams included, decoded at a time; null is 8192 on a CPU, and as
    many as its memory holds with ease on a GPU."""
    min_length: int = 0
    """Fewest tokens of a translation."""
    max_length: int | None = None
    """Most tokens of a translation, if that is less than ``max_extra_tokens`` allows."""
    no_repeat_ngram: int = 0
    """No sequence of this many tokens occurs twice in a translation; 0 allows it."""
    sampling: bool = False
    """Draw each token from the model's distribution, as for back-translation, instead of searching.
    What is drawn for a line depends on the line and the seed, not on the lines around it."""
    temperature: float = 1.0
    """Of sampling: probabilities are taken to the power 1 / temperature."""
    top_k: int = 0
    """Of sampling: only from the k most probable tokens; 0 takes all."""
    top_p: float = 1.0
    """Of sampling: only from the fewest tokens that together have this probability."""
    seed: int = 1
    """Of sampling."""

    def __post_init__(self) -> None:
        require(
            self.batch_tokens is None or self.batch_tokens >= 1,
            f"decode.batch_tokens={self.batch_tokens} must be ≥ 1 (or null)",
        )
        for key in ("beam_size", "max_source_tokens"):
            require(getattr(self, key) >= 1, f"decode.{key}={getattr(self, key)} must be ≥ 1")
        for key in ("min_length", "no_repeat_ngram", "top_k"):
            require(getattr(self, key) >= 0, f"decode.{key}={getattr(self, key)} must be ≥ 0")
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
            "temperature, top_k and top_p belong to sampling: say sampling=true too",
        )
        require(
            0 <= self.length_penalty <= 10,  # more overflows, and means nothing
            f"decode.length_penalty={self.length_penalty} must be 0 to 10",
        )
        require(
            self.max_extra_tokens >= 0,
            f"decode.max_extra_tokens={self.max_extra_tokens} must be ≥ 0",
        )

    def with_settings(self, job: object) -> "DecodeConfig":
        """These settings, under those of a job that have the same name and are not None.

        Raises:
            InputError: They are senseless, or go ill together.
        """
        names = (key.name for key in fields(self))
        given = {name: value for name in names if (value := getattr(job, name, None)) is not None}
        try:
            settings = replace(self, **given)
        except InputError as error:  # a job has them at the top
            raise InputError(str(error).replace("decode.", "")) from None
        require(
            settings.sampling or "seed" not in given,
            "seed belongs to sampling: say sampling=true too",
        )
        return settings

    @property
    def plain(self) -> bool:
        """Whether this is beam search and nothing more, which is the same in every engine."""
        return (self.min_length, self.no_repeat_ngram, self.sampling) == (0, 0, False)


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
    """Translations for each line, best first; with ``sampling`` as they are drawn."""
    engine: str = "auto"
    """``torch``, ``ctranslate2``, or ``auto``: on a CPU CTranslate2 in float32, which gives the
    same translations faster, where it is installed and can do the job; otherwise torch."""
    compute_type: str = "float32"
    """``float32``, ``bfloat16``, ``int8`` (CTranslate2 only) or ``float16`` (GPUs only)."""
    split: str = "none"
    """``sentences`` translates the sentences of a line one by one; ``none`` takes it as one."""
    markup: str = "text"
    """``keep`` brings tags, ``{placeholders}`` and addresses through unharmed; to ``text`` they are
    characters like any."""
    device: str = "auto"
    """``cpu``, ``cuda`` or ``auto``."""
    step: int | None = None
    """Take the weights of this checkpoint; null takes the average that training left."""
    ensemble: list[str] = field(default_factory=list)
    """More model folders with the same vocabulary: the probability of a token is the mean of
    all. The settings are those of ``model``."""
    prefix: str | None = None
    """File with a line for each line of the input: what its translation begins with."""
    score: str | None = None
    """File with a translation for each line of the input: it is scored, and none is made."""
    alignment: bool = False
    """Say in ``jsonl`` for each word of a translation which word it comes from."""
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
        require(bool(self.model), "no model given: say model=FOLDER (see --help)")
        choice("format", self.format, "text", "jsonl")
        choice("engine", self.engine, "auto", "torch", "ctranslate2")
        choice("compute_type", self.compute_type, *COMPUTE_TYPES)
        choice("split", self.split, "none", "sentences")
        choice("markup", self.markup, "text", "keep")
        choice("device", self.device, "auto", "cpu", "cuda")
        for key in ("input", "output", "prefix", "score"):
            require(getattr(self, key) != "", f"{key}= is empty: say {key}=FILE, or leave it out")
        for key in ("input", "output"):
            require(
                getattr(self, key) != "-",
                f"{key}=-: leave {key} out for standard {key}; a file of that name is ./-",
            )
        require(self.nbest >= 1, f"nbest={self.nbest} must be ≥ 1")
        require(
            self.nbest == 1 or self.format == "jsonl",
            f"nbest={self.nbest} needs format=jsonl: text is one line out for each line in",
        )
        require(
            not self.alignment or self.format == "jsonl",
            "alignment=true needs format=jsonl: text has no place for it",
        )
        if self.score is not None:
            for key, used in (
                ("prefix", self.prefix is not None),
                ("alignment", self.alignment),
                ("nbest", self.nbest > 1),
                ("sampling", bool(self.sampling)),
            ):
                require(not used, f"{key} is for translating, and score makes no translations")
        for setting, used in (
            ("split=sentences", self.split == "sentences"),
            ("markup=keep", self.markup == "keep"),
        ):
            for key in ("prefix", "score", "alignment") if used else ():
                require(
                    getattr(self, key) in (None, False),
                    f"{key} applies to whole lines as they are: it does not go with {setting}",
                )
