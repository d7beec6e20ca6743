"""Schemas of the data: ``data/``, ``cleaning/`` and ``tokenizer/``."""

import math
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from omegaconf import MISSING

from transformer_mt import files
from transformer_mt.config.checks import choice, require, require_language


@dataclass(kw_only=True, frozen=True)
class SourceConfig:
    """Where sentence pairs come from: exactly one of ``src``+``tgt``, ``tsv``, ``jsonl``,
    ``parquet``, ``hub``, ``testset`` or ``sample``.
    """

    src: str | None = None
    """Text file of source sentences, one a line; ``.gz`` and ``.zst`` are read as they are."""
    tgt: str | None = None
    """Text file of target sentences, line-aligned with ``src``."""
    tsv: str | None = None
    """Tab-separated file, no header: source, tab, target."""
    jsonl: str | None = None
    """JSON lines: ``{"translation": {"en": …, "de": …}}`` or two named columns."""
    parquet: str | None = None
    """Parquet file with the same columns as ``jsonl``."""
    hub: str | None = None
    """Dataset id on the Hugging Face hub, or a local folder in the same form."""
    testset: str | None = None
    """Test set that sacreBLEU downloads, e.g. ``wmt19``; of several references, the first."""
    langs: str | None = None
    """Testset only: its language pair, source first, e.g. ``en-de``."""
    sample: str | None = None
    """A split of the built-in sample: ``train``, ``valid`` or ``test``."""
    config: str | None = None
    """Hub only: configuration name, e.g. ``de-en``."""
    split: str | None = None
    """Hub only: split name, e.g. ``train``."""
    revision: str | None = None
    """Hub only: the commit, tag or branch to pin."""
    src_column: str | None = None
    """Column of the source side (TSV: a 1-based number); by default the source language's name."""
    tgt_column: str | None = None
    """Column of the target side (TSV: a 1-based number); by default the target language's name."""

    def __post_init__(self) -> None:
        names = ("tsv", "jsonl", "parquet", "hub", "testset", "sample")
        kinds = [name for name in names if getattr(self, name)]
        if self.src or self.tgt:
            kinds.append("src+tgt")
        require(
            len(kinds) == 1,
            "a data source needs exactly one of {src, tgt}, {tsv}, {jsonl}, {parquet}, {hub}, "
            f"{{testset}} or {{sample}}; this one has: {', '.join(kinds) or 'none'}",
        )
        require(
            (self.src is None) == (self.tgt is None),
            f"the data source {self.src or self.tgt} needs both src and tgt",
        )
        require(
            self.hub is None or bool(self.split),
            f"the data source hub: {self.hub} needs a split, e.g. split: train",
        )
        for key in ("config", "split", "revision"):
            require(
                self.hub is not None or getattr(self, key) is None,
                f"{key} belongs to a hub source; this one is {kinds[0]}",
            )
        require(
            (self.testset is None) == (self.langs is None),
            f"testset and langs go together, as {{testset: wmt19, langs: en-de}}; this is {self}",
        )
        if self.sample is not None:
            choice("sample", self.sample, "train", "valid", "test")
        for key in ("src_column", "tgt_column"):
            require(
                getattr(self, key) is None or kinds[0] not in ("src+tgt", "testset", "sample"),
                f"{key} belongs to a source with columns; this one is {kinds[0]}",
            )
        if self.tsv is not None:
            for key in ("src_column", "tgt_column"):
                value = getattr(self, key)
                require(
                    value is None or (value.isdecimal() and int(value) >= 1),
                    f"{key}={value!r}: a TSV column is a number, starting at 1",
                )

    def __str__(self) -> str:
        parts = [f"{k}: {v}" for k, v in asdict(self).items() if v is not None]
        return "{" + ", ".join(parts) + "}"


