"""The layouts of windows that the ranks of a run share."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from transformer_mt.data.batching import layout_cache
from transformer_mt.data.batching.layout_cache import LayoutCache, WindowLayout, remove_leftovers

LAYOUT = WindowLayout(np.arange(5, dtype=np.uint8), np.array([0, 2, 5]), np.array([[0, 1]]))


def must_not_compute() -> WindowLayout:
    raise AssertionError("computed again")


def assert_equal(layout: WindowLayout) -> None:
    for ours, expected in zip(layout, LAYOUT, strict=True):
        assert ours.dtype == expected.dtype
        np.testing.assert_array_equal(ours, expected)


def test_a_layout_is_computed_once(tmp_path: Path) -> None:
    assert_equal(LayoutCache(tmp_path, "key").get(3, lambda: LAYOUT))
    other = LayoutCache(tmp_path, "key")
    assert_equal(other.get(3, must_not_compute))
    other.remove(3)
    with pytest.raises(AssertionError, match="computed again"):
        other.get(3, must_not_compute)
    other.clear()
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("damage", [lambda c: c[:-30], lambda c: b"", lambda c: c[:-1] + b"x"])
def test_a_damaged_file_is_written_again(tmp_path: Path, damage: object) -> None:
    LayoutCache(tmp_path, "key").get(0, lambda: LAYOUT)
    (file,) = tmp_path.glob("windows-key/*.npz")
    content = bytearray(file.read_bytes())
    content[content.index(LAYOUT.order.tobytes())] ^= 1
    file.write_bytes(damage(bytes(content)))  # type: ignore[operator]
    assert_equal(LayoutCache(tmp_path, "key").get(0, lambda: LAYOUT))
    assert_equal(LayoutCache(tmp_path, "key").get(0, must_not_compute))


def test_without_a_folder_every_rank_computes(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for _ in range(2):
        assert_equal(LayoutCache(tmp_path / "file", "key").get(0, lambda: LAYOUT))


@pytest.fixture
def locking_rank(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Another process that holds the lock of the first layout."""
    program = """
import sys, time
from filelock import FileLock
FileLock(sys.argv[1]).acquire()
print("locked", flush=True)
time.sleep(600)
"""
    (tmp_path / "windows-key").mkdir()
    command = [sys.executable, "-c", program, str(tmp_path / "windows-key" / "000000.lock")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as rank:
        assert rank.stdout
        assert rank.stdout.readline() == b"locked\n"
        yield rank
        rank.kill()


def test_the_lock_of_a_killed_rank_is_released(
    tmp_path: Path, locking_rank: subprocess.Popen[bytes]
) -> None:
    locking_rank.kill()
    assert_equal(LayoutCache(tmp_path, "key").get(0, lambda: LAYOUT))


@pytest.mark.usefixtures("locking_rank")
def test_a_rank_that_hangs_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout_cache, "_TIMEOUT", 0.1)
    assert_equal(LayoutCache(tmp_path, "key").get(0, lambda: LAYOUT))


def test_layouts_of_killed_runs_are_removed(tmp_path: Path) -> None:
    LayoutCache(tmp_path, "key").get(0, lambda: LAYOUT)
    (tmp_path / "src.tokens").touch()
    remove_leftovers(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["src.tokens"]
