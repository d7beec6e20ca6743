"""Commands in this process, with a stand-in for what they run."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from transformer_mt.cli import main as cli
from transformer_mt.config import Command

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Runs a command in an empty folder, and asserts that the folder stays empty."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HYDRA_FULL_ERROR", "0")

    def command(name: Command, *argv: str, job: Any = lambda job: None) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["mt", *argv])
        monkeypatch.setitem(cli.RUN, name, job)
        status = 0
        try:
            cli.main(name)
        except SystemExit as stop:
            status = int(stop.code or 0)
        written = [path for path in tmp_path.rglob("*") if not path.is_dir()]
        assert [path for path in written if path.name != "multirun.yaml"] == []
        return status, *capfd.readouterr()

    return command
