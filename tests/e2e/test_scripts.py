"""The two scripts of the README: how they fail, and how they come back from being killed.

Each test works on a copy of what the scripts need, so that the checkout's .venv is not touched, and
installs nothing: either the script stops before, or pip is replaced by a line that writes down how
it was called.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.paths import ROOT

from transformer_mt.data.text.sources.sample import sample_pairs

CLOSED_PORT = "http://127.0.0.1:9/simple"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout as far as the scripts look before they install."""
    copy = tmp_path / "a checkout"
    shutil.copytree(ROOT / "scripts", copy / "scripts")
    shutil.copy(ROOT / "pyproject.toml", copy)
    return copy


@pytest.fixture
def commands(tmp_path: Path) -> Path:
    """A folder at the head of PATH; its df says that there is plenty of space."""
    folder = tmp_path / "commands"
    folder.mkdir()
    command(folder / "df", df(free_kib=100 * 2**20))
    return folder


def command(path: Path, body: str) -> None:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


def df(*, free_kib: int) -> str:
    return f"echo Filesystem 1024-blocks Used Available; echo /dev/x 999 999 {free_kib} 0% /"


def run(arguments: list[str], cwd: Path, commands: Path, **env: str) -> tuple[int, str, str]:
    ours = ("PIP_", "MT_", "PYTHON", "VIRTUAL_ENV")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    path = f"{commands}{os.pathsep}{inherited['PATH']}"
    everything = {**inherited, "PYTHON": sys.executable, "PATH": path, **env}
    done = subprocess.run(
        arguments, cwd=cwd, env=everything, capture_output=True, text=True, timeout=120
    )
    return done.returncode, done.stdout, done.stderr


def failure(script: str, checkout: Path, commands: Path, **env: str) -> str:
    """The one error line of a script that must fail, and that shows no other trouble."""
    code, stdout, stderr = run([str(checkout / "scripts" / script)], checkout, commands, **env)
    assert (code, stdout) == (1, "")
    *progress, last = stderr.splitlines()
    prefix = f"scripts/{script}: error: "
    assert last.startswith(prefix)
    assert not [line for line in progress if "error" in line.lower() or "Traceback" in line]
    return last.removeprefix(prefix)


@pytest.mark.parametrize("script", ["quickstart", "test"])
def test_named_python_that_is_none(script: str, checkout: Path, commands: Path) -> None:
    line = failure(script, checkout, commands, PYTHON="/nonexistent")
    assert line == "PYTHON=/nonexistent is not a working Python 3.11 or newer"
    assert not (checkout / ".venv").exists()


def test_no_python_that_is_new_enough(checkout: Path, commands: Path) -> None:
    for name in ("python3.13", "python3.12", "python3.11"):
        command(commands / name, "echo 'pyenv: command not found' >&2; exit 127")
    command(commands / "python3", "exit 0")  # what 3.8 does with the question: nothing
    line = failure("quickstart", checkout, commands, PYTHON="")
    assert line.startswith(
        "no Python 3.11 or newer among python3.13 python3.12 python3.11 python3;"
    )
    assert "PYTHON=" in line


def test_python_without_venv_module(checkout: Path, commands: Path) -> None:
    hide = "import sys; sys.modules['ensurepip'] = None; exec(sys.argv[1])"
    command(commands / "python3.12", f'exec "{sys.executable}" -c "{hide}" "$2"')
    line = failure("quickstart", checkout, commands, PYTHON=str(commands / "python3.12"))
    assert "no venv module" in line
    assert "apt install python3.12-venv" in line


def test_pyenv_shim_is_passed_over(checkout: Path, commands: Path) -> None:
    command(commands / "python3.13", "echo 'pyenv: command not found' >&2; exit 127")
    command(commands / "python3.12", f'exec "{sys.executable}" "$@"')
    code, stdout, _ = run(
        ["bash", "-c", ". scripts/lib.sh; find_python"], checkout, commands, PYTHON=""
    )
    assert (code, stdout) == (0, f"{commands}/python3.12\n")


def test_too_little_disk(checkout: Path, commands: Path) -> None:
    command(commands / "df", df(free_kib=300 * 1024))
    line = failure("quickstart", checkout, commands)
    assert line.startswith("not enough disk space")
    assert f"300 MB free in {checkout}" in line
    assert not (checkout / ".venv").exists()


