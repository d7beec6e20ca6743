"""Atomic output files, pipes and links; errors that name the file."""

import contextlib
import errno
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from transformer_mt import files
from transformer_mt.errors import format_os_error


def read_aside(pipe: Path) -> tuple[threading.Thread, list[bytes]]:
    """Reads a pipe in a thread."""
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append(pipe.read_bytes()), daemon=True)
    reader.start()
    return reader, found


def test_pipe_is_written_to_and_kept(tmp_path: Path) -> None:
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    for path in (pipe, link):
        reader, found = read_aside(pipe)
        with files.output(path) as place:
            place.write_text("text")
        reader.join(10)
        assert found == [b"text"]
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


@pytest.mark.parametrize("pipe", [False, True])
def test_full_disk_error_names_the_file(tmp_path: Path, pipe: bool) -> None:
    path = tmp_path / "file"
    if pipe:
        os.mkfifo(path)
    with pytest.raises(OSError, match=str(path)), files.output(path):
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_is_reported_with_the_file(tmp_path: Path) -> None:
    def write() -> None:
        with files.atomic(tmp_path / "out.de"):
            raise OSError(errno.ENOSPC, "No space left on device")  # like a write

    with pytest.raises(OSError, match="No space left") as caught:
        write()
    assert format_os_error(caught.value) == f"No space left on device: {tmp_path / 'out.de'}"


def test_without_a_home_folder_none_is_created(monkeypatch: pytest.MonkeyPatch) -> None:
    """``~`` would become a folder of that name."""
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # as it is for unknown users
    with pytest.raises(OSError, match="home folder") as caught:
        files.expand_user("~/.cache/transformer_mt")
    assert "~/.cache" in format_os_error(caught.value)
    assert files.expand_user("~old.de") == Path("~old.de")
    assert files.expand_user("./~") == Path("~")  # a file of that name, not the home folder


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


def test_a_folder_is_written_by_one_process_at_a_time(tmp_path: Path) -> None:
    with files.new_folder(tmp_path / "out") as folder:
        (folder / "file").touch()
        with (
            pytest.raises(OSError, match="another process"),
            files.new_folder(tmp_path / "out"),
        ):
            pass
        assert (folder / "file").exists()
    assert [path.name for path in tmp_path.rglob("*")] == ["out", "file"]


def test_leftovers_of_a_killed_process_are_removed(tmp_path: Path) -> None:
    program = """
import os, sys
from pathlib import Path
from transformer_mt import files
with files.new_folder(Path(sys.argv[1])) as folder:
    (folder / "old").touch()
    os.kill(os.getpid(), 9)
"""
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "out")], check=False)
    assert len(list(tmp_path.iterdir())) == 2  # its folder and its lock
    with files.new_folder(tmp_path / "out") as folder:
        (folder / "new").touch()
    assert [path.name for path in tmp_path.rglob("*")] == ["out", "new"]
