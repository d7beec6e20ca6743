"""Signals that stop training."""

import signal
from concurrent.futures import ThreadPoolExecutor

from transformer_mt.training.interruptions import handle_signals


def test_outside_the_main_thread_no_handler_is_installed() -> None:
    """Python allows it in the main thread only; a notebook may train in another one."""

    def handlers() -> list[object]:
        return [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]

    def run() -> tuple[int | None, list[object]]:
        with handle_signals() as signals, signals.interrupting():
            return signals.received, handlers()

    before = handlers()
    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(run).result() == (None, before)