@dataclass(kw_only=True, frozen=True)
class CleaningConfig:
    """Filters of the training data (never of validation or test data)."""

    max_tokens: int = 256
    """Longest side in subwords, end symbol included; longer pairs are dropped and counted."""
    max_ratio: float | None = None
    """Largest ratio of the two sides' lengths in subwords; null keeps every ratio."""
    ratio_slack: int = 0
    """Subwords that the longer side may have beyond ``max_ratio``, for the sake of short pairs."""
    drop_garbled: bool = False
    """Drop control, replacement and private characters, and text in a wrong encoding."""
    drop_markup: bool = False
    """Drop HTML tags and entities."""
    drop_identical: bool = False
    """Drop pairs whose sides are the same up to case, spaces and punctuation."""
    max_character_repeats: int | None = None
    """Most times that a character may stand in a row."""
    max_word_repeats: int | None = None
    """Most times that a word, or a phrase of up to four words, may stand in a row."""
    min_word_length: float | None = None
    """Least mean length of a side's words, in characters (languages with spaces only)."""
    max_word_length: float | None = None
    """Greatest mean length of a side's words, in characters (languages with spaces only)."""
    min_script_share: float | None = None
    """Least share of a side's letters that are of its language's script."""
    min_language_probability: float | None = None
    """Least probability that a side is in its language (needs the ``langid`` extra)."""
    drop_held_out: bool = False
    """Drop pairs with a side that is in the validation or test set, up to case, spaces and
    punctuation."""
    deduplicate: bool = False
    """Drop exact repetitions of a pair."""
    deduplicate_sources: bool = False
    """Keep one pair for each source sentence, the first."""
    deduplicate_targets: bool = False
    """Keep one pair for each target sentence, the first."""

    def __post_init__(self) -> None:
        bounds: dict[str, float] = {
            "max_tokens": 2,
            "max_ratio": 1,
            "ratio_slack": 0,
            "max_character_repeats": 1,
            "max_word_repeats": 1,
            "min_word_length": 0,
            "max_word_length": 0,
            "min_script_share": 0,
            "min_language_probability": 0,
        }
        for key, least in bounds.items():
            value = getattr(self, key)
            null = "" if key in ("max_tokens", "ratio_slack") else " (or null)"
            require(
                value is None or value >= least,
                f"data.cleaning.{key}={value} must be ≥ {least}{null}",
            )
        for key in ("min_script_share", "min_language_probability"):
            value = getattr(self, key)
            require(value is None or value <= 1, f"data.cleaning.{key}={value} must be ≤ 1")


@dataclass(kw_only=True, frozen=True)
class DataConfig:
    """The corpora: which pairs to learn from, to validate on, and to score once at the end."""

    src_lang: str = MISSING
    """Language code of the source side; also its default column name."""
    tgt_lang: str = MISSING
    """Language code of the target side; also its default column name."""
    mirror: str | None = None
    """Folder of downloaded datasets, for machines that cannot reach the hub: ``hub: wmt/wmt14`` is
    then read from its subfolder ``wmt/wmt14``."""
    train: list[SourceConfig] = field(default_factory=list)
    """Training sources, read one after the other."""
    weights: list[float] = field(default_factory=list)
    """How often a pair of each training source comes in an epoch, as ``[1, 0.5]``; empty: once."""
    temperature: float = 1.0
    """T > 1 lets small sources come more often: a pair of a source of n pairs (N / n)^(1 − 1/T)
    times an epoch, where N is the size of the largest."""
    valid: list[SourceConfig] = field(default_factory=list)
    """Validation sources: loss, perplexity and BLEU during training."""
    test: list[SourceConfig] = field(default_factory=list)
    """Test sources, scored once at the end; may be empty."""
    cleaning: CleaningConfig = field(default_factory=CleaningConfig)
    normalization: str = "none"
    """``nfc``: accents composed; ``standard``: also HTML entities, quotes, dashes and spaces in
    plain ASCII, no control characters; ``moses_lowercase``: lower-case Moses tokens, as published
    Multi30k scores use them. Applied to all that is trained on, validated and translated."""
    workers: int | None = None
    """Processes that clean and encode; null is one for each core, 0 none but this one."""

    def __post_init__(self) -> None:
        require(
            all(weight > 0 and math.isfinite(weight) for weight in self.weights),
            f"data.weights={list(self.weights)} must all be > 0",
        )
        require(
            not self.weights or len(self.weights) == len(self.train),
            f"data.weights has {len(self.weights)} numbers for {len(self.train)} training sources",
        )
        require(
            self.temperature >= 1 and math.isfinite(self.temperature),
            f"data.temperature={self.temperature} must be ≥ 1",
        )
        choice(
            "data.normalization", self.normalization, "none", "nfc", "standard", "moses_lowercase"
        )
        require(
            self.workers is None or self.workers >= 0, f"data.workers={self.workers} must be ≥ 0"
        )
        # A job cannot do without the languages and these sources; a schema, still empty, can.
        if self.src_lang == MISSING and self.tgt_lang == MISSING:
            return
        for key in ("src_lang", "tgt_lang"):
            require_language(f"data.{key}", getattr(self, key))
        if self.mirror is not None:
            self._read_mirror(files.expand_user(self.mirror).resolve())
        for part in ("train", "valid"):
            require(
                bool(getattr(self, part)),
                f"data.{part} names no source; mt-train --help shows examples",
            )
        require(
            self.src_lang != self.tgt_lang,
            f"data.src_lang and data.tgt_lang are both {self.src_lang!r}",
        )

    def _read_mirror(self, mirror: Path) -> None:
        """Points the hub's sources into the mirror, for good: a run folder says what was read.

        A folder is no commit of the hub, so the ``revision`` goes.
        """

        def local(source: SourceConfig) -> SourceConfig:
            if source.hub is None or files.expand_user(source.hub).is_dir():
                return source
            return replace(source, hub=str(mirror / source.hub), revision=None)

        for part in ("train", "valid", "test"):
            object.__setattr__(self, part, [local(source) for source in getattr(self, part)])
        object.__setattr__(self, "mirror", None)


