"""Schemas of the configuration groups ``data``, ``data/cleaning`` and ``tokenizer``."""

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from omegaconf import MISSING

from transformer_mt.config.checks import Checked, number, one_of, require, require_language
from transformer_mt.config.source import SourceConfig
from transformer_mt.errors import InputError
from transformer_mt.files import expand_user
from transformer_mt.registries import PAIR_NOISE


@dataclass(kw_only=True, frozen=True)
class CleaningConfig(Checked):
    """Filters of the training data. Validation and test data are never filtered."""

    _prefix = "data.cleaning."
    max_tokens: int = number(256, at_least=2, at_most=100_000)
    """Drop, and count, pairs with more subwords than this on a side, end symbol included."""
    max_ratio: float | None = number(None, at_least=1)
    """Drop pairs whose sides differ in length by more than this factor, in subwords. A difference
    of up to 5 subwords is always allowed. null: no limit."""
    drop_garbled: bool = False
    """Drop pairs with control characters or a broken encoding. Replacement and private-use
    characters count as well."""
    drop_markup: bool = False
    """Drop pairs with HTML tags or entities. Moses' escapes, such as ``&apos;``, are text."""
    drop_identical: bool = False
    """Drop pairs with equal sides. Case, spaces and punctuation are ignored."""
    drop_repetitive: bool = False
    """Drop pairs with a character more than 9 times in a row, or a word more than 3 times. A phrase
    of up to four words counts as a word."""
    drop_odd_words: bool = False
    """Drop pairs with a mean word length below 1.5 or above 20 characters. Applies to languages
    that put spaces between words."""
    drop_digit_mismatch: bool = False
    """Drop pairs whose sides have different numbers in digits. Separators of thousands and decimals
    are ignored: 1,234.5 is 1.234,5."""
    min_script_share: float | None = number(None, at_least=0, at_most=1)
    """Drop pairs with a smaller share of letters in the script of their language. In other scripts,
    a Latin word, such as a product's name, counts as one letter. 0 to 1; null: not checked."""
    min_language_probability: float | None = number(None, at_least=0, at_most=1)
    """Drop pairs with a side that is in its language with a lower probability. 0 to 1; null: not
    checked. Needs the extra ``langid``."""
    drop_held_out: bool = False
    """Drop pairs whose source or target is in the validation or test set. Case, spaces and
    punctuation are ignored."""
    deduplicate: str | None = one_of("pairs", "sources", default=None)
    """Keep only the first of equal pairs, or the first pair of each source sentence. null: all."""


