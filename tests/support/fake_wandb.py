"""A stand-in for the package ``wandb`` that records calls, and fails on request."""

import sys
from unittest.mock import Mock

import pytest


def install(monkeypatch: pytest.MonkeyPatch, **errors: BaseException) -> Mock:
    """Makes a mock the package that is imported; its ``init.return_value`` is the run.

    ``init``, ``log`` or ``finish`` raises the error of its name.
    """
    package = Mock(Table=lambda columns, data: {"table": data})
    package.__spec__ = Mock()
    run = package.init.return_value
    run.offline, run.dir = False, "/tmp/run/files"
    run.log.side_effect, run.finish.side_effect = errors.get("log"), errors.get("finish")
    package.init.side_effect = errors.get("init")
    monkeypatch.setitem(sys.modules, "wandb", package)
    return package
