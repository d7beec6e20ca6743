"""Signals that stop training."""

import logging
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.polling import wait_until

from transformer_mt.training.interruptions import Signals


def test_outside_the_main_thread_no_handler_is_installed() -> None:
    """Python allows it in the main thread only; a notebook may train in another one."""

    def handlers() -> list[object]:
        return [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]

    def run() -> tuple[int | None, list[object]]:
        with Signals() as signals, signals.interrupting():
            return signals.received, handlers()

    before = handlers()
    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(run).result() == (None, before)


@pytest.mark.parametrize(("has_ranks", "then"), [(False, signal.SIG_DFL), (True, signal.SIG_IGN)])
def test_a_second_signal_ends_a_single_process_only(has_ranks: bool, then: signal.Handlers) -> None:
    """A worker may get the same signal from Slurm and from its launcher."""
    before = signal.getsignal(signal.SIGTERM)
    with Signals(has_ranks) as signals:
        assert signals.received is None
        signal.raise_signal(signal.SIGTERM)
        assert (signals.received, signal.getsignal(signal.SIGTERM)) == (signal.SIGTERM, then)
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_signal_is_answered_at_once(caplog: pytest.LogCaptureFixture) -> None:
    """Before the update has ended."""
    caplog.set_level(logging.INFO, "transformer_mt")
    with Signals():
        signal.raise_signal(signal.SIGINT)
        wait_until(lambda: "SIGINT: stopping after this update" in caplog.text)
