"""``scripts/quickstart`` and ``scripts/test``: their errors, and how they recover from a kill.

Each test works on a copy of the files that the scripts need, so the .venv of the checkout stays
untouched. Nothing is installed: the script stops before that, or a stub records the calls of pip.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.paths import ROOT
from support.sample import sample_pairs

CLOSED_PORT = "http://127.0.0.1:9/simple"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The part of a checkout that the scripts use before they install."""
    copy = tmp_path / "a checkout"
    shutil.copytree(ROOT / "scripts", copy / "scripts")
    shutil.copy(ROOT / "pyproject.toml", copy)
    return copy


@pytest.fixture
def commands(tmp_path: Path) -> Path:
    """The first folder on PATH; its df reports plenty of space."""
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
    removed = ("PIP_", "MT_", "PYTHON", "VIRTUAL_ENV")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(removed)}
    path = f"{commands}{os.pathsep}{inherited['PATH']}"
    environment = {**inherited, "PYTHON": sys.executable, "PATH": path, **env}
    done = subprocess.run(
        arguments, cwd=cwd, env=environment, capture_output=True, text=True, timeout=120
    )
    return done.returncode, done.stdout, done.stderr


def failure(script: str, checkout: Path, commands: Path, **env: str) -> str:
    """The error of a script that must fail with a single error line."""
    code, stdout, stderr = run([str(checkout / "scripts" / script)], checkout, commands, **env)
    assert (code, stdout) == (1, "")
    *progress, last = stderr.splitlines()
    prefix = f"scripts/{script}: error: "
    assert last.startswith(prefix)
    assert not [line for line in progress if "error" in line.lower() or "Traceback" in line]
    return last.removeprefix(prefix)


@pytest.mark.parametrize("script", ["quickstart", "test"])
def test_python_variable_that_does_not_exist(script: str, checkout: Path, commands: Path) -> None:
    line = failure(script, checkout, commands, PYTHON="/nonexistent")
    assert line == "PYTHON=/nonexistent is not a working Python 3.11 or newer"
    assert not (checkout / ".venv").exists()


def test_no_python_is_new_enough(checkout: Path, commands: Path) -> None:
    for name in ("python3.13", "python3.12", "python3.11"):
        command(commands / name, "echo 'pyenv: command not found' >&2; exit 127")
    command(commands / "python3", "exit 0")  # as Python 3.8 does: no output
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


def test_pyenv_shims_are_skipped(checkout: Path, commands: Path) -> None:
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
    assert CLOSED_PORT in log.read_text()


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


def test_venv_is_created_once_and_recreated_after_a_kill(checkout: Path, commands: Path) -> None:
    command(commands / "python", QUICK_PYTHON.format(python=f'"{sys.executable}"'))

    def prepare(content: str, **env: str) -> tuple[int, str]:
        arguments = ["bash", "-c", PREPARE, "scripts/quickstart", content]
        code, stdout, _ = run(arguments, checkout, commands, PYTHON=str(commands / "python"), **env)
        return code, stdout.strip()

    kept = checkout / ".venv" / "kept"
    pip = "pip --upgrade pip hatchling editables"
    install = f"{pip}\npip --no-build-isolation --editable {checkout}"

    assert prepare("run", KILLED="yes") == (-9, pip)
    kept.touch()
    assert prepare("run") == (0, install)
    assert not kept.exists(), "an incomplete environment was taken for a complete one"

    kept.touch()
    assert prepare("run") == (0, "")
    group = f"--group {checkout}/pyproject.toml:dev"
    assert prepare("dev") == (0, f"{install} {group}")
    assert prepare("run") == (0, ""), "the development environment includes the run environment"
    with (checkout / "pyproject.toml").open("a") as file:
        file.write("# a change\n")
    assert prepare("run") == (0, install)
    assert kept.exists(), "a change to the project does not need a new environment"

    assert prepare("run", MT_TORCH_VERSION="2.12.0") == (0, install)
    assert not kept.exists(), "installing torch over an older one leaves parts of it"


@pytest.mark.parametrize(
    ("settings", "calls"),
    [
        ("torch_build=default", ["torch==9.9"]),
        ("torch_index=URL", ["torch==9.9 --extra-index-url URL"]),
        ("reachable() { true; }", ["torch==9.9+cpu --extra-index-url CPU"]),
        # PyTorch's index is unreachable, but pip has a mirror with the CPU build
        ("has=9.9+cpu", ["torch==9.9+cpu"]),
        ("has=9.9", ["torch==9.9+cpu", "torch==9.9"]),
        # reachable, but the download fails: do not fall back to gigabytes of CUDA
        ("reachable() { true; }; has=no", ["torch==9.9+cpu --extra-index-url CPU", "failed"]),
    ],
)
def test_index_and_build_of_torch(
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
