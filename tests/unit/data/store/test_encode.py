"""Progress of passes over the corpus: periodic log lines without a terminal, a bar on one."""

import io
import logging
import sys

import pytest

from transformer_mt.data.store import encode
from transformer_mt.data.store.encode import track_progress


def test_log_lines_without_a_terminal(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = 100.0
    monkeypatch.setattr(encode.time, "perf_counter", lambda: now)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with caplog.at_level(logging.INFO, logger="transformer_mt"):
        for item in track_progress(range(100), "encoded", lambda _: 2_000):
            assert item == now - 100
            now += 1.0
    rate = "2,000 pairs/s"
    counts = ["60,000", "120,000", "180,000"]
    assert caplog.messages == [f"  encoded: {count} pairs, {rate}" for count in counts]
    assert sys.stderr.getvalue() == ""


def test_bar_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stderr", Terminal())
    with caplog.at_level(logging.INFO, logger="transformer_mt"):
        assert list(track_progress(["item"], "encoded", lambda _: 2_000)) == ["item"]
    assert caplog.messages == []
    assert "encoded" in sys.stderr.getvalue()
    assert "2.00k" in sys.stderr.getvalue()
