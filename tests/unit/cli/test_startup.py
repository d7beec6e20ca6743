"""Ctrl-C at the entry points, while the libraries load."""

import importlib
import subprocess
import sys

from transformer_mt.config import JOBS

INTERRUPTED_IMPORT = """
import os, signal, sys
from transformer_mt.cli import main

class SlowImport:
    def find_spec(self, name, path=None, target=None):
        os.kill(os.getpid(), signal.SIGINT)
        sys.exit("not interrupted")

sys.meta_path.insert(0, SlowImport())
"""


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)


def test_ctrl_c_during_imports() -> None:
    done = python("-c", f"{INTERRUPTED_IMPORT}main.mt_eval()")
    assert (done.returncode, done.stderr) == (130, "mt-eval: interrupted\n")


def test_help_version_configuration_and_completion_need_no_torch() -> None:
    flags = [(command, "--help") for command in JOBS]
    flags += [("train", flag) for flag in ("--version", "--cfg=job", "-sc install=bash")]
    code = "import sys; from transformer_mt.cli import main\n"
    for command, flag in flags:
        code += f"sys.argv[1:] = {flag.split()}; main.main('{command}')\n"
        code += f"assert 'torch' not in sys.modules, {(command, flag)}\n"
    done = python("-c", code)
    assert done.returncode == 0, done.stderr


def test_commands_by_name_of_the_package() -> None:
    """Where the console scripts are not on PATH, and under torchrun."""
    module = ("-m", "transformer_mt.cli")
    assert python(*module, "evaluate", "--version").stdout.startswith("mt-eval ")
    for arguments in ([], ["model=x"]):
        done = python(*module, *arguments)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith("usage: python -m transformer_mt.cli train|translate|")


def test_the_server_of_forked_commands_imports_all_that_it_names() -> None:
    """It goes on without a module that is missing, and without those after it."""
    importlib.import_module("support.fork_server_modules")
