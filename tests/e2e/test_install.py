"""The built wheel: its content, and its commands in an environment without the checkout."""

import configparser
import email
import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest
from support.paths import ROOT

import transformer_mt

COMMANDS = ["mt-train", "mt-translate", "mt-eval", "mt-export"]


def run(*arguments: str | Path, cwd: Path) -> str:
    """The stdout of a command that must succeed; its environment does not refer to the checkout."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(arguments, cwd=cwd, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, f"{arguments}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the source archive, so that both must be complete."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT, cwd=folder)
    assert len(list(folder.glob("transformer_mt-*.tar.gz"))) == 1
    (wheel,) = folder.glob("transformer_mt-*.whl")
    return wheel


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ``bin`` of an environment with the wheel, and after it on the path the tests' packages.

    A .pth file adds these packages; Python does not read the .pth files in their folders, so an
    editable install of the checkout is not visible.
    """
    folder = tmp_path_factory.mktemp("installed")
    bin_ = folder / "env/bin"
    run(sys.executable, "-m", "venv", "--without-pip", folder / "env", cwd=folder)
    pip = [sys.executable, "-m", "pip", "--python", bin_ / "python", "install", "--quiet"]
    run(*pip, "--no-index", "--no-deps", wheel, cwd=folder)
    (site,) = folder.glob("env/lib/python*/site-packages")
    ours = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (site / "packages_of_the_tests.pth").write_text("\n".join(sorted(ours)) + "\n")
    return bin_


def test_wheel_is_complete(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (info,) = {name.split("/")[0] for name in names if ".dist-info/" in name}
        metadata = email.message_from_bytes(archive.read(f"{info}/METADATA"))
        scripts = configparser.ConfigParser()
        scripts.read_string(archive.read(f"{info}/entry_points.txt").decode())

    def files(folder: str, pattern: str) -> set[str]:
        return {path.relative_to(ROOT).as_posix() for path in (ROOT / folder).glob(pattern)}

    configs = {f"transformer_mt/{name}" for name in files("configs", "**/*.yaml")}
    templates = files("transformer_mt", "**/templates/*")
    assert "transformer_mt/configs/train.yaml" in configs
    assert len(templates) > 4
    assert names >= configs | templates | files("transformer_mt", "**/*.py")
    assert "transformer_mt/py.typed" in names
    assert {name.split("/")[0] for name in names} == {"transformer_mt", info}

    assert metadata["Name"] == "transformer-mt"
    assert metadata["Version"] == transformer_mt.__version__
    assert f"{info}/licenses/LICENSE" in names
    assert sorted(scripts["console_scripts"]) == sorted(COMMANDS)


def test_installed_commands_help_and_compose_and_leave_no_files(
    installed: Path, tmp_path: Path
) -> None:
    code = "import transformer_mt.config as c; print(c.__file__, c.CONFIG_DIR, sep='\\n')"
    for path in run(installed / "python", "-c", code, cwd=tmp_path).splitlines():
        assert Path(path).resolve().is_relative_to(installed.parent.resolve())
    for command in COMMANDS:
        assert command in run(installed / command, "--help", cwd=tmp_path)
    out = run(installed / "mt-train", "--cfg", "job", "experiment=quickstart", cwd=tmp_path)
    assert "d_model:" in out
    assert "run_dir:" in out
    assert list(tmp_path.iterdir()) == []
