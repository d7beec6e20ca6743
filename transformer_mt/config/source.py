"""Schema of a data source, an item of ``data.train``, ``data.valid`` or ``data.test``."""

import os
import re
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from transformer_mt.config.checks import Checked, one_of, require, require_language
from transformer_mt.errors import InputError
from transformer_mt.files import expand_user

_COLUMNS = ("src_column", "tgt_column")

SOURCE_FIELDS: dict[str, tuple[str, ...]] = {
    "src+tgt": ("src", "tgt"),
    "tsv": ("tsv", *_COLUMNS),
    "jsonl": ("jsonl", *_COLUMNS),
    "parquet": ("parquet", *_COLUMNS),
    "csv": ("csv", *_COLUMNS),
    "tmx": ("tmx", *_COLUMNS),
    "po": ("po",),
    "xliff": ("xliff",),
    "hub": ("hub", "config", "split", "revision", *_COLUMNS),
    "testset": ("testset", "langs"),
    "mtdata": ("mtdata",),
    "sample": ("sample",),
}
"""Fields of each kind of source; the kind is named after the fields that choose it."""

NOT_FILES = ("testset", "mtdata", "sample")
"""Kinds of source that are not local files. Paths of the other kinds are made absolute, and their
files are fingerprinted."""

TAG = re.compile(r"(?!<(?:pad|unk|s|/s|0x[0-9A-F]{2})>)<[^<>\s]+>|>>[^<>\s]+<<")
"""A tag, such as ``<2fr>`` or ``>>fra<<``; not a special symbol."""

COMMON_FIELDS = ("tag", "src_lang", "tgt_lang")
"""Fields of a source of any kind."""

_REQUIRED_OPTIONS = {"langs": "en-de", "split": "train"}
"""Other fields that their kinds of source require, with an example for the error message."""


