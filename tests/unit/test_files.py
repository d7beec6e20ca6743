"""Atomic output files, pipes and links; errors that name the file."""

import contextlib
import errno
import os
import stat
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


def test_leftovers_of_a_killed_process_do_not_prevent_a_folder(tmp_path: Path) -> None:
    """In containers, a later process often has the same number."""
    leftover = tmp_path / f".out.{os.getpid()}.tmp"
    leftover.mkdir()
    (leftover / "old").touch()
    with files.new_folder(tmp_path / "out") as folder:
        (folder / "new").touch()
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["new"]
    assert not leftover.exists()
