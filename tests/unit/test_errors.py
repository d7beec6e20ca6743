"""The context in which files are read, and of optional packages: one line that names the place."""

import json
import zlib
from importlib import import_module
from pathlib import Path

import pytest

from transformer_mt.errors import InputError, requiring
from transformer_mt.files import reading


def test_an_error_names_the_file_and_the_line_that_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"a": 1}\n{"a": \n\xff\n')
    with pytest.raises(InputError) as caught:
        read_as_json_lines(path)
    assert str(caught.value).startswith(f"{path}, line 2 is damaged: Expecting value")
    with pytest.raises(InputError, match=r"a.jsonl is not valid UTF-8 \(byte 0xFF at position 17"):
        read_as_text(path)


def read_as_json_lines(path: Path) -> None:
    with reading(path) as place, path.open("rb") as file:
        for place.line, line in enumerate(file, 1):
            json.loads(line)


def read_as_text(path: Path) -> str:
    with reading(path):
        return path.read_text(encoding="utf-8")


def test_a_file_that_cannot_be_opened_is_named_once(tmp_path: Path) -> None:
    for path, reason in (
        (tmp_path / "missing", "No such file or directory"),
        (tmp_path, "Is a directory"),
    ):
        with pytest.raises(InputError) as caught:
            read_as_text(path)
        assert str(caught.value) == f"cannot read {path}: {reason}"


def test_errors_of_a_library_are_damage_only_where_they_are_expected() -> None:
    with (
        pytest.raises(InputError, match=r"x, line 3 is damaged: Error -3 .*; copy it again$"),
        reading("x", zlib.error, remedy="copy it again", line=3),
    ):
        zlib.decompress(b"no")
    with pytest.raises(zlib.error), reading("x"):
        zlib.decompress(b"no")
    for error in (InputError("as it is"), KeyError("a bug")):
        with pytest.raises(type(error), match=str(error)), reading("x"):
            raise error


def test_a_missing_package_is_named_with_what_needs_it() -> None:
    message = "engine=fast needs fast_mt: pip install fast_mt"
    with pytest.raises(InputError, match=message), requiring("fast_mt", "engine=fast"):
        import_module("fast_mt")