@dataclass(kw_only=True, frozen=True)
class DataConfig(Checked):
    """Training, validation and test data."""

    _prefix = "data."
    src_lang: str = MISSING
    """Source language code. Also its default column name."""
    tgt_lang: str = MISSING
    """Target language code. Also its default column name."""
    mirror: str | None = None
    """Read Hub datasets from copies in this folder, without a connection. ``hub: wmt/wmt14`` is
    read from its subfolder ``wmt/wmt14``."""
    train: list[SourceConfig] = field(default_factory=list)
    """Training sources, read in order."""
    weights: list[float] = field(default_factory=list)
    """Repeat each source this often per epoch, e.g. ``[1, 0.5]``. Empty: each pair once."""
    shard_pairs: int = number(2_300_000, at_least=1)
    """Split corpora of twice this many pairs or more into shards, to bound memory. The split is
    random, and made when the corpus is encoded."""
    valid: list[SourceConfig] = field(default_factory=list)
    """Validation sources, for loss, perplexity, BLEU and chrF2."""
    test: list[SourceConfig] = field(default_factory=list)
    """Test sources, scored once at the end. The list may be empty."""
    valid_pairs: int | None = number(None, at_least=1)
    """Take this many validation pairs out of the training sources, instead of ``valid``. They are
    chosen at random, by a hash of each pair, from those that pass the filters and have different
    sides. No training pair has one of their sides; case, spaces and punctuation are ignored
    (``cleaning.drop_held_out`` is on). The run folder has them as text, such as
    ``data/valid.en``."""
    test_pairs: int | None = number(None, at_least=1)
    """Take this many test pairs out of the training sources, instead of ``test``, as
    ``valid_pairs``."""
    cleaning: CleaningConfig = field(default_factory=CleaningConfig)
    augment: str = one_of("none", PAIR_NOISE)
    """Add noise to a share of the training pairs when they are encoded, and to the text that the
    vocabulary is learned from. ``punctuation`` leaves out the final marks of 10% of the pairs;
    ``standard`` those of 20%, puts both sides of 7% in capitals, and 5% of the sources each in
    title case, with typing errors, or with other quotes."""
    phrase_pairs: float = number(0.0, at_least=0, below=1)
    """Add pairs of phrases, as this share of the target tokens of an epoch but each at most once;
    0 adds none. They are words, such as ``dog`` and ``Hund``, and parts of sentences of up to five
    words that translate each other in the training text: a small corpus is learned better, and the
    model translates single words."""
    normalization: str = one_of("none", "nfc", "standard", "moses")
    """Normalise text in training, validation and translation. ``nfc`` composes accents;
    ``standard`` also resolves HTML entities, writes quotes, dashes and spaces in ASCII and removes
    control characters; ``moses`` normalises punctuation with Moses' rules, as MarianMT expects
    it."""
    workers: int | None = number(None, at_least=0, at_most=4096)
    """Clean and encode pairs in this many processes. null: one per core; 0: the main one alone."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for part in ("valid", "test"):
            if getattr(self, f"{part}_pairs") is not None:
                require(
                    not getattr(self, part),
                    f"data.{part}_pairs takes pairs out of data.train, and data.{part} names other "
                    f"ones: leave out data.{part}_pairs, or set data.{part}=[]",
                )
                cleaning = replace(self.cleaning, drop_held_out=True)
                object.__setattr__(self, "cleaning", cleaning)
        positive = min(self.weights, default=1) > 0 and math.isfinite(sum(self.weights))
        require(positive, f"data.weights={list(self.weights)} must all be > 0")
        numbers, sources = len(self.weights), len(self.train)
        message = f"data.weights has {numbers} numbers for {sources} training sources"
        require(numbers in (0, sources), message)
        # Languages and sources are required in a job, but not yet in an empty schema.
        if self.src_lang == MISSING and self.tgt_lang == MISSING:
            return
        for key in ("src_lang", "tgt_lang"):
            require_language(f"data.{key}", getattr(self, key))
        if self.mirror is not None:
            self._read_mirror(expand_user(self.mirror).resolve())
        message = f"data.src_lang and data.tgt_lang are both {self.src_lang!r}"
        require(self.src_lang != self.tgt_lang, message)
        tags = self.tags
        for source in (*self.train, *self.valid, *self.test):
            src_lang, tgt_lang = self.languages(source)
            if src_lang == tgt_lang:
                raise InputError(f"source and target of {source} are both {src_lang!r}")
            _, other = tags.get(source.tag or "", (src_lang, tgt_lang))
            if other != tgt_lang:
                raise InputError(f"{source}: another source with this tag has tgt_lang={other}")

    def languages(self, source: SourceConfig | None = None) -> tuple[str, str]:
        """Source and target language of a source; of the model if it is None."""
        src_lang, tgt_lang = (source.src_lang, source.tgt_lang) if source else (None, None)
        return src_lang or self.src_lang, tgt_lang or self.tgt_lang

    @property
    def needs_tag(self) -> bool:
        """Whether all training sources have tags, so that each line to translate needs one."""
        return all(source.tag for source in self.train)

    @cached_property
    def tags(self) -> dict[str, tuple[str, str]]:
        """All tags with the languages of their first source, the model's own direction first."""
        tags: dict[str, tuple[str, str]] = {}
        for source in (*self.train, *self.valid, *self.test):
            if source.tag:
                tags.setdefault(source.tag, self.languages(source))
        return dict(sorted(tags.items(), key=lambda item: item[1] != self.languages()))

    def _read_mirror(self, mirror: Path) -> None:
        """Replaces hub ids by folders of the mirror, so that a run folder records what was read.

        A folder has no commits, so ``revision`` is removed.
        """

        def local(source: SourceConfig) -> SourceConfig:
            if source.hub is None or "hub" in source.paths:
                return source
            return replace(source, hub=str(mirror / source.hub), revision=None)

        for part in ("train", "valid", "test"):
            object.__setattr__(self, part, [local(source) for source in getattr(self, part)])
        object.__setattr__(self, "mirror", None)


@dataclass(kw_only=True, frozen=True)
class TokenizerConfig(Checked):
    """SentencePiece vocabulary, shared by both languages (§5.1) or one for each."""

    _prefix = "tokenizer."
    joint: bool = True
    """Share one vocabulary between both languages (§5.1). With ``false``, for example for two
    scripts, each language has its own vocabulary of ``vocab_size`` pieces, and
    ``model.tied_embeddings`` must not be ``all``."""
    type: str = one_of("bpe", "unigram")
    """Train the subword model by byte-pair encoding, as in the paper, or as a unigram language
    model."""
    vocab_size: int = number(37000, at_least=8, at_most=10_000_000)
    """Number of pieces (§5.1), special symbols and bytes included."""
    character_coverage: float = number(1.0, at_least=0.98, at_most=1)  # as SentencePiece
    """Share of characters that become pieces. All others are spelled in bytes; 0.98 to 1. 0.9995
    suits languages of thousands of characters, such as Chinese, Japanese and Korean."""
    path: str | None = None
    """Use an existing SentencePiece model, or a folder with one per language (``source.spm`` and
    ``target.spm``). null: train one."""
