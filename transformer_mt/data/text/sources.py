"""Sentence pairs of data sources: files of lines, sacreBLEU's test sets, the built-in sample.

Arrow tables have readers of their own (``arrow_tables.py``). To add a kind of source: its fields in
``SourceConfig`` and ``SOURCE_FIELDS``, and its reader in ``SOURCE_READERS``.
"""

import json
import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from itertools import chain, zip_longest
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from transformer_mt.config import SourceConfig
from transformer_mt.config.languages import base_language
from transformer_mt.data.text.lines import is_blank, read_blocks, read_lines
from transformer_mt.data.text.tags import add_tag
from transformer_mt.errors import InputError, first_line
from transformer_mt.files import reading
from transformer_mt.protocols import Pair, Reader
from transformer_mt.registries import MTDATA, SOURCE_READERS

SAMPLE_VERSION = 2
"""Version of the built-in sample's text, part of its fingerprint."""

_SAMPLE = Path(__file__).with_name("sample_corpus")


def read_pairs(sources: Sequence[SourceConfig], src_lang: str, tgt_lang: str) -> Iterator[Pair]:
    """Streams all pairs of all sources, in order; source lines have the tag of their source.

    Nothing is filtered: blank lines and duplicates are pairs, too. The languages are those of
    sources that do not name others.
    """
    for source in sources:
        languages = source.src_lang or src_lang, source.tgt_lang or tgt_lang
        reader: Reader = resolve_name(SOURCE_READERS[source.kind])
        pairs = reader(source, *languages, read_blocks)
        if (first := next(pairs, None)) is None:
            raise InputError(f"{source} has no pairs: leave it out, or download it again")
        for pair in chain([first], pairs):
            yield Pair(add_tag(source.tag, pair.src), pair.tgt) if source.tag else pair


def fingerprint(source: SourceConfig) -> dict[str, Any]:
    """JSON values that identify the content of a source without reading it.

    A file has changed if its path, size or modification time has. A dataset on the hub is
    identified by its names only: without a ``revision``, new commits go unnoticed.
    """
    values: dict[str, Any] = {k: v for k, v in asdict(source).items() if v is not None}
    for key, path in source.paths.items():
        if path.is_dir():
            values[key] = [_file_identity(p) for p in sorted(path.rglob("*")) if not p.is_dir()]
        else:
            values[key] = _file_identity(path)
    if source.sample is not None:
        values["version"] = SAMPLE_VERSION
    return values


def _file_identity(path: Path) -> dict[str, Any]:
    with reading(path):
        status = path.stat()
    return {"path": str(path.resolve()), "size": status.st_size, "mtime_ns": status.st_mtime_ns}


def read_text(source: SourceConfig, *_: object) -> Iterator[Pair]:
    """Streams a pair of line-aligned text files."""
    assert source.src is not None
    assert source.tgt is not None
    return read_aligned(source.src, source.tgt)


def read_aligned(src_path: str, tgt_path: str) -> Iterator[Pair]:
    """Streams the pairs of two line-aligned text files."""
    lines = zip_longest(read_lines(src_path), read_lines(tgt_path))
    for number, (src, tgt) in enumerate(lines, 1):
        if src is None or tgt is None:
            shorter, longer = number - 1, number + sum(1 for _ in lines)
            counts = (shorter, longer) if src is None else (longer, shorter)
            raise InputError(
                f"{src_path} has {counts[0]} lines but {tgt_path} has {counts[1]}: "
                "line N of one must translate line N of the other"
            )
        yield Pair(src, tgt)


def read_tsv(source: SourceConfig, *_: object) -> Iterator[Pair]:
    """Streams two columns of a TSV file without a header; empty lines are skipped."""
    src, tgt = (int(column) for column in source.columns("1", "2"))
    needed, columns = max(src, tgt), 0
    for number, line in enumerate(read_lines(source.name), 1):
        if not line:
            continue
        values = line.split("\t")
        columns = columns or len(values)
        if len(values) < needed or len(values) != columns:
            expected = f"needs {needed}" if len(values) < needed else f"line 1 has {columns}"
            raise InputError(
                f"{source.name}, line {number}: has {len(values)} tab-separated column(s), "
                f"{expected}: correct or delete the line"
            )
        yield Pair(values[src - 1], values[tgt - 1])


def read_jsonl(source: SourceConfig, src_lang: str, tgt_lang: str, *_: object) -> Iterator[Pair]:
    """Streams two fields of a JSON-lines file."""
    columns = source.columns(src_lang, tgt_lang)
    with reading(source.name, remedy="a line is one JSON object: correct or delete it") as place:
        for place.line, line in enumerate(read_lines(source.name), 1):
            if is_blank(line):
                continue
            record, where = json.loads(line), str(place)
            if not isinstance(record, dict):
                raise ValueError(f"not a JSON object but {type_name(record)}")
            if isinstance(nested := record.get("translation"), dict):
                record |= {f"translation.{key}": value for key, value in nested.items()}
            src, tgt = (find_column(column, record, where) for column in columns)
            pair = Pair(column_text(record[src], src, where), column_text(record[tgt], tgt, where))
            "".join(pair).encode()  # JSON may have half of a character: "\ud83d"
            yield pair


