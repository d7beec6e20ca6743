"""A model folder, and standard input of the commands."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.model_folders import convert, write_model


@pytest.fixture(scope="session")
def untrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder that no test changes."""
    folder = tmp_path_factory.mktemp("models") / "untrained"
    write_model(folder)
    convert(folder)
    return folder


@pytest.fixture
def standard_input(tmp_path: Path) -> Iterator[Callable[[bytes], None]]:
    """Has bytes come through standard input."""
    saved = os.dup(0)

    def put(data: bytes) -> None:
        path = tmp_path / "stdin"
        path.write_bytes(data)
        with path.open("rb") as stream:
            os.dup2(stream.fileno(), 0)

    yield put
    os.dup2(saved, 0)
    os.close(saved)
