"""What holds for every test."""

import logging
import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings

# What a shell starts with & ignores Ctrl-C, and so would all that these tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)


# How long an example takes says nothing here: other processes share the cores.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    """Commands that run in this process set up logging, to streams that pytest then closes."""
    loggers = [logging.getLogger(name) for name in (None, "transformer_mt")]
    before = [(logger.handlers[:], logger.level, logger.propagate) for logger in loggers]
    yield
    for logger, (handlers, level, propagate) in zip(loggers, before, strict=True):
        logger.handlers, logger.propagate = handlers, propagate
        logger.setLevel(level)
