"""Progress: a line now and then where there is no terminal, a bar where there is one."""

import io
import logging
import sys

import pytest

from transformer_mt.data.store import progress as progress_module
from transformer_mt.data.store.progress import Progress


def test_without_a_terminal_a_line_now_and_then(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = 100.0
    monkeypatch.setattr(progress_module.time, "perf_counter", lambda: now)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with caplog.at_level(logging.INFO, logger="transformer_mt"):
        shown = Progress("encoded")
        for _ in range(100):
            now += 1.0
            shown.add(2_000)
        shown.close()
    rate = "2,000 pairs/s"
    counts = ["60,000", "120,000", "180,000"]
    assert caplog.messages == [f"  encoded: {count} pairs, {rate}" for count in counts]
    assert sys.stderr.getvalue() == ""


def test_on_a_terminal_a_bar(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stderr", Terminal())
    with caplog.at_level(logging.INFO, logger="transformer_mt"):
        shown = Progress("encoded")
        shown.add(2_000)
        shown.close()
    assert caplog.messages == []
    assert "encoded: 2.00k pairs" in sys.stderr.getvalue()
