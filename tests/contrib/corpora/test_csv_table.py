"""CSV files: quotes, line feeds, separators, named columns, damage."""

import csv
import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.errors import input_error

from transformer_mt.config import SourceConfig
from transformer_mt.data.text.sources import read_pairs


def write(path: Path, text: str, **columns: str) -> SourceConfig:
    path.write_bytes(text.encode())
    return SourceConfig(csv=str(path), **columns)


def read(source: SourceConfig) -> list[tuple[str, str]]:
    return list(read_pairs([source], src_lang="en", tgt_lang="de"))


values = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n\0"), max_size=9)


@given(
    st.lists(st.tuples(values, values), min_size=1),
    st.sampled_from(",;\t"),
    st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
)
def test_what_the_csv_module_writes(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[tuple[str, str]],
    separator: str,
    quoting: int,
) -> None:
    path = tmp_path_factory.mktemp("csv") / "a.csv"
    with path.open("w", encoding="utf-8-sig", newline="") as file:
        writer = csv.writer(file, delimiter=separator, quoting=quoting)
        writer.writerows([("id", "de", "en"), *((i, de, en) for i, (en, de) in enumerate(rows))])
    assert read(SourceConfig(csv=str(path))) == rows


LIBREOFFICE = Path(__file__).with_name("libreoffice.csv").read_text(encoding="utf-8")
GNUMERIC = Path(__file__).with_name("gnumeric.csv").read_text(encoding="utf-8")
"""What LibreOffice 7.4, with semicolons, and ssconvert of Gnumeric 1.12 write of one sheet."""
EXCEL = "\ufeff" + LIBREOFFICE.replace("\n", "\r\n")
"""Excel also writes a byte order mark and carriage returns."""


@pytest.mark.parametrize("text", [LIBREOFFICE, GNUMERIC, EXCEL, f"\ufeffsep=;\n{LIBREOFFICE}"])
def test_files_of_spreadsheets(tmp_path: Path, text: str) -> None:
    expected = [
        ('He said "no". Then; he left, gladly.', "Er sagte »nein«, dann ging er."),
        ("One, two", "Eins; zwei"),
        (" spaced ", "Äpfel €5,00"),
    ]
    assert read(write(tmp_path / "a.csv", text)) == expected
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(text.encode()))
    source = SourceConfig(csv=str(tmp_path / "a.csv.gz"), src_column="de", tgt_column="id")
    assert read(source) == [(de, str(i)) for i, (_, de) in enumerate(expected, 1)]


def test_blank_lines_and_cells(tmp_path: Path) -> None:
    source = write(tmp_path / "a.csv", "x,en,de\n\n,,\n1,a,b\n")
    assert read(source) == [("", ""), ("a", "b")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no columns are named 'en'"),
        ("src,tgt\na,b", "no columns are named 'en'; its columns: src, tgt; set src_column and"),
        ("en,de,de\na,b,c", "2 columns are named 'de'"),
        ("en,de\n", "has no pairs"),
        ('en,de\n"a\nb",c\nd,e,f\n', "a.csv, line 4: has 3 value.s., the first row has 2"),
        ('en,de\na,b\n"c,d\ne,f\n', "a.csv, line 3: unexpected end of data: correct the quotes"),
        ('en,de\n"a" b,c\n', "a.csv, line 2: ',' expected after '\"'"),
        ("en,de\ra,b\r", "a.csv, line 1: new-line character seen in unquoted field"),
    ],
)
def test_broken_files(tmp_path: Path, text: str, message: str) -> None:
    with input_error(message):
        read(write(tmp_path / "a.csv", text))


def test_another_encoding(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes("en,de\nb,ä".encode("latin-1"))
    with input_error(r"a\.csv: not valid UTF-8: save it as CSV in UTF-8"):
        read(SourceConfig(csv=str(tmp_path / "a.csv")))
