"""mt-translate: one line out for each line in, in order, without delay; one-line errors."""

import gzip
import json
import math
import os
import selectors
import shutil
import signal
import string
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from support.model_folders import JOB, TEXT, error_of, translate_lines, write_model

from transformer_mt import checkpoint as ckpt
from transformer_mt import model_folder, run_layout
from transformer_mt.cli import main as commands
from transformer_mt.config import (
    TranslateJob,
)
from transformer_mt.decode.engines.converted_models import find_or_convert
from transformer_mt.decode.engines.request import EngineRequest
from transformer_mt.decode.translator import Translator
from transformer_mt.errors import InputError


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "untrained"
    write_model(folder)
    if find_spec("ctranslate2") is not None:  # otherwise the first use converts, with a message
        find_or_convert(EngineRequest.open(folder, device="cpu"), "float32")
    return folder


@pytest.fixture
def translated(
    model: Path,
    tmp_path: Path,
    standard_input: Callable[[bytes], None],
    capfdbinary: pytest.CaptureFixture[bytes],
) -> Callable[..., tuple[bytes, str]]:
    """Standard output and error for bytes; a file gets the same as the standard streams."""

    def run(data: bytes, **settings: Any) -> tuple[bytes, str]:
        standard_input(data)
        job = TranslateJob(model=str(model), device="cpu", **settings)
        commands.translate(job)
        out, err = capfdbinary.readouterr()
        source, target = tmp_path / "in", tmp_path / "out"
        source.write_bytes(data)
        commands.translate(replace(job, input=str(source), output=str(target)))
        assert capfdbinary.readouterr() == (b"", err)
        assert target.read_bytes() == out
        return out, err.decode()

    return run


INPUTS = {
    "nothing": (b"", []),
    "no last line feed": (b"the dog\na fox", ["the dog", "a fox"]),
    "windows": (b"\xef\xbb\xbfthe dog\r\n\r\na fox\r\n", ["the dog", "", "a fox"]),
    "blank": (b"\n \n\t\r\n\n\xc2\xa0\n \n", [""] * 6),
    "blank between": (b"\nthe dog\n\n  \na fox\n\n", ["", "the dog", "", "", "a fox", ""]),
    "separators": (
        "the\u2028dog\na\x85fox\x0c the\x0bdog\x1ca\n\u2029\na\rb\n".encode(),
        ["the dog", "a fox the dog a", "", "a b"],
    ),
    "nul": (b"the\0dog\n\0\n", ["the\0dog", "\0"]),
    "spaces": (b" " * 100_000 + b"\na\n", ["", "a"]),
    "no text at all": (bytes(range(256)), None),
    "a mark in the middle": (b"a\n\xef\xbb\xbfb\n", ["a", "\ufeffb"]),
    "surrogates": (b"\xed\xa0\x80\xed\xb0\x80 a\n", ["\ufffd" * 6 + " a"]),
    "latin-1": (b"fine \xc3\xb6\n\xe4 dog\n\xff\xfe\n", ["fine ö", "\ufffd dog", "\ufffd\ufffd"]),
    "space mark": ("the dog\nthe▁dog\n".encode(), ["the dog"] * 2),
}
COUNTED = {
    "space mark": "1 line(s) contain ▁ (U+2581; the first: line 2), which is read as a space",
    "nul": "2 line(s) contain NUL characters (the first: line 1)",
    "surrogates": "1 line(s) were not valid UTF-8 (the first: line 1)",
    "latin-1": "2 line(s) were not valid UTF-8 (the first: line 2); invalid bytes were read as U+",
    "no text at all": "1 line(s) were not valid UTF-8 (the first: line 2)",
}


@pytest.mark.parametrize("name", INPUTS)
def test_as_many_lines_out_as_in(
    model: Path, translated: Callable[..., tuple[bytes, str]], name: str
) -> None:
    data, lines = INPUTS[name]
    out, err = translated(data, beam_size=1)
    if lines is None:
        lines = [line.decode(errors="replace") for line in data.removesuffix(b"\n").split(b"\n")]
    assert out.decode() == "".join(
        f"{line}\n" for line in translate_lines(model, lines, beam_size=1)
    )
    blank = [not line.strip(string.whitespace + "".join(map(chr, range(32)))) for line in lines]
    assert [line == "" for line in out.decode().split("\n")[:-1]] == blank
    assert (err == "") == (name not in COUNTED)
    assert COUNTED.get(name, "") in err


