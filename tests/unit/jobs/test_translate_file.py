"""A file job gives the same output however often it was interrupted, and whoever did its parts."""

import gzip
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from test_translate import TEXT, api, write_model

from transformer_mt.config import TranslateJob
from transformer_mt.distributed import World
from transformer_mt.errors import InputError
from transformer_mt.jobs import translate
from transformer_mt.jobs import translate_file as file_job
from transformer_mt.jobs import translate_stream as streaming
from transformer_mt.jobs.translate_file import translate_file
from transformer_mt.jobs.translate_stream import InputStats

ROOT = Path(translate.__file__).parents[2]
ALONE = World(torch.device("cpu"))


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(file_job.CHUNK, "cpu", 10)


class Shouter:
    """Answers in capitals, and remembers the number of each first line."""

    def __init__(self, fail_at: int | None = None, error: BaseException | None = None):
        self.firsts: list[int] = []
        self.fail_at, self.error = fail_at, error

    def __call__(self, lines: list[bytes], first: int) -> tuple[bytes, InputStats]:
        if first == self.fail_at and self.error is not None:
            raise self.error
        self.firsts.append(first)
        odd = [number for number, line in enumerate(lines, first) if b"odd" in line]
        text = b"".join(line.upper() + b"\n" for line in lines)
        return text, InputStats(nul=len(odd), first_nul=min(odd, default=0))


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    source = tmp_path / "in"
    source.write_text("".join(f"line {i}\n" for i in range(1, 36)))
    return source, tmp_path / "out"


def shouted(source: Path) -> str:
    return source.read_text().upper()


def run(
    files: tuple[Path, Path], answer: Shouter, settings: dict[str, Any] | None = None
) -> tuple[InputStats, list[str]]:
    said: list[str] = []
    odd = translate_file(*files, settings or {"a": 1}, answer, ALONE, said.append)
    return odd, said


def interrupt(files: tuple[Path, Path], at: int = 21) -> None:
    with pytest.raises(ZeroDivisionError):
        run(files, Shouter(at, ZeroDivisionError()))


@pytest.mark.parametrize("lines", [0, 1, 9, 10, 11, 35])
def test_all_lines_in_order(files: tuple[Path, Path], lines: int) -> None:
    source, target = files
    source.write_text("".join(f"line {i}\n" for i in range(lines)))
    answer = Shouter()
    assert run(files, answer) == (InputStats(), [])
    assert target.read_text() == shouted(source)
    assert answer.firsts == list(range(1, lines + 1, 10))
    assert sorted(target.parent.iterdir()) == [source, target]


def test_goes_on_where_it_stopped(files: tuple[Path, Path]) -> None:
    source, target = files
    target.write_text("yesterday's\n")
    interrupt(files)
    assert target.read_text() == "yesterday's\n"
    answer = Shouter()
    _, said = run(files, answer)
    assert answer.firsts == [21, 31]
    assert said == ["going on: 20 of 35 lines were done"]
    assert target.read_text() == shouted(source)
    assert sorted(target.parent.iterdir()) == [source, target]
    answer = Shouter()  # once more is from the beginning
    assert run(files, answer)[1] == []
    assert len(answer.firsts) == 4


