"""Readers of Arrow tables: Parquet files and datasets of the Hugging Face hub."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformer_mt.config import SourceConfig
from transformer_mt.data.text.lines import open_binary
from transformer_mt.data.text.sources import column_text, find_column
from transformer_mt.errors import InputError, first_line
from transformer_mt.files import reading
from transformer_mt.protocols import Pair

if TYPE_CHECKING:  # slow to import, and few runs need them
    import datasets
    import pyarrow as pa


def read_parquet(source: SourceConfig, src_lang: str, tgt_lang: str, *_: object) -> Iterator[Pair]:
    """Streams two columns of a Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path, columns = source.name, source.columns(src_lang, tgt_lang)
    remedy = "copy or download it again, or name a Parquet file"
    with open_binary(path) as stream, reading(path, pa.ArrowException, remedy=remedy):
        file = pq.ParquetFile(stream)
        src, tgt = _find_columns(columns, file.schema_arrow, path)
        batches = file.iter_batches(columns=[src, tgt])
        tables = (pa.Table.from_batches([batch]) for batch in batches)
        yield from _read_tables(tables, src, tgt, path)


def read_hub(source: SourceConfig, src_lang: str, tgt_lang: str, *_: object) -> Iterator[Pair]:
    """Streams two columns of a Hugging Face dataset."""
    columns = source.columns(src_lang, tgt_lang)
    dataset = _load_dataset(source)
    src, tgt = _find_columns(columns, dataset.features.arrow_schema, str(source))
    tables = dataset.with_format("arrow").iter(batch_size=10_000)
    yield from _read_tables(tables, src, tgt, str(source))


def _load_dataset(source: SourceConfig) -> "datasets.Dataset":
    """A split of a dataset: of the Hub, or of a folder with a copy of one."""
    import datasets

    folder = Path(source.name)
    if folder.is_absolute() and not folder.is_dir():
        raise InputError(
            f"cannot load {source}: there is no such folder; it should hold a download of that "
            "dataset (data.mirror=FOLDER: one FOLDER/OWNER/NAME for each)"
        )
    name, selection = source.name, dict[str, Any](name=source.config)
    # A configuration has a folder of its name. Where the others were not downloaded, datasets would
    # still require the files of the first configuration in the README.
    if source.config is not None and (folder / source.config).is_dir():
        selection = {"data_dir": source.config}
    elif (folder / "state.json").exists():  # of a single split, as Dataset.save_to_disk writes it
        split = str(source.split).partition("[")[0]
        name, selection = "arrow", {"data_files": {split: f"{folder}/data-*.arrow"}}
    try:
        return datasets.load_dataset(
            name, split=source.split, revision=source.revision, **selection
        )
    except Exception as error:  # whatever it is, the dataset is not available
        generating = isinstance(error, datasets.exceptions.DatasetGenerationError)
        reason = first_line(error.__cause__ if generating and error.__cause__ else error)
        raise InputError(
            f"cannot load {source} ({reason}): check the connection and the names, or read a "
            "downloaded copy: data.mirror=FOLDER reads the folder FOLDER/ORG/NAME"
        ) from error


def _read_tables(tables: Iterable["pa.Table"], src: str, tgt: str, name: str) -> Iterator[Pair]:
    row = 0
    for table in tables:
        flat = table.flatten()
        for pair in zip(flat[src].to_pylist(), flat[tgt].to_pylist(), strict=True):
            row += 1
            where = f"{name}, row {row}"
            yield Pair(column_text(pair[0], src, where), column_text(pair[1], tgt, where))


def _find_columns(columns: tuple[str, str], schema: "pa.Schema", where: str) -> tuple[str, str]:
    names = schema.empty_table().flatten().column_names
    return find_column(columns[0], names, where), find_column(columns[1], names, where)