def test_line_of_100000_characters(
    model: Path, translated: Callable[..., tuple[bytes, str]]
) -> None:
    line = "the dog " * 12_500
    quick = {"max_source_tokens": 100, "max_extra_tokens": 0, "beam_size": 1}
    lines = ["a", line, "a"]
    out, err = translated("\n".join(lines).encode(), **quick, batch_tokens=10**6)
    found = out.decode().split("\n")
    assert found == [*translate_lines(model, lines, **quick, batch_tokens=10**6), ""]
    assert err.startswith("mt-translate: 1 line(s) were longer than max_source_tokens=100 and")


def test_utf_16_is_refused(model: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "in"
    source.write_bytes("\ufeffBär\n".encode("utf-16-be"))
    for more in ({}, {"output": str(tmp_path / "out")}):
        message = error_of(capfd, model=str(model), input=str(source), **more)
        assert message.startswith(f"{source} is UTF-16")
        assert "iconv -f utf-16 -t utf-8" in message
    assert not (tmp_path / "out").exists()


def test_json_lines(model: Path, translated: Callable[..., tuple[bytes, str]]) -> None:
    lines = ["the dog", "", 'a "fox"\tö\u2028', " \\ "]
    out, _ = translated("\n".join(lines).encode(), format="jsonl", nbest=3, beam_size=4)
    assert "ö\u2028" in out.decode()
    rows = [json.loads(row) for row in out.decode().split("\n")[:-1]]
    assert [row["source"] for row in rows] == lines
    (blank,) = rows[1]["translations"]
    assert (blank["text"], blank["score"], blank["tokens"]) == ("", 0.0, 0)
    best = translate_lines(model, lines, beam_size=4)
    for row, text in zip(rows, best, strict=True):
        assert set(row) == {"source", "translations"}
        found = row["translations"]
        assert len(found) == (3 if row["source"] else 1)
        assert all({"text", "score", "tokens"} <= set(translation) for translation in found)
        for translation in found:
            log_probs = translation.get("piece_log_probs", [])
            assert math.fsum(log_probs) == pytest.approx(translation["log_prob"], abs=1e-4)
        assert found[0]["text"] == text
        scores = [translation["score"] for translation in found]
        assert sorted(scores, reverse=True) == scores
        assert max(scores) <= 0
    (plain, _) = translated("\n".join(lines).encode(), beam_size=4)
    assert plain.decode().split("\n")[:-1] == best


def test_sentences_of_a_line_are_translated_separately(
    model: Path, translated: Callable[..., tuple[bytes, str]]
) -> None:
    pytest.importorskip("sentencex", reason="sentencex is not installed (the extra 'sentences')")
    text = "The dog jumps. A fox sleeps!\n\n \nThe barn\n"
    out, err = translated(text.encode(), split="sentences")
    first, second, third = translate_lines(model, ["The dog jumps.", "A fox sleeps!", "The barn"])
    assert out.decode() == f"{first} {second}\n\n\n{third}\n"
    assert err == ""
    whole, _ = translated(text.encode())
    assert whole != out


def test_a_closed_output_is_one_line(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    with pytest.raises(InputError, match="standard output is closed"):
        commands.translate(TranslateJob(model=str(model), device="cpu"))


def test_alignment_needs_a_normalization_that_keeps_words(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "model"
    write_model(folder, replace(JOB, data=replace(JOB.data, normalization="moses_lowercase")))
    message = error_of(capfd, model=str(folder), format="jsonl", alignment=True)
    assert message.startswith("alignment=true does not work with data.normalization=moses_lower")


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Fills with the names of the engines that translate."""
    pytest.importorskip("ctranslate2", reason="CTranslate2 is not installed (the extra 'fast')")
    names: list[str] = []
    translate_nbest = Translator.translate_nbest

    def spy(self: Translator, lines: list[str], nbest: int, **settings: Any) -> Any:
        found = translate_nbest(self, lines, nbest, **settings)
        names.append(self.engine.name)
        return found

    monkeypatch.setattr(Translator, "translate_nbest", spy)
    return names


@pytest.mark.parametrize("file", ["model.bin", "config.json"])
def test_damaged_conversion_is_reported(
    tmp_path: Path, engines: list[str], capfd: pytest.CaptureFixture[str], file: str
) -> None:
    """PyTorch translates instead, unless CTranslate2 is asked for."""
    folder, source = tmp_path / "model", tmp_path / "in"
    write_model(folder)
    source.write_text("the dog\n")
    settings: dict[str, Any] = {"model": str(folder), "input": str(source)}
    commands.translate(TranslateJob(device="cpu", **settings))
    expected, err = capfd.readouterr()
    place = folder / "ctranslate2/float32"
    assert err == f"mt-translate: converted the model for CTranslate2: {place}\n"
    whole = (place / file).read_bytes()
    for damage in (whole[: len(whole) // 2], None):
        (place / file).unlink()
        if damage is not None:
            (place / file).write_bytes(damage)
        commands.translate(TranslateJob(device="cpu", **settings))
        out, err = capfd.readouterr()
        assert out == expected
        message = f"CTranslate2 cannot use {place} ("
        advice = "): delete that folder, or set engine=torch"
        assert err.startswith(f"mt-translate: {message}")
        assert err.endswith(f"{advice}; using engine=torch\n")
        assert len(err.splitlines()) == 1
        error = error_of(capfd, engine="ctranslate2", **settings)
        assert error.startswith(message)
        assert error.endswith(advice)
        (place / file).touch()
    assert engines == ["ctranslate2", *["torch"] * 2]
    shutil.rmtree(place)
    commands.translate(TranslateJob(device="cpu", **settings))
    assert engines[-1] == "ctranslate2"


@pytest.mark.parametrize("key", ["input", "score"])
def test_inputs_are_not_overwritten(
    model: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], key: str
) -> None:
    paths = {name: tmp_path / name for name in ("input", "link", key)}
    for name in {"input", key}:
        paths[name].write_text("the dog\n")
    paths["link"].symlink_to(paths[key])
    for output in (paths[key], paths["link"]):
        settings = {"model": str(model), "input": str(paths["input"]), key: str(paths[key])}
        message = error_of(capfd, output=str(output), **settings)
        assert message == f"output={output} would overwrite the file of {key}: choose another file"
    assert paths[key].read_text() == "the dog\n"


@pytest.mark.parametrize("name", ["model.safetensors", "checkpoints/step_1/state.json"])
def test_model_files_are_not_overwritten(
    model: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], name: str
) -> None:
    (tmp_path / "input").write_text("the dog\n")
    if not (model / name).exists():
        (model / name).parent.mkdir(parents=True)
        (model / name).write_text("{}")
    before = (model / name).read_bytes()
    paths = {"input": str(tmp_path / "input"), "output": str(model / name)}
    message = error_of(capfd, model=str(model), **paths)
    assert message.endswith("would overwrite the file of the model: choose another file")
    assert (model / name).read_bytes() == before


def test_invalid_output_names(
    model: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    message = error_of(capfd, model=str(model), output=str(tmp_path / "none" / "out.de"))
    assert message == (
        f"output={tmp_path / 'none' / 'out.de'}: cannot write to the folder {tmp_path / 'none'}: "
        "No such file or directory"
    )
    message = error_of(capfd, model=str(model), output=str(tmp_path))
    assert message == f"output={tmp_path} is a folder: name a file"
    for suffix in (".gz", ".zst"):
        message = error_of(capfd, model=str(model), output=str(tmp_path / f"out.de{suffix}"))
        assert f"leave out {suffix}" in message
    assert list(tmp_path.iterdir()) == []
    for key in ("input", "output"):
        with pytest.raises(InputError, match=f"{key}=-: leave {key} out for standard {key}"):
            TranslateJob(model="x", **{key: "-"})  # type: ignore[arg-type]


def test_non_finite_scores_are_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Weights that are finite, and so large that what comes of them is not."""
    folder, lines = tmp_path / "model", tmp_path / "in"
    write_model(folder)
    network, _, _ = model_folder.load_model(folder)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.fill_(3e38)
    ckpt.save_tensors(ckpt.parameters(network), folder / run_layout.WEIGHTS)
    if find_spec("ctranslate2") is not None:
        find_or_convert(EngineRequest.open(folder, device="cpu"), "float32")
    lines.write_text("the dog\n")
    settings: dict[str, Any] = {"model": str(folder), "input": str(lines)}
    for more in ({}, {"score": str(lines)}, {"engine": "torch"}):
        message = error_of(capfd, **settings, **more)
        assert message.startswith("the model's output is not a number")


def test_a_damaged_archive_is_named(
    model: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    source, target = tmp_path / "in.gz", tmp_path / "out"
    source.write_bytes(gzip.compress(b"the red dog\n" * 99, mtime=0)[:-12])
    message = error_of(capfd, model=str(model), input=str(source), output=str(target))
    assert message.startswith(f"{source}: damaged or incomplete after line ")
    assert not target.exists()


def test_a_pipe_without_a_name_is_written_to(model: Path, tmp_path: Path) -> None:
    """As ``output=/dev/stdout | …`` and ``output=>(…)``."""
    source = tmp_path / "source"
    source.write_text("the dog\n")
    reading, writing = os.pipe()
    settings = {"input": str(source), "output": f"/dev/fd/{writing}"}
    commands.translate(TranslateJob(model=str(model), device="cpu", **settings))
    os.close(writing)
    with os.fdopen(reading) as pipe:
        assert pipe.read() == f"{translate_lines(model, ['the dog'])[0]}\n"


@pytest.fixture
def process(model: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "transformer_mt.cli", "translate", f"model='{model}'"]
    root = str(Path(commands.__file__).parents[2])
    env = {**os.environ, "PYTHONPATH": root, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    env.pop("PYTHONUNBUFFERED", None)  # it would answer for us
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env=env) as child:
        yield child
        child.kill()


def read_line(process: subprocess.Popen[bytes]) -> bytes:
    """The next line, or a failure instead of waiting forever."""
    assert process.stdout
    with selectors.DefaultSelector() as waiting:
        waiting.register(process.stdout, selectors.EVENT_READ)
        assert waiting.select(timeout=60), "no line came back"
    return process.stdout.readline()


def write_line(process: subprocess.Popen[bytes], line: str) -> None:
    assert process.stdin
    process.stdin.write(line.encode())
    process.stdin.flush()


def test_a_slow_pipe_is_answered_line_by_line_until_interrupted(
    model: Path, process: subprocess.Popen[bytes]
) -> None:
    for line, found in zip(TEXT[:3], translate_lines(model, TEXT[:3]), strict=True):
        write_line(process, f"{line}\n")
        assert read_line(process).decode() == f"{found}\n"
    process.send_signal(signal.SIGINT)  # while it waits for more
    assert process.wait(60) == 130
    assert process.stderr
    assert process.stderr.read() == b"mt-translate: interrupted\n"


def test_a_full_disk_is_noticed_without_buffers(model: Path, tmp_path: Path) -> None:
    """A raw write may write only a part of the data."""
    command = f"ulimit -f 4; {sys.executable} -m transformer_mt.cli translate engine=torch"
    root = str(Path(commands.__file__).parents[2])
    env = {**os.environ, "PYTHONPATH": root, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    env["PYTHONDONTWRITEBYTECODE"] = "1"  # Python itself would leave half of a file there
    with (tmp_path / "out").open("wb") as out:
        done = subprocess.run(
            ["bash", "-c", f"{command} format=jsonl model='{model}'"],
            input="".join(f"{line} {n}\n" for n, line in enumerate(TEXT)).encode(),
            stdout=out,
            stderr=subprocess.PIPE,
            env=env,
            check=False,
        )
    assert done.returncode == 1
    assert b"File too large" in done.stderr
    assert done.stderr.count(b"\n") == 1
