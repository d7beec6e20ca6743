"""The training step on a GPU, as far as it can be known without one.

PyTorch traces the step and generates its code for an H100 that is not there (``h100.py``).
"""

import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from support.paths import ROOT

FOLDER = Path(__file__).parent
COMPILER = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")

pytestmark = [
    pytest.mark.skipif(
        find_spec("triton") is None,
        reason="Triton is not installed (PyTorch's CUDA builds have it)",
    ),
    pytest.mark.skipif(sys.platform != "linux", reason="Triton needs Linux"),
]
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler")


def run(program: str, *arguments: object) -> Any:
    """The JSON that a program of this folder prints."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", FOLDER / program, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def guard(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``guard.cpp``, compiled for this PyTorch."""
    library, root = tmp_path_factory.mktemp("guard") / "guard.so", Path(torch.__file__).parent
    command = [str(COMPILER), "-shared", "-fPIC", "-std=c++20", "-O0", str(FOLDER / "guard.cpp")]
    command += [f"-I{root}/include", f"-L{root}/lib", f"-Wl,-rpath,{root}/lib", "-lc10"]
    subprocess.run([*command, "-ltorch_cpu", "-o", str(library)], check=True)
    return library


TERAFLOP = 3.949
"""Of the products of an update with 1 + 1 layers."""
SAVED_GIGABYTES = 1.09
"""That its forward pass keeps for the backward pass: ``default_max_tokens`` depends on it."""
GIGABYTES = 20.42 if torch.__version__.startswith(("2.11.", "2.12.")) else 18.67
"""That its kernels read and write: PyTorch 2.11 pads the gradient of the logits in a kernel of its
own. A change that is meant to change these figures changes them here."""


@needs_compiler
def test_the_step_is_one_graph_for_any_number_of_pairs_and_does_no_more_than_before(
    guard: Path, tmp_path: Path
) -> None:
    found = run("compiled_step.py", guard, tmp_path)
    assert found["stats"]["unique_graphs"] == 1
    assert not found["breaks"]
    forward, backward = found["graphs"]
    assert (forward["backward"], backward["backward"]) == (False, True)
    moved, computed = (
        sum(graph[key] for graph in found["graphs"]) for key in ("bytes", "product_flop")
    )
    assert moved / 1e9 == pytest.approx(GIGABYTES, rel=0.05)
    assert computed / 1e12 == pytest.approx(TERAFLOP, rel=0.05)
    assert found["saved_bytes"] / 1e9 == pytest.approx(SAVED_GIGABYTES, rel=0.05)


@needs_compiler
@pytest.mark.slow
def test_layers_and_loss_of_several_ranks_are_compiled_separately(
    guard: Path, tmp_path: Path
) -> None:
    apart = run("compiled_step.py", guard, tmp_path, 2, 8)
    assert apart["stats"]["unique_graphs"] == 3  # encoder layer, decoder layer, loss
    assert not apart["breaks"]