def test_goes_on_in_chunks_of_the_size_that_it_began_with(
    files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where it goes on a GPU that began on a CPU."""
    source, target = files
    interrupt(files)
    monkeypatch.setitem(file_job.CHUNK, "cpu", 25)
    answer = Shouter()
    run(files, answer)
    assert answer.firsts == [21, 31]
    assert target.read_text() == shouted(source)
    answer = Shouter()
    run(files, answer)
    assert answer.firsts == [1, 26]


@pytest.mark.parametrize("changed", ["input", "order", "settings", "job.json"])
def test_another_job_begins_anew(files: tuple[Path, Path], changed: str) -> None:
    source, target = files
    interrupt(files)
    settings = {"a": 1}
    if changed == "input":
        source.write_text(source.read_text().replace("line 1\n", "line one\n"))
    elif changed == "order":
        source.write_text("".join(reversed(source.read_text().splitlines(keepends=True))))
    elif changed == "settings":
        settings = {"a": 2}
    else:
        (target.with_name("out.parts") / "job.json").write_text("{")
    answer = Shouter()
    _, (said,) = run(files, answer, settings)
    assert len(answer.firsts) == 4
    assert said.startswith(f"{target.with_name('out.parts')} is of another job (")
    assert said.endswith("): begun anew")
    assert {"input": "input", "order": "input", "settings": "a", "job.json": "a, "}[changed] in said
    assert target.read_text() == shouted(source)


def test_the_same_input_compressed_or_copied_is_the_same(files: tuple[Path, Path]) -> None:
    source, target = files
    interrupt(files)
    copy = source.with_name("copy.gz")
    copy.write_bytes(gzip.compress(source.read_bytes()))
    answer = Shouter()
    run((copy, target), answer)
    assert answer.firsts == [21, 31]


def test_what_was_odd_is_told_of_the_whole(files: tuple[Path, Path]) -> None:
    source, _ = files
    source.write_text(source.read_text().replace("line 7\n", "odd\n").replace("line 33", "odd"))
    interrupt(files)
    odd, _ = run(files, Shouter())
    assert odd == InputStats(nul=2, first_nul=7)


def test_nothing_is_left_of_a_job_that_did_nothing(files: tuple[Path, Path]) -> None:
    source, target = files
    interrupt(files, at=1)
    assert sorted(target.parent.iterdir()) == [source]
    broken = source.with_name("in.gz")
    broken.write_bytes(gzip.compress(b"a red dog\n" * 99)[:-9])
    answer = Shouter()
    with pytest.raises(InputError, match=r"in.gz: damaged or incomplete after line"):
        run((broken, target), answer)
    assert answer.firsts == []
    assert sorted(target.parent.iterdir()) == [source, broken]


def test_ctrl_c_says_what_is_kept(files: tuple[Path, Path]) -> None:
    said: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        translate_file(*files, {}, Shouter(21, KeyboardInterrupt()), ALONE, said.append)
    parts = files[1].with_name("out.parts")
    assert said == [f"20 of 35 lines are kept in {parts}: the same command goes on from there"]


def test_one_job_at_a_time(files: tuple[Path, Path]) -> None:
    def second(lines: list[bytes], first: int) -> tuple[bytes, InputStats]:
        with pytest.raises(InputError, match=r"another mt-translate is at work in .*out.parts"):
            run(files, Shouter())
        return Shouter()(lines, first)

    translate_file(*files, {}, second, ALONE, print)
    assert files[1].read_text() == shouted(files[0])


def test_a_folder_of_the_user_s_is_left_alone(files: tuple[Path, Path]) -> None:
    parts = files[1].with_name("out.parts")
    parts.mkdir()
    (parts / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match=r"out\.parts .* holds something else"):
        run(files, Shouter())
    assert [path.name for path in parts.iterdir()] == ["notes.txt"]


def test_lines_added_meanwhile_are_left_out(files: tuple[Path, Path]) -> None:
    source, target = files
    expected = shouted(source)

    def grow(lines: list[bytes], first: int) -> tuple[bytes, InputStats]:
        with source.open("a") as file:
            file.write("more\n" * 20)
        return Shouter()(lines, first)

    translate_file(*files, {}, grow, ALONE, print)
    assert target.read_text() == expected


def test_progress_without_a_terminal(
    files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_job, "_LOG_EVERY", 0.0)
    interrupt(files)
    _, said = run(files, Shouter())
    assert [line.split(" lines")[0] for line in said] == [
        "going on: 20 of 35",
        "30 of 35",
        "35 of 35",
        "35 of 35",
    ]
    assert said[1].endswith(" left")
    assert " lines/s, " in said[1]


def test_progress_where_all_chunks_are_there(
    files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a job that could not write its output."""
    with monkeypatch.context() as patched:
        patched.setattr(file_job, "_join", Mock(side_effect=OSError("disk full")))
        with pytest.raises(OSError, match="disk full"):
            run(files, Shouter())
    monkeypatch.setattr(file_job, "_LOG_EVERY", 0.0)
    shouter = Shouter()
    run(files, shouter)
    assert shouter.firsts == []
    assert files[1].read_text() == shouted(files[0])


def test_ranks_share_the_chunks(files: tuple[Path, Path]) -> None:
    """Threads stand for ranks; every chunk is done once, and rank 0 joins them."""
    source, target = files
    source.write_text("".join(f"line {i}\n" for i in range(335)))
    barrier, values = threading.Barrier(3), [None] * 3

    class Rank(World):
        def gather(self, value: Any) -> Any:
            values[self.rank] = value
            barrier.wait(30)
            found = list(values)
            barrier.wait(30)
            return found

    answers = [Shouter() for _ in range(3)]
    threads = [
        threading.Thread(
            target=translate_file,
            args=(*files, {}, answer, Rank(torch.device("cpu"), rank, 3), print),
        )
        for rank, answer in enumerate(answers)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert target.read_text() == shouted(source)
    firsts = [first for answer in answers for first in answer.firsts]
    assert sorted(firsts) == list(range(1, 336, 10))
    assert sorted(target.parent.iterdir()) == [source, target]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "untrained"
    write_model(folder)
    return folder


KILLED = """
import os, signal, sys
from transformer_mt.cli import file_job, streaming, translate
from transformer_mt.config import TranslateJob

file_job.CHUNK["cpu"] = 10
answer, calls = translate.answer, []

def die(*args, **settings):
    calls.append(1)
    if len(calls) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return answer(*args, **settings)

translate.answer = die
translate.run(TranslateJob(
    model=sys.argv[1], input=sys.argv[2], output=sys.argv[3], device="cpu", engine="torch"
))
"""


def count_answers(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    answer, firsts = streaming.answer, []

    def spy(translator: Any, raw: list[bytes], first: int, **settings: Any) -> Any:
        firsts.append(first)
        return answer(translator, raw, first, **settings)

    monkeypatch.setattr(translate, "answer", spy)
    return firsts


def test_a_killed_command_goes_on(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    source, target = tmp_path / "in", tmp_path / "out"
    lines = [*TEXT[:33], "", "a \ufffd"]
    source.write_bytes("\n".join(lines).encode().replace("\ufffd".encode(), b"\xff"))
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(model), str(source), str(target)],
        env=environment,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    assert not target.exists()
    firsts = count_answers(monkeypatch)
    capfd.readouterr()
    # What changes no translation may change.
    job = TranslateJob(
        model=str(model), input=str(source), output=str(target), device="cpu", batch_tokens=99
    )
    translate.run(job)
    assert firsts == [21, 31]
    assert "mt-translate: going on: 20 of 35 lines were done\n" in capfd.readouterr().err
    assert target.read_text().split("\n") == [*api(model, lines), ""]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out"]


def test_another_beam_or_model_begins_anew(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = tmp_path / "in", tmp_path / "out"
    source.write_text("\n".join(TEXT[:25]))
    said: list[str] = []
    monkeypatch.setattr(translate, "_report", said.append)

    def begun(**settings: Any) -> None:
        """All but the last step."""
        monkeypatch.setattr(file_job, "_join", lambda *_: InputStats())
        settings = {"model": str(model), "device": "cpu", "engine": "torch", **settings}
        translate.run(TranslateJob(input=str(source), output=str(target), **settings))

    begun()
    firsts = count_answers(monkeypatch)
    begun()
    assert firsts == []
    begun(beam_size=1)
    assert "is of another job (settings): begun anew" in said[-1]
    begun(format="jsonl", beam_size=1)
    assert "is of another job (settings): begun anew" in said[-1]
    write_model(tmp_path / "other", seed=2)
    begun(model=str(tmp_path / "other"), format="jsonl", beam_size=1)
    assert "is of another job (model): begun anew" in said[-1]
    assert len(firsts) == 9


def test_ranks_of_torchrun_share_a_file(model: Path, tmp_path: Path) -> None:
    source, target = tmp_path / "in", tmp_path / "out"
    lines = TEXT * 35  # two chunks
    source.write_text("".join(f"{line}\n" for line in lines))
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "-m"]
    command += ["transformer_mt.cli.translate", f"model='{model}'", "device=cpu", "engine=torch"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    settings = [f"input='{source}'", f"output='{target}'", "beam_size=1"]
    subprocess.run([*command, *settings], env=environment, check=True, capture_output=True)
    expected = dict(zip(lines, api(model, lines, beam_size=1), strict=True))
    assert target.read_text() == "".join(f"{expected[line]}\n" for line in lines)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out"]


def test_bad_input_is_one_line_of_one_rank(model: Path, tmp_path: Path) -> None:
    (tmp_path / "in.gz").write_bytes(gzip.compress(b"a line\n" * 999)[:-9])
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "-m"]
    command += ["transformer_mt.cli.translate", f"model='{model}'", "device=cpu", "engine=torch"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    settings = [f"input='{tmp_path}/in.gz'", f"output='{tmp_path}/out'"]
    done = subprocess.run([*command, *settings], env=environment, capture_output=True, text=True)
    assert done.returncode != 0
    ours = done.stderr.partition("torch/distributed/elastic")[0]
    said = [line for line in ours.splitlines() if line.startswith("mt-translate")]
    assert len(said) == 1
    assert "in.gz: damaged or incomplete after line" in said[0]
    assert "Traceback" not in ours


def test_ranks_cannot_share_a_stream(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="several ranks share a file: say input=FILE"):
        translate._translate(TranslateJob(model=str(model)), World(torch.device("cpu"), 1, 2))
