"""Sources (text, TSV, JSONL, Parquet, the hub, test sets, the built-in sample) → sentence pairs."""

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from transformer_mt.config import SourceConfig
from transformer_mt.data.text.lines import open_binary, read_lines
from transformer_mt.data.text.sacrebleu_testsets import testset_files
from transformer_mt.errors import InputError

if TYPE_CHECKING:  # both are slow to import, and few runs need them
    import datasets
    import pyarrow as pa


class Pair(NamedTuple):
    """A sentence and its translation, each one line of text."""

    src: str
    tgt: str


def read_pairs(sources: Sequence[SourceConfig], *, src_lang: str, tgt_lang: str) -> Iterator[Pair]:
    """All pairs of all sources, one source after the other, as a stream.

    Nothing is filtered: blank lines and duplicates are pairs too.

    Raises:
        InputError: A source is missing, damaged or not of the form it should have.
    """
    for source in sources:
        yield from _read_source(source, src_lang, tgt_lang)


def _read_source(source: SourceConfig, src_lang: str, tgt_lang: str) -> Iterator[Pair]:
    defaults = ("1", "2") if source.tsv else (src_lang, tgt_lang)
    columns = (source.src_column or defaults[0], source.tgt_column or defaults[1])
    if columns[0] == columns[1]:
        raise InputError(
            f"{source}: source and target are both column {columns[0]}; "
            "set src_column and tgt_column"
        )
    match source:
        case SourceConfig(src=str(src), tgt=str(tgt)):
            return _read_text(src, tgt)
        case SourceConfig(tsv=str(path)):
            return _read_tsv(path, int(columns[0]), int(columns[1]))
        case SourceConfig(jsonl=str(path)):
            return _read_jsonl(path, columns)
        case SourceConfig(parquet=str(path)):
            return _read_parquet(path, columns)
        case SourceConfig(testset=str()):
            return _read_testset(source, src_lang, tgt_lang)
        case SourceConfig(hub=str()):
            return _read_hub(source, columns)
        case _:
            return _read_sample(source, src_lang, tgt_lang)


def _read_text(src_path: str, tgt_path: str) -> Iterator[Pair]:
    lines = zip_longest(read_lines(src_path), read_lines(tgt_path))
    for number, (src, tgt) in enumerate(lines, 1):
        if src is None or tgt is None:
            short, long = number - 1, number + sum(1 for _ in lines)
            counts = (short, long) if src is None else (long, short)
            raise InputError(
                f"{src_path} has {counts[0]} lines but {tgt_path} has {counts[1]}: "
                "line N of one must translate line N of the other"
            )
        yield Pair(src, tgt)


def _read_tsv(path: str, src_column: int, tgt_column: int) -> Iterator[Pair]:
    needed = max(src_column, tgt_column)
    for number, line in enumerate(read_lines(path), 1):
        fields = line.split("\t", needed)
        if len(fields) < needed:
            raise InputError(
                f"{path}, line {number}: has {len(fields)} tab-separated column(s), needs {needed}"
            )
        yield Pair(fields[src_column - 1], fields[tgt_column - 1])


def _read_jsonl(path: str, columns: tuple[str, str]) -> Iterator[Pair]:
    for number, line in enumerate(read_lines(path), 1):
        where = f"{path}, line {number}"
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{where}: not valid JSON ({error})") from error
        if not isinstance(record, dict):
            raise InputError(f"{where}: not a JSON object but {_kind(record)}")
        if isinstance(nested := record.get("translation"), dict):
            record |= {f"translation.{key}": value for key, value in nested.items()}
        src, tgt = (_find_column(column, record, where) for column in columns)
        yield Pair(_one_line(record[src], src, where), _one_line(record[tgt], tgt, where))


def _read_parquet(path: str, columns: tuple[str, str]) -> Iterator[Pair]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with open_binary(path) as stream:
        try:
            file = pq.ParquetFile(stream)
            src, tgt = _find_arrow_columns(columns, file.schema_arrow, path)
            batches = file.iter_batches(columns=[src, tgt])
            tables = (pa.Table.from_batches([batch]) for batch in batches)
            yield from _read_tables(tables, src, tgt, path)
        except (pa.ArrowException, OSError) as error:
            raise InputError(f"{path}: damaged, or no Parquet file ({_reason(error)})") from error


def _read_hub(source: SourceConfig, columns: tuple[str, str]) -> Iterator[Pair]:
    dataset = _load_dataset(source)
    src, tgt = _find_arrow_columns(columns, dataset.features.arrow_schema, str(source))
    tables = dataset.with_format("arrow").iter(batch_size=10_000)
    yield from _read_tables(tables, src, tgt, str(source))


