"""Fixtures of tests that train."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.training_runs import Running, Start, arguments


@pytest.fixture
def train(corpus: Path, tmp_path: Path) -> Iterator[Start]:
    """Starts ``mt-train`` on the corpus, in ``run_dir``."""
    started: list[Running] = []

    def start(run_dir: Path, *more: str, folder: Path = corpus) -> Running:
        out = tmp_path / f"output{len(started)}"
        started.append(Running("train", arguments(folder, run_dir, *more), out))
        return started[-1]

    yield start
    for running in started:
        running.process.kill()
