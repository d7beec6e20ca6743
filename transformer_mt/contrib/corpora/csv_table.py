"""CSV files, such as a spreadsheet exports."""

import codecs
import csv
from collections.abc import Iterator
from itertools import chain

from transformer_mt import InputError
from transformer_mt.config import SourceConfig
from transformer_mt.contrib.corpora.tmx import one_line
from transformer_mt.protocols import Pair, ReadBlocks


def read_csv(
    source: SourceConfig, src_lang: str, tgt_lang: str, read_blocks: ReadBlocks
) -> Iterator[Pair]:
    """Streams two columns of a CSV file, which its first row names.

    Values are separated by what the first line has most of: commas, semicolons or tabs.
    """
    path, line = source.name, 1
    lines = _lines(read_blocks(path))
    try:
        header = next(lines)
        separator = max(",;\t", key=header.count)
        rows = csv.reader(chain([header], lines), delimiter=separator, strict=True)
        names = next(row for row in rows if row[:1] != ["sep="])  # which Excel reads
        for column in (columns := source.columns(src_lang, tgt_lang)):
            if names.count(column) != 1:
                raise InputError(
                    f"{path}: {names.count(column) or 'no'} columns are named {column!r}; its "
                    f"columns: {', '.join(names)}; set src_column and tgt_column"
                )
        src, tgt = map(names.index, columns)
        line = rows.line_num + 1
        for row in rows:
            if row and len(row) != len(names):
                raise InputError(
                    f"{path}, line {line}: has {len(row)} value(s), the first row has {len(names)}:"
                    " correct or delete the row"
                )
            if row:  # not of a blank line
                yield Pair(one_line(row[src]), one_line(row[tgt]))
            line = rows.line_num + 1
    except UnicodeDecodeError:
        raise InputError(f"{path}: not valid UTF-8: save it as CSV in UTF-8") from None
    except csv.Error as error:
        raise InputError(f"{path}, line {line}: {error}: correct the quotes of this row") from None


def _lines(blocks: Iterator[bytes]) -> Iterator[str]:
    """The lines of a file, with their ends."""
    rest = ""
    for text in codecs.iterdecode(blocks, "utf-8-sig"):
        *lines, rest = (rest + text).split("\n")
        yield from (f"{line}\n" for line in lines)
    yield rest
