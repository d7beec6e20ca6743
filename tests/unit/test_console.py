"""Progress of long work, periodic log lines without a terminal, a bar on one; a full disk."""

import io
import logging
import re
import sys
from pathlib import Path

import pytest
import tqdm.std

from transformer_mt import console
from transformer_mt.console import log_to, progress_bar


@pytest.mark.parametrize("total", [None, 240_000])
def test_log_lines_without_a_terminal(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, total: int | None
) -> None:
    now = 100.0
    monkeypatch.setattr(tqdm.std, "time", lambda: now)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    caplog.set_level(logging.INFO, "transformer_mt")
    with progress_bar("pairs", "encoded", total=total) as progress:
        for _ in range(100):
            now += 1.0
            progress.update(2_000)
    of = " of 240,000" if total else ""
    for message, count, left in zip(
        caplog.messages, ("60,000", "120,000", "180,000"), ("01:30", "01:00", "00:30"), strict=True
    ):
        rest = f", {left} left" if total else ""
        assert message == f"encoded: {count}{of} pairs, 2,000 pairs/s{rest}"
    assert sys.stderr.getvalue() == ""


def test_a_bar_on_a_terminal_and_log_lines_above_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with log_to(tmp_path / "log"), progress_bar("pairs", "encoded") as progress:
        progress.update(2_000)
        console.log.info("a note")
        progress.update(4_000)
    shown = sys.stderr.getvalue()
    assert re.search(r"\ra note\n.*\rencoded: 6,000 pairs, [\d,]+ pairs/s *\n$", shown, re.DOTALL)
    assert (tmp_path / "log").read_text().endswith(" a note\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_log_on_a_full_disk_is_one_warning(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "train.log").symlink_to("/dev/full")
    with log_to(tmp_path / "train.log"):
        for text in ("one", "two"):
            console.log.info(text)
    one, warning, two = capfd.readouterr().err.splitlines()
    assert (one, two) == ("one", "two")
    assert warning.startswith("warning: cannot write ")
    assert warning.endswith("train.log: [Errno 28] No space left on device")
