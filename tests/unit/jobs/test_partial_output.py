"""From file to file: the same output however often the job is interrupted."""

import io
import logging
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.model_folders import TEXT, translate_lines
from support.paths import ROOT

from transformer_mt import compose
from transformer_mt.cli import main as commands
from transformer_mt.config import TranslateJob
from transformer_mt.errors import InputError
from transformer_mt.jobs import translate as translate_job
from transformer_mt.jobs.line_processor import CHUNK_LINES, InputStats, LineProcessor
from transformer_mt.jobs.translate import translate


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "transformer_mt")
    monkeypatch.setitem(CHUNK_LINES, "cpu", 10)


class UpperCase(LineProcessor):
    """Processes lines to upper case, and records the number of each first line."""

    def __init__(self, fail_at: int | None = None, error: BaseException | None = None):
        self.firsts: list[int] = []
        self.fail_at, self.error = fail_at, error
        self.settings = {"a": 1}
        self._aligned, self.stats = None, InputStats()
        self.chunk_lines = CHUNK_LINES["cpu"]

    def output_settings(self) -> dict[str, Any]:
        return self.settings

    def log_input_stats(self) -> None:
        pass

    def process_bytes(self, raw: Sequence[bytes]) -> bytes:
        first_line = self.stats.lines + 1
        if first_line == self.fail_at and self.error is not None:
            raise self.error
        self.firsts.append(first_line)
        for number, line in enumerate(raw, first_line):
            if b"odd" in line:
                self.stats.add("undecodable", number)
        self.stats.lines += len(raw)
        return b"".join(line.upper() + b"\n" for line in raw)


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    source = tmp_path / "in"
    source.write_text("".join(f"line {i}\n" for i in range(1, 36)))
    return source, tmp_path / "out"


def run(files: tuple[Path, Path], process: UpperCase) -> InputStats:
    job = TranslateJob(model="m", input=str(files[0]), output=str(files[1]))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(translate_job, "LineProcessor", lambda *_: process)
        return translate(job)


def interrupt(files: tuple[Path, Path], at: int = 21) -> None:
    with pytest.raises(ZeroDivisionError):
        run(files, UpperCase(at, ZeroDivisionError()))


def finish(files: tuple[Path, Path]) -> list[int]:
    """Runs the job to its end, which leaves only the whole output; returns the first lines of the
    chunks that it processes.
    """
    source, target = files
    run(files, process := UpperCase())
    assert target.read_text() == source.read_text().upper()
    assert sorted(target.parent.iterdir()) == [source, target]
    return process.firsts


@pytest.mark.parametrize("lines", [0, 10, 35])
def test_all_lines_in_order(
    files: tuple[Path, Path], caplog: pytest.LogCaptureFixture, lines: int
) -> None:
    files[0].write_text("".join(f"line {i}\n" for i in range(lines)))
    assert finish(files) == list(range(1, lines + 1, 10))
    assert caplog.messages == []


