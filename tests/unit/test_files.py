"""Atomic output files, pipes and links; errors that name the file."""

import contextlib
import errno
import json
import multiprocessing
import os
import signal
import stat
import zlib
from pathlib import Path

import pytest

from transformer_mt import files
from transformer_mt.errors import InputError, format_os_error


def test_pipe_is_written_to_and_kept(tmp_path: Path) -> None:
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)  # for which a writer need not wait
    for path in (pipe, link):
        with files.output(path) as place:
            place.write_text("text")
        assert os.read(reader, 99) == b"text"
    os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert sorted(tmp_path.iterdir()) == [link, pipe]


def test_target_of_a_link_is_written_atomically(tmp_path: Path) -> None:
    link, target = tmp_path / "link", tmp_path / "folder" / "file"
    target.parent.mkdir()
    link.symlink_to(target)
    for text in ("made", "replaced"):
        with files.output(link) as place:
            place.write_text(text)
        assert target.read_text() == text
    with contextlib.suppress(InterruptedError), files.output(link) as place:
        place.write_text("half")
        raise InterruptedError
    assert target.read_text() == "replaced"
    assert link.is_symlink()
    assert list(target.parent.iterdir()) == [target]


def test_a_full_disk_is_reported_with_the_file(tmp_path: Path) -> None:
    def write() -> None:
        with files.atomic(tmp_path / "out.de"):
            raise OSError(errno.ENOSPC, "No space left on device")  # like a write

    with pytest.raises(OSError, match="No space left") as caught:
        write()
    assert format_os_error(caught.value) == f"No space left on device: {tmp_path / 'out.de'}"


def test_processes_with_one_number_write_a_file_apart(tmp_path: Path) -> None:
    """As the first processes of two containers, which share a file system."""
    path = tmp_path / "file"
    with files.atomic(path) as first:
        first.write_text("first")
        with files.atomic(path) as second:
            second.write_text("second")
        assert path.read_text() == "second"
    assert path.read_text() == "first"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("fails", [False, True])
def test_a_folder_is_replaced_as_a_whole(tmp_path: Path, fails: bool) -> None:
    with files.new_folder(tmp_path / "a/out") as folder:
        (folder / "old").touch()
    with (
        contextlib.suppress(InterruptedError),
        files.new_folder(tmp_path / "a/out", replace=True) as folder,
    ):
        (folder / "new").touch()
        assert (tmp_path / "a/out/old").exists()
        if fails:
            raise InterruptedError
    assert [path.name for path in tmp_path.rglob("*")] == ["a", "out", "old" if fails else "new"]


def build_until_killed(path: Path) -> None:
    with files.new_folder(path) as folder:
        (folder / "new").touch()
        os.kill(os.getpid(), signal.SIGKILL)


def test_only_what_a_killed_process_has_left_is_deleted(tmp_path: Path) -> None:
    """Not files whose names look like those of temporary files, nor those of another output."""
    path, other = tmp_path / ".o[u]t", tmp_path / "other"
    for killed in (path, other):
        process = multiprocessing.get_context("fork").Process(
            target=build_until_killed, args=(killed,)
        )
        process.start()
        process.join(60)
        assert process.exitcode == -signal.SIGKILL
    (left_by_other,) = tmp_path.glob(".other*")
    mine = {tmp_path / name for name in (".tmp", "..o[u]t.0123abcd.tmp", "..o[u]t.mt-tmp-notes")}
    for name in mine:
        name.mkdir()
    with files.new_folder(path) as folder:
        (folder / "new").touch()
    assert set(tmp_path.iterdir()) == {path, left_by_other, *mine}


@pytest.mark.parametrize("replace", [False, True])
def test_what_is_not_ours_to_replace_is_kept(tmp_path: Path, replace: bool) -> None:
    """A full folder without ``replace``; the target of a link, whoever made it."""
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "mine").touch()
    path = kept
    if replace:
        path = tmp_path / "link"
        path.symlink_to(kept)
    with pytest.raises(OSError), files.new_folder(path, replace=replace) as folder:  # noqa: PT011
        (folder / "new").touch()
    assert sorted(p.name for p in tmp_path.rglob("*")) == sorted({"kept", "mine", path.name})


def test_json_that_must_be_an_object(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("[1]")
    assert files.read_json(path) == [1]
    with pytest.raises(InputError, match=r"a\.json is damaged: it is not an object; copy it again"):
        files.read_json(path, {"a": int}, remedy="copy it again")


def test_an_error_names_the_file_and_the_line_that_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"a": 1}\n{"a": \n\xff\n')
    with pytest.raises(InputError) as caught:
        read_as_json_lines(path)
    assert str(caught.value).startswith(f"{path}, line 2 is damaged: Expecting value")
    with pytest.raises(InputError, match=r"a.jsonl is not valid UTF-8 \(byte 0xFF at position 17"):
        read_as_text(path)


def read_as_json_lines(path: Path) -> None:
    with files.reading(path) as place, path.open("rb") as file:
        for place.line, line in enumerate(file, 1):
            json.loads(line)


def read_as_text(path: Path) -> str:
    with files.reading(path):
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
        pytest.raises(InputError, match=r"x is damaged: Error -3 .*; copy it again$"),
        files.reading("x", zlib.error, remedy="copy it again"),
    ):
        zlib.decompress(b"no")
    with pytest.raises(zlib.error), files.reading("x"):
        zlib.decompress(b"no")
    for error in (InputError("as it is"), KeyError("a bug")):
        with pytest.raises(type(error), match=str(error)), files.reading("x"):
            raise error