@dataclass(kw_only=True, frozen=True)
class SourceConfig(Checked):
    """Source of sentence pairs: exactly one of ``src``+``tgt``, ``tsv``, ``jsonl``, ``parquet``,
    ``csv``, ``tmx``, ``po``, ``xliff``, ``hub``, ``testset``, ``mtdata`` or ``sample``.
    """

    src: str | None = None
    """Text file of source sentences, one per line, plain or compressed (``.gz``, ``.xz``, ``.bz2``,
    ``.zst``)."""
    tgt: str | None = None
    """Text file of target sentences, line-aligned with ``src``."""
    tsv: str | None = None
    """Tab-separated file without a header: source, tab, target."""
    jsonl: str | None = None
    """JSON-lines file. Each line is ``{"translation": {"en": …, "de": …}}`` or has two named
    columns."""
    parquet: str | None = None
    """Parquet file with the same columns as ``jsonl``."""
    csv: str | None = None
    """CSV file whose first row names its columns, as a spreadsheet writes it in UTF-8. Values are
    separated by commas, semicolons or tabs, whichever the first line has most of."""
    tmx: str | None = None
    """Translation memory (TMX 1.1 to 1.4b) of two or more languages, plain or compressed. A
    language includes its variants: ``de`` also reads ``de-AT``. Formatting codes are dropped."""
    po: str | None = None
    """PO file of gettext. Its translated messages are pairs, except fuzzy ones. A file of the
    reverse direction is turned round."""
    xliff: str | None = None
    """XLIFF file (1.2 or 2). Segments with a finished translation are pairs. A file of the reverse
    direction is turned round."""
    hub: str | None = None
    """Dataset on the Hugging Face Hub, or a local copy of one."""
    testset: str | None = None
    """Test set that sacreBLEU downloads, e.g. ``wmt19``; the first of its references is used."""
    langs: str | None = None
    """Language pair of the test set, e.g. ``en-de``."""
    mtdata: str | None = None
    """Corpus that the program ``mtdata`` downloads, e.g. ``Statmt-europarl-10-deu-eng``. Install
    the program with ``pipx install mtdata``."""
    sample: str | None = one_of("train", "valid", "test", default=None)
    """Split of the built-in sample."""
    config: str | None = None
    """Configuration of the Hub dataset, e.g. ``de-en``."""
    split: str | None = None
    """Split of the Hub dataset, e.g. ``train``."""
    revision: str | None = None
    """Commit, tag or branch of the Hub dataset."""
    src_column: str | None = None
    """Source column: a name, for TSV a number from 1 (default 1), for TMX a language such as
    ``de-AT``. The default name is the source language."""
    tgt_column: str | None = None
    """Target column: a name, for TSV a number from 1 (default 2), for TMX a language. The default
    name is the target language."""
    tag: str | None = None
    """Put this symbol in front of every source text, e.g. ``<2fr>`` or ``>>fra<<``. It names the
    target language, the domain or the origin of the pairs."""
    src_lang: str | None = None
    """Language of the source side. null: ``data.src_lang``."""
    tgt_lang: str | None = None
    """Language of the target side, the same for all sources with this ``tag``. null:
    ``data.tgt_lang``."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for key in ("src_lang", "tgt_lang"):
            if (language := getattr(self, key)) is not None:
                require_language(f"{key} of a data source", language)
        require(
            self.tag is None or TAG.fullmatch(self.tag) is not None,
            f"tag={self.tag!r}: a tag is written <…> or >>…<<, without spaces, such as <2fr>",
        )
        require(
            self.tag is not None or self.tgt_lang is None,
            f"the data source with tgt_lang={self.tgt_lang} needs a tag, which tells the model to "
            f"translate into this language, such as tag: <2{self.tgt_lang}>",
        )
        own = SOURCE_FIELDS[self.kind]
        for name, value in asdict(self).items():
            if value and name not in own and name not in COMMON_FIELDS:
                owners = [kind for kind, names in SOURCE_FIELDS.items() if name in names]
                raise InputError(
                    f"{name} belongs to a source of kind {' or '.join(owners)}; "
                    f"{self} is of kind {self.kind}"
                )
            if name in own and not value and name in (*self.kind.split("+"), *_REQUIRED_OPTIONS):
                example = _REQUIRED_OPTIONS.get(name)
                hint = f", e.g. {name}: {example}" if example else ""
                raise InputError(f"the data source {self} needs {name}{hint}")
        for name in _COLUMNS if self.tsv else ():
            value = getattr(self, name)
            require(
                value is None or (value.isdecimal() and int(value) >= 1),
                f"{name}={value!r}: a TSV column is a number, starting at 1",
            )

    @property
    def kind(self) -> str:
        """A key of ``SOURCE_FIELDS``."""
        kinds = [kind for kind in SOURCE_FIELDS if any(map(vars(self).get, kind.split("+")))]
        require(
            len(kinds) == 1,
            f"a data source needs exactly one of {', '.join(SOURCE_FIELDS)}; "
            f"this one has: {', '.join(kinds) or 'none'}",
        )
        return kinds[0]

    @property
    def name(self) -> str:
        """The file (of the source side) or the dataset."""
        name: str = getattr(self, self.kind.split("+")[0])
        return self.kind if self.sample else name

    @property
    def short_name(self) -> str:
        """The name in reports, without the folders of this machine."""
        is_local = self.paths or self.name.startswith("/")  # perhaps missing here
        return Path(self.name).name if is_local else self.name

    @property
    def paths(self) -> dict[str, Path]:
        """Absolute paths of the local files and folders that are read, by field name."""
        paths = {}
        for name in () if self.kind in NOT_FILES else self.kind.split("+"):
            if value := getattr(self, name):
                path = expand_user(value)
                path = path.parent.resolve() / path.name  # of a link, not of its target
                # Not Path.is_dir, which raises inside another user's folder.
                if name != "hub" or os.path.isdir(path):  # noqa: PTH112
                    paths[name] = path
        return paths

    def columns(self, src_default: str, tgt_default: str) -> tuple[str, str]:
        """Source and target column, which must differ."""
        src, tgt = self.src_column or src_default, self.tgt_column or tgt_default
        if src == tgt:
            raise InputError(
                f"{self}: source and target are both column {src}; set src_column and tgt_column"
            )
        return src, tgt

    def with_absolute_paths(self) -> "SourceConfig":
        """The same source, whatever the working directory is."""
        return replace(self, **{key: str(path) for key, path in self.paths.items()})

    def __str__(self) -> str:
        parts = [f"{k}: {v}" for k, v in asdict(self).items() if v is not None]
        return "{" + ", ".join(parts) + "}"