def test_resumes_after_an_interruption(
    files: tuple[Path, Path], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, target = files
    target.write_text("yesterday's\n")
    with pytest.raises(KeyboardInterrupt):
        run(files, UpperCase(21, KeyboardInterrupt()))
    assert f"20 of 35 lines are kept in {target}.mt-partial" in caplog.messages[0]
    assert target.read_text() == "yesterday's\n"
    caplog.clear()
    monkeypatch.setitem(CHUNK_LINES, "cpu", 25)  # as if it resumed on a GPU
    assert finish(files) == [21]
    assert caplog.messages == ["resuming: 20 of 35 lines are done"]
    caplog.clear()
    assert finish(files) == [1, 26]  # a finished job starts from the beginning
    assert caplog.messages == []


@pytest.mark.parametrize("changed", ["input", "order", "a"])
def test_the_output_of_a_different_job_is_kept(files: tuple[Path, Path], changed: str) -> None:
    source, target = files
    interrupt(files)
    parts = target.with_name("out.mt-partial")
    kept = (parts / "output").read_text()
    assert kept.count("\n") == 20
    process = UpperCase()
    if changed == "input":
        source.write_text(source.read_text().replace("line 1\n", "line one\n"))
    elif changed == "order":
        source.write_text("".join(reversed(source.read_text().splitlines(keepends=True))))
    else:
        process.settings = {"a": 2}
    with pytest.raises(InputError) as refused:
        run(files, process)
    message = f"{parts} has 20 finished lines of a different job"
    differs = "a" if changed == "a" else "input"
    assert str(refused.value).startswith(f"{message} ({differs}): ")
    assert process.firsts == []
    assert (parts / "output").read_text() == kept
    shutil.rmtree(parts)
    finish(files)


def test_input_stats_are_those_of_the_whole_file(files: tuple[Path, Path]) -> None:
    source, _ = files
    source.write_text(source.read_text().replace("line 7\n", "odd\n").replace("line 33", "odd"))
    interrupt(files)
    assert run(files, UpperCase()) == InputStats(35, {"undecodable": 2}, {"undecodable": 7})


def test_a_job_without_finished_chunks_leaves_nothing(files: tuple[Path, Path]) -> None:
    source, target = files
    interrupt(files, at=1)
    assert sorted(target.parent.iterdir()) == [source]


def test_one_job_at_a_time(files: tuple[Path, Path]) -> None:
    class First(UpperCase):
        def process_bytes(self, raw: Sequence[bytes]) -> bytes:
            with pytest.raises(InputError, match=r"another mt-translate is using .*out.mt-partial"):
                run(files, UpperCase())
            return super().process_bytes(raw)

    run(files, First())
    assert files[1].read_text() == files[0].read_text().upper()


def test_an_unfinished_chunk_is_translated_again(files: tuple[Path, Path]) -> None:
    """Which a killed process has written, and not recorded."""
    interrupt(files)
    with files[1].with_name("out.mt-partial").joinpath("output").open("ab") as output:
        output.write(b"LINE 21\nLI")
    assert finish(files) == [21, 31]


def test_a_finished_output_that_could_not_be_written_is_only_copied(
    files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "copyfile", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run(files, UpperCase())
    assert finish(files) == []


KILLED = """
import os, signal
from transformer_mt.cli.main import mt_translate
from transformer_mt.jobs.line_processor import CHUNK_LINES, LineProcessor

process_bytes = LineProcessor.process_bytes

def die(self, raw):
    if self.stats.lines == 20:
        os.kill(os.getpid(), signal.SIGKILL)
    return process_bytes(self, raw)

CHUNK_LINES["cpu"] = 10
LineProcessor.process_bytes = die
mt_translate()
"""


def test_killed_command_resumes(
    untrained: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    source, target = tmp_path / "in", tmp_path / "out"
    lines = [*TEXT[:33], "", "a \ufffd"]
    source.write_bytes("\n".join(lines).encode().replace("\ufffd".encode(), b"\xff"))
    argv = [f"model='{untrained}'", f"input='{source}'", f"output='{target}'"]
    argv += ["device=cpu", "engine=torch"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    killed = subprocess.run([sys.executable, "-c", KILLED, *argv], env=environment, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert not target.exists()
    capfd.readouterr()
    commands.translate(compose(argv, "translate"))
    assert "mt-translate: resuming: 20 of 35 lines are done\n" in capfd.readouterr().err
    assert target.read_text().split("\n") == [*translate_lines(untrained, lines), ""]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out"]


def test_a_stream_is_translated_in_a_thread(untrained: Path, tmp_path: Path) -> None:
    text, sink = b"the dog\n\n\xff\n", io.BytesIO()
    expected = "\n".join([*translate_lines(untrained, ["the dog", "", "\ufffd"]), ""])
    job = TranslateJob(model=str(untrained), device="cpu", engine="torch")
    to_file = replace(job, output=str(tmp_path / "out"))
    with ThreadPoolExecutor(1) as thread:  # Python allows signal handlers in the main one only
        thread.submit(translate, to_file, io.BytesIO(text)).result()
    assert (tmp_path / "out").read_text() == expected
    stats = translate(job, io.BytesIO(text), sink)
    assert sink.getvalue().decode() == expected
    assert stats == InputStats(3, {"undecodable": 1}, {"undecodable": 3})
