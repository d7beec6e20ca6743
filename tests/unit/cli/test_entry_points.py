"""Ctrl-C at the entry points, while the libraries load."""

import signal
import subprocess
import sys

import pytest

from transformer_mt.cli import entry_points

SLOW_IMPORT = """
import os, signal, sys
from transformer_mt.cli import entry_points

def slow(name):
    try:
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:  # as some libraries do when they are imported
        pass
    sys.exit("went on")

entry_points.import_module = slow
"""


@pytest.mark.parametrize(
    ("command", "program"),
    [("train", "mt-train"), ("translate", "mt-translate"), ("evaluate", "mt-eval")],
)
def test_ctrl_c_during_imports(command: str, program: str) -> None:
    code = f"{SLOW_IMPORT}entry_points.{command}()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, f"{program}: interrupted\n")


def test_ignored_signals_stay_ignored() -> None:
    """As under nohup, or in the background of a script."""
    code = f"{SLOW_IMPORT}signal.signal(signal.SIGINT, signal.SIG_IGN); entry_points.train()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "went on\n")


def test_entry_points_do_not_import_torch() -> None:
    code = "import sys; from transformer_mt.cli import entry_points; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_the_command_gets_its_signals_back(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    class Module:
        @staticmethod
        def main() -> None:
            seen.append(signal.getsignal(signal.SIGINT))

    monkeypatch.setattr(entry_points, "import_module", lambda name: Module)
    entry_points.translate()
    assert seen == [signal.getsignal(signal.SIGINT)]
