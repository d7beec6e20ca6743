"""What mt-translate reports about its input."""

from pathlib import Path

import pytest
from support.model_folders import translate_lines, write_model

from transformer_mt.config import TranslateJob
from transformer_mt.jobs.line_processor import InputStats, LineProcessor


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "untrained"
    write_model(folder)
    return folder


def process(model: Path, *chunks: list[str]) -> tuple[list[str], InputStats]:
    """The output for chunks of a file, and what was unusual."""
    processor = LineProcessor(TranslateJob(model=str(model), device="cpu", engine="torch"))
    output, first_line, stats = b"", 1, InputStats()
    for chunk in chunks:
        output += processor.process_bytes([line.encode() for line in chunk], first_line, stats)
        first_line += len(chunk)
    return output.decode().splitlines(), stats


def test_the_space_mark_of_sentencepiece_is_a_space_and_reported(model: Path) -> None:
    lines, stats = process(model, ["the dog"], ["the▁dog", "the dog", "the▁dog"])
    assert lines == [translate_lines(model, ["the dog"])[0]] * 4
    assert stats == InputStats({"space_mark": 2}, {"space_mark": 2})