def _load_dataset(source: SourceConfig) -> "datasets.Dataset":
    import datasets

    assert source.hub is not None
    folder = Path(source.hub)
    if folder.is_absolute() and not folder.is_dir():
        raise InputError(
            f"cannot load {source}: there is no such folder; it should hold a download of that "
            "dataset (data.mirror=FOLDER: one FOLDER/OWNER/NAME for each)"
        )
    # The files of a configuration lie in a folder of its name. Where that is all there is, datasets
    # would still ask for those of the first one named in the README.
    alone = source.config is not None and (folder / source.config).is_dir()
    place = {"data_dir": source.config} if alone else {"name": source.config}
    before = datasets.config.HF_HUB_OFFLINE
    if not folder.is_dir() and not _hub_answers(source.hub, source.revision):
        # datasets would try again and again; offline, it looks into its cache at once.
        datasets.config.HF_HUB_OFFLINE = True
    try:
        return datasets.load_dataset(
            source.hub, split=source.split, revision=source.revision, **place
        )
    except Exception as error:  # whatever it is, the dataset cannot be had
        generating = isinstance(error, datasets.exceptions.DatasetGenerationError)
        reason = _reason(error.__cause__ if generating and error.__cause__ else error)
        raise InputError(
            f"cannot load {source} ({reason}): check the connection and the names, or use local "
            "data: data=files, or hub: /path/to/a/downloaded/folder"
        ) from error
    finally:
        datasets.config.HF_HUB_OFFLINE = before


def _hub_answers(name: str, revision: str | None) -> bool:
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    try:
        HfApi().dataset_info(name, revision=revision, timeout=10)
    except HfHubHTTPError:
        return True  # if only to say no; datasets words that best
    except Exception:  # depends on the HTTP library, and that on the version of the hub's
        return False
    return True


def _read_testset(source: SourceConfig, src_lang: str, tgt_lang: str) -> Iterator[Pair]:
    assert source.testset is not None
    assert source.langs is not None
    if source.langs == f"{tgt_lang}-{src_lang}":
        raise InputError(
            f"{source} is translated the other way round than data.src_lang={src_lang}, "
            f"data.tgt_lang={tgt_lang}"
        )
    src, references = testset_files(source.testset, source.langs)
    return _read_text(str(src), str(references[0]))


def _read_tables(tables: Iterable["pa.Table"], src: str, tgt: str, name: str) -> Iterator[Pair]:
    done = 0
    for table in tables:
        flat = table.flatten()
        try:
            pairs = zip(flat[src].to_pylist(), flat[tgt].to_pylist(), strict=True)
        except UnicodeDecodeError as error:
            rows = f"rows {done + 1} to {done + len(flat)}"
            raise InputError(f"{name}, {rows}: not valid UTF-8 ({error.reason})") from error
        for row, pair in enumerate(pairs, done + 1):
            where = f"{name}, row {row}"
            yield Pair(_one_line(pair[0], src, where), _one_line(pair[1], tgt, where))
        done += len(flat)


def _find_arrow_columns(
    columns: tuple[str, str], schema: "pa.Schema", where: str
) -> tuple[str, str]:
    names = schema.empty_table().flatten().column_names
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"{where}: {names.count(name)} columns are called {name!r}")
    return _find_column(columns[0], names, where), _find_column(columns[1], names, where)


def _find_column(column: str, names: Collection[str], where: str) -> str:
    """The column itself, or the field of that name of a column ``translation``."""
    for name in (column, f"translation.{column}"):
        if name in names:
            return name
    raise InputError(
        f"{where}: no column {column!r}, only: {', '.join(names)}; set src_column and tgt_column"
    )


def _one_line(value: object, column: str, where: str) -> str:
    if not isinstance(value, str):
        raise InputError(f"{where}: {column} is {_kind(value)}, not text")
    try:
        value.encode()
    except UnicodeEncodeError as error:  # JSON can spell half a surrogate pair
        raise InputError(f"{where}: {column} is not valid Unicode ({error.reason})") from error
    if "\n" in value:
        return " ".join(part.removesuffix("\r") for part in value.strip("\r\n").split("\n"))
    return value


def _kind(value: object) -> str:
    return "null" if value is None else f"of type {type(value).__name__}"


def _reason(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]


def _read_sample(source: SourceConfig, src_lang: str, tgt_lang: str) -> Iterator[Pair]:
    from transformer_mt.data.text import sample

    assert source.sample is not None
    if {src_lang, tgt_lang} != {"en", "de"}:
        raise InputError(
            f"the built-in sample is in en and de; it has no {src_lang}-{tgt_lang}: "
            "set data.src_lang and data.tgt_lang"
        )
    for en, de in sample.sample_pairs(source.sample):
        yield Pair(en, de) if src_lang == "en" else Pair(de, en)


def fingerprint(source: SourceConfig) -> dict[str, Any]:
    """What tells this source's pairs from another's without reading them, as JSON values.

    A file counts as changed when its path, size or time of change does; a dataset of the hub when
    its names do, so without a ``revision`` new commits go unnoticed.
    """
    found: dict[str, Any] = {k: v for k, v in asdict(source).items() if v is not None}
    for key in found.keys() & {"src", "tgt", "tsv", "jsonl", "parquet"}:
        found[key] = _file_identity(Path(found[key]))
    if source.hub is not None and (folder := Path(source.hub)).is_dir():
        found["hub"] = [_file_identity(p) for p in sorted(folder.rglob("*")) if not p.is_dir()]
    if source.sample is not None:
        from transformer_mt.data.text import sample

        found["version"] = sample.VERSION
    return found


def _file_identity(path: Path) -> dict[str, Any]:
    try:
        status = path.stat()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    if not path.is_file():
        raise InputError(f"{path} is not a regular file; data is read more than once")
    return {"path": str(path.resolve()), "size": status.st_size, "mtime_ns": status.st_mtime_ns}
