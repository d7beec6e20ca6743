"""A stand-in for the package ``wandb`` that records calls, and fails on request."""

import sys
from unittest.mock import Mock

import pytest


def install(monkeypatch: pytest.MonkeyPatch, **errors: BaseException) -> Mock:
    """Makes a mock the package that is imported, until the end of the test.

    Args:
        monkeypatch: The test's.
        errors: What ``init``, ``log`` or ``finish`` raises.

    Returns:
        The package; ``init.return_value`` is the run.
    """
    package = Mock(Table=lambda columns, data: {"table": data})
    package.__spec__ = Mock()
    run = package.init.return_value
    run.offline, run.dir = False, "/tmp/run/files"
    run.log.side_effect, run.finish.side_effect = errors.get("log"), errors.get("finish")
    package.init.side_effect = errors.get("init")
    monkeypatch.setitem(sys.modules, "wandb", package)
    return package
