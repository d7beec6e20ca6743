"""The scripts: their errors, and how they recover from a kill.

Each test works on a copy of the files that the scripts need, so the .venv of the checkout stays
untouched. Nothing is installed: the script stops before that, or a stub records the calls of pip.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.paths import ROOT


def df(*, free_kib: int) -> str:
    return f"echo Filesystem 1024-blocks Used Available; echo /dev/x 999 999 {free_kib} 0% /"


class Checkout:
    """The part of a checkout that the scripts use before they install; a df with much space."""

    def __init__(self, folder: Path):
        self.path, self.commands = folder / "a checkout", folder / "commands"
        shutil.copytree(ROOT / "scripts", self.path / "scripts")
        shutil.copy(ROOT / "pyproject.toml", self.path)
        self.commands.mkdir()
        self.add("df", df(free_kib=100 * 2**20))

    def add(self, command: str, body: str) -> str:
        """Puts a command before the others on PATH; returns its path."""
        path = self.commands / command
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
        return str(path)

    def run(self, *arguments: str, **env: str) -> tuple[int, str, str]:
        removed = ("PIP_", "MT_", "PYTHON", "VIRTUAL_ENV")
        inherited = {name: v for name, v in os.environ.items() if not name.startswith(removed)}
        path = f"{self.commands}{os.pathsep}{inherited['PATH']}"
        environment = {**inherited, "PYTHON": sys.executable, "PATH": path, **env}
        done = subprocess.run(
            arguments, cwd=self.path, env=environment, capture_output=True, text=True, timeout=120
        )
        return done.returncode, done.stdout, done.stderr

    def failure(self, script: str, *arguments: str, **env: str) -> str:
        """The error of a script that must fail with a single error line."""
        code, stdout, stderr = self.run(str(self.path / "scripts" / script), *arguments, **env)
        assert (code, stdout) == (1, "")
        *progress, last = stderr.splitlines()
        prefix = f"scripts/{script}: error: "
        assert last.startswith(prefix)
        assert not [line for line in progress if "error" in line.lower() or "Traceback" in line]
        return last.removeprefix(prefix)


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


SHIM = "echo 'pyenv: command not found' >&2; exit 127"
HIDE = "import sys; sys.modules['ensurepip'] = None; exec(sys.argv[1])"


@pytest.mark.parametrize(
    ("command", "commands", "python", "message"),
    [
        ("quickstart", {}, "/nonexistent", "PYTHON=/nonexistent is not a working Python"),
        (
            "quickstart",  # Python 3.8 has no output
            {"python3.13": SHIM, "python3.12": SHIM, "python3.11": SHIM, "python3": "exit 0"},
            "",
            "no Python 3.11 or newer among python3.13 python3.12 python3.11 python3;.*PYTHON=",
        ),
        (
            "quickstart",
            {"python3.12": f'exec "{sys.executable}" -c "{HIDE}" "$2"'},
            "python3.12",
            ".*no venv module.*apt install python3.12-venv",
        ),
        (
            "quickstart",
            {"df": df(free_kib=300 * 1024)},
            sys.executable,
            "not enough disk space.*300 MB free in .*/a checkout",
        ),
        ("reproduce_multi30k seeds=1;2", {}, "", "seeds=1;2 is not a list like 1,2,3"),
        ("reproduce_wmt14 huge", {}, "", "'huge' is neither base nor big"),
        ("reproduce_wmt14 run_dir=x", {}, "", "run_dir is set by this script; use RUNS=FOLDER"),
    ],
)
def test_what_stops_a_script(
    command: str, commands: dict[str, str], python: str, message: str, checkout: Checkout
) -> None:
    for name, body in commands.items():
        checkout.add(name, body)
    assert re.match(message, checkout.failure(*command.split(), PYTHON=python))
    assert {path.name for path in checkout.path.iterdir()} == {"scripts", "pyproject.toml"}


PREPARE = """
set -euo pipefail
. scripts/lib.sh
install_torch() { :; }
pip_install() {
  echo "pip $*"
  if [[ -n ${KILLED:-} ]]; then kill -9 $$; fi
  (cd "$venv"/lib/python3*/site-packages && touch torch.py)
}
prepare_venv "$1"
"""
# Creates environments quickly, with an empty module in place of pip.
QUICK_PYTHON = """
if [ "$1 $2" != "-m venv" ]; then exec {python} "$@"; fi
{python} -m venv --without-pip "$3" && cd "$3"/lib/python3*/site-packages && touch pip.py
"""


def test_venv_is_created_once_and_recreated_after_a_kill(checkout: Checkout) -> None:
    python = checkout.add("python", QUICK_PYTHON.format(python=f'"{sys.executable}"'))

    def prepare(content: str, **env: str) -> tuple[int, str]:
        arguments = ["bash", "-c", PREPARE, "scripts/quickstart", content]
        code, stdout, _ = checkout.run(*arguments, PYTHON=python, **env)
        return code, stdout.strip()

    kept = checkout.path / ".venv" / "kept"
    pip = "pip --upgrade pip hatchling editables"
    install = f"{pip}\npip --no-build-isolation --editable {checkout.path}"

    assert prepare("run", KILLED="yes") == (-9, pip)
    kept.touch()
    assert prepare("run") == (0, install)
    assert not kept.exists(), "an incomplete environment was taken for a complete one"

    kept.touch()
    assert prepare("run") == (0, "")
    group = f"--group {checkout.path}/pyproject.toml:dev"
    assert prepare("dev") == (0, f"{install} {group}")
    assert prepare("run") == (0, ""), "the development environment includes the run environment"
    with (checkout.path / "pyproject.toml").open("a") as file:
        file.write("# a change\n")
    assert prepare("run") == (0, install)
    assert kept.exists(), "a change to the project does not need a new environment"

    assert prepare("run", MT_TORCH_VERSION="2.12.0") == (0, install)
    assert not kept.exists(), "installing torch over an older one leaves parts of it"