@dataclass(kw_only=True, frozen=True)
class TokenizerConfig:
    """SentencePiece, one vocabulary for both languages (§5.1)."""

    type: str = "bpe"
    """``bpe`` (the paper's byte-pair encoding) or ``unigram``."""
    vocab_size: int = 37000
    """Number of pieces, special symbols and byte pieces included."""
    character_coverage: float = 1.0
    """Share of the characters seen that become pieces; the rest falls back to bytes."""
    byte_fallback: bool = True
    """Spell unknown characters as UTF-8 bytes instead of ``<unk>``."""
    normalization: str = "identity"
    """SentencePiece's normalisation rule: ``identity`` leaves every character as it is
    (runs of spaces become one);
    ``nmt_nfkc`` (SentencePiece's own default), ``nfkc`` and ``nfkc_cf`` rewrite some."""
    max_sentences: int = 2_000_000
    """Most sentences (of either language) the vocabulary is learned from, drawn at random."""
    seed: int = 1
    """Seed of that draw; ``train.seed`` does not change the vocabulary."""
    path: str | None = None
    """An existing SentencePiece model to use instead of training one."""
    sampling: float = 0.0
    """Subword regularisation of the training data, on both sides, anew in every epoch; 0 is none.
    ``bpe``: the probability to drop a merge (BPE-dropout; 0.1 is usual). ``unigram``: α, the power
    of a segmentation's probability (Kudo 2018; a smaller α varies more, 0.1 to 0.5 are usual)."""

    def __post_init__(self) -> None:
        choice("tokenizer.type", self.type, "bpe", "unigram")
        choice(
            "tokenizer.normalization", self.normalization, "identity", "nmt_nfkc", "nfkc", "nfkc_cf"
        )
        require(
            8 <= self.vocab_size <= 10**7,
            f"tokenizer.vocab_size={self.vocab_size} must be 8 to 10,000,000",
        )
        require(
            0.98 <= self.character_coverage <= 1,  # SentencePiece takes no less
            f"tokenizer.character_coverage={self.character_coverage} must be in [0.98, 1]",
        )
        require(self.max_sentences >= 1, "tokenizer.max_sentences must be ≥ 1")
        require(0 <= self.sampling <= 1, f"tokenizer.sampling={self.sampling} must be in [0, 1]")