def test_no_package_index(checkout: Path, commands: Path) -> None:
    line = failure(
        "test",
        checkout,
        commands,
        PIP_CONFIG_FILE=os.devnull,
        PIP_INDEX_URL=CLOSED_PORT,
        PIP_RETRIES="1",
        MT_TORCH_INDEX=CLOSED_PORT,
    )
    assert line.startswith("pip could not install the packages (no connection to the package index")
    log = checkout / ".venv" / "install.log"
    assert line.endswith(str(log))
    assert "torch" in log.read_text()


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
# Makes environments in no time: with an empty module in the place of pip.
QUICK_PYTHON = """
if [ "$1 $2" != "-m venv" ]; then exec {python} "$@"; fi
{python} -m venv --without-pip "$3" && cd "$3"/lib/python3*/site-packages && touch pip.py
"""


def test_venv_is_made_once_and_made_anew_after_a_kill(checkout: Path, commands: Path) -> None:
    command(commands / "python", QUICK_PYTHON.format(python=f'"{sys.executable}"'))

    def prepare(content: str, **env: str) -> tuple[int, str]:
        arguments = ["bash", "-c", PREPARE, "scripts/quickstart", content]
        code, stdout, _ = run(arguments, checkout, commands, PYTHON=str(commands / "python"), **env)
        return code, stdout.strip()

    kept = checkout / ".venv" / "kept"
    install = f"pip --editable {checkout}"

    assert prepare("run", KILLED="yes") == (-9, install)
    kept.touch()
    assert prepare("run") == (0, install)
    assert not kept.exists(), "a half-made environment was taken for a whole one"

    kept.touch()
    assert prepare("run") == (0, "")
    assert prepare("dev") == (0, f"{install}[dev]")
    assert prepare("run") == (0, ""), "what the checks need includes what running needs"
    with (checkout / "pyproject.toml").open("a") as file:
        file.write("# a change\n")
    assert prepare("run") == (0, install)
    assert kept.exists(), "a change of the project needs no new environment"

    assert prepare("run", MT_TORCH_VERSION="2.12.0") == (0, install)
    assert not kept.exists(), "another torch over the old one leaves parts of it"


@pytest.mark.parametrize(
    ("settings", "calls"),
    [
        ("torch_build=default", ["torch==9.9"]),
        ("torch_index=URL", ["torch==9.9 --extra-index-url URL"]),
        ("reachable() { true; }", ["torch==9.9+cpu --extra-index-url CPU"]),
        # no way to PyTorch's own index, but pip is set up with a mirror that has the CPU build
        ("has=9.9+cpu", ["torch==9.9+cpu"]),
        ("has=9.9", ["torch==9.9+cpu", "torch==9.9"]),
        # reachable, but it breaks off: no detour over gigabytes of CUDA
        ("reachable() { true; }; has=no", ["torch==9.9+cpu --extra-index-url CPU", "failed"]),
    ],
)
def test_where_torch_is_looked_for(
    settings: str, calls: list[str], checkout: Path, commands: Path
) -> None:
    program = f"""
set -euo pipefail
. scripts/lib.sh
torch_build=cpu torch_cpu_index=CPU has=
reachable() {{ false; }}
pip_install() {{ echo "$*"; [[ $1 == "torch==${{has:-${{1#torch==}}}}" ]]; }}
{settings}
install_torch || echo failed
"""
    code, stdout, _ = run(["bash", "-c", program], checkout, commands, MT_TORCH_VERSION="9.9")
    assert (code, stdout.splitlines()) == (0, calls)


def test_quickstart_translates_unseen_sentences() -> None:
    script = (ROOT / "scripts" / "quickstart").read_text()
    sentences = script.split("sentences='")[1].split("'")[0].splitlines()
    seen = {english for english, _ in sample_pairs("train")}
    words = {word for english in seen for word in english.rstrip(".?!").split()}
    assert len(sentences) >= 5
    for sentence in sentences:
        assert sentence not in seen
        assert words.issuperset(sentence.rstrip(".?!").split()), sentence
