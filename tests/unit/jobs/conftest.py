"""A model folder, and standard input of the commands."""

import os
import threading
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
def standard_input() -> Iterator[Callable[[bytes], None]]:
    """Sends bytes through a pipe, where ``cat |`` would."""
    saved = os.dup(0)

    def put(data: bytes) -> None:
        reading, writing = os.pipe()
        os.dup2(reading, 0)
        os.close(reading)

        def write() -> None:
            with os.fdopen(writing, "wb") as stream:
                stream.write(data)

        threading.Thread(target=write, daemon=True).start()

    yield put
    os.dup2(saved, 0)
    os.close(saved)
