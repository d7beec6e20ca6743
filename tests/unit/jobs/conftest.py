"""A model folder, standard input of the commands, and what mt-translate prints."""

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.model_folders import convert, write_model

from transformer_mt.cli import main as commands
from transformer_mt.config import TranslateJob
from transformer_mt.jobs import line_processor


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


@pytest.fixture
def translated(
    untrained: Path,
    tmp_path: Path,
    standard_input: Callable[[bytes], None],
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., tuple[str, str]]:
    """Output and messages for bytes; a stream gets the same as a file job of several chunks."""
    monkeypatch.setitem(line_processor.CHUNK_LINES, "cpu", 2)

    def near(number: str) -> Any:
        return pytest.approx(float(number), rel=1e-3)

    def run(data: bytes, **settings: Any) -> tuple[str, str]:
        standard_input(data)
        job = TranslateJob(**{"model": str(untrained), "device": "cpu", **settings})
        commands.translate(job)
        out, err = capfd.readouterr()
        source, target = tmp_path / "in", tmp_path / "out"
        source.write_bytes(data)
        commands.translate(replace(job, input=str(source), output=str(target)))
        assert capfd.readouterr() == ("", err)
        lines = target.read_bytes().decode().split("\n")
        for one, other in zip(lines, out.split("\n"), strict=True):
            # Numbers are the same but for rounding: batches are of other sizes.
            assert one == other or json.loads(one, parse_float=near) == json.loads(other)
        return out, err

    return run