def read_testset(source: SourceConfig, src_lang: str, tgt_lang: str, *_: object) -> Iterator[Pair]:
    """Streams a test set, with the first of its references."""
    assert source.testset is not None
    assert source.langs is not None
    languages = [base_language(src_lang), base_language(tgt_lang)]
    if list(map(base_language, source.langs.split("-"))) != languages:
        raise InputError(f"{source} does not translate from {src_lang} to {tgt_lang}")
    src, references = testset_files(source.testset, source.langs)
    return read_aligned(str(src), str(references[0]))


def testset_files(name: str, langs: str) -> tuple[Path, list[Path]]:
    """Source and references that ``sacrebleu -t name -l langs`` uses.

    Args:
        name: Name of the test set, e.g. ``wmt14/full``; ``sacrebleu --list`` shows all.
        langs: Source and target language, e.g. ``en-de``.
    """
    # Imported here: sacreBLEU is slow to import and takes its folder from the environment.
    from filelock import FileLock
    from sacrebleu.dataset import DATASETS
    from sacrebleu.utils import SACREBLEU_DIR

    if name not in DATASETS:
        raise InputError(f"testset={name}: sacreBLEU has no such test set (sacrebleu --list)")
    known = DATASETS[name].langpairs
    if langs not in known:
        raise InputError(f"testset={name} has no langs={langs}, only: {', '.join(sorted(known))}")
    folder = Path(SACREBLEU_DIR)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # sacreBLEU writes its text files in place; a folder on a read-only disk has them.
        writable = os.access(folder, os.W_OK)
        with FileLock(folder / "transformer_mt.lock") if writable else nullcontext():
            source = DATASETS[name].get_source_file(langs)
            references = DATASETS[name].get_reference_files(langs)
    except (Exception, SystemExit) as error:  # sacreBLEU exits if a download is damaged
        damaged = isinstance(error, SystemExit)
        reason = "damaged" if damaged else first_line(error)
        raise InputError(
            f"testset={name} is not on this machine and cannot be downloaded "
            f"({reason}): check the connection, or copy {folder / name} from a machine that has it "
            "(to use another folder, set SACREBLEU=FOLDER)"
        ) from error
    return Path(source), [Path(path) for path in references]


def read_mtdata(source: SourceConfig, src_lang: str, tgt_lang: str, *_: object) -> Iterator[Pair]:
    """Streams a corpus that the program mtdata downloads once."""
    return read_aligned(*resolve_name(MTDATA)(source, src_lang, tgt_lang))


def read_sample(source: SourceConfig, src_lang: str, tgt_lang: str, *_: object) -> Iterator[Pair]:
    """Streams a split of the built-in English–German sample, in either direction.

    The splits have 40,000 (``train``), 500 (``valid``) and 1,000 (``test``) pairs.
    It ships as compressed text, which the grammar in ``scripts/sample`` generated, so that
    everything runs offline.
    """
    assert source.sample is not None
    if {src_lang, tgt_lang} != {"en", "de"}:
        raise InputError(
            f"the built-in sample is in en and de; it has no {src_lang}-{tgt_lang}: "
            "set data.src_lang and data.tgt_lang"
        )
    for line in read_lines(_SAMPLE / f"{source.sample}.tsv.zst"):
        english, german = line.split("\t")
        yield Pair(english, german) if src_lang == "en" else Pair(german, english)


def find_column(column: str, names: Collection[str], where: str) -> str:
    """Name of an existing column: ``column``, or the field of that name of ``translation``."""
    for name in (column, f"translation.{column}"):
        if name in names:
            return name
    raise InputError(
        f"{where}: no column {column!r}, only: {', '.join(names)}; set src_column and tgt_column"
    )


def column_text(value: object, column: str, where: str) -> str:
    """A value of a column, which must be text, with line feeds replaced by spaces."""
    if not isinstance(value, str):
        message = "correct or delete it, or choose columns with src_column and tgt_column"
        raise InputError(f"{where}: {column} is {type_name(value)}, not text: {message}")
    if "\n" in value:
        return " ".join(part.removesuffix("\r") for part in value.strip("\r\n").split("\n"))
    return value


def type_name(value: object) -> str:
    """Type of a JSON or Arrow value, for messages."""
    return "null" if value is None else f"of type {type(value).__name__}"
