"""The layouts of windows that the ranks of a run share."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from transformer_mt.data.batching.layout_cache import Layout, LayoutCache

LAYOUT = Layout(np.arange(5, dtype=np.uint8), np.array([0, 2, 5]), np.array([[0, 1]]))


def must_not_compute() -> Layout:
    raise AssertionError("computed again")


def assert_equal(layout: Layout) -> None:
    for ours, expected in zip(layout, LAYOUT, strict=True):
        assert ours.dtype == expected.dtype
        np.testing.assert_array_equal(ours, expected)


def test_a_layout_is_computed_once(tmp_path: Path) -> None:
    assert_equal(LayoutCache(tmp_path / "new").get(3, lambda: LAYOUT))
    other = LayoutCache(tmp_path / "new")
    assert_equal(other.get(3, must_not_compute))
    other.remove(3)
    with pytest.raises(AssertionError, match="computed again"):
        other.get(3, must_not_compute)
    other.clear()
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("damage", [lambda c: c[:-30], lambda c: b"", lambda c: c[:-1] + b"x"])
def test_a_damaged_file_is_written_again(tmp_path: Path, damage: object) -> None:
    LayoutCache(tmp_path).get(0, lambda: LAYOUT)
    (file,) = tmp_path.glob("*.npz")
    content = bytearray(file.read_bytes())
    content[content.index(LAYOUT.order.tobytes())] ^= 1
    file.write_bytes(damage(bytes(content)))  # type: ignore[operator]
    assert_equal(LayoutCache(tmp_path).get(0, lambda: LAYOUT))
    assert_equal(LayoutCache(tmp_path).get(0, must_not_compute))


def test_without_a_folder_every_rank_computes(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for _ in range(2):
        assert_equal(LayoutCache(tmp_path / "file" / "folder").get(0, lambda: LAYOUT))


def test_the_lock_of_a_killed_rank_is_released(tmp_path: Path) -> None:
    program = """
import sys, time
from filelock import FileLock
FileLock(sys.argv[1]).acquire()
print("locked", flush=True)
time.sleep(600)
"""
    command = [sys.executable, "-c", program, str(tmp_path / "000000.lock")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=dict(os.environ)) as rank:
        assert rank.stdout
        assert rank.stdout.readline() == b"locked\n"
        rank.kill()
    assert_equal(LayoutCache(tmp_path).get(0, lambda: LAYOUT))
