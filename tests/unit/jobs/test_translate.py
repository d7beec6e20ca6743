"""mt-translate: one line out for each line in, in order, without delay; one-line errors."""

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
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from support.model_folders import JOB, TEXT, convert, error_of, translate_lines, write_model
from support.paths import ROOT

from transformer_mt import checkpoint as ckpt
from transformer_mt.cli import main as commands
from transformer_mt.config import (
    TranslateJob,
)
from transformer_mt.errors import InputError
from transformer_mt.run_layout import WEIGHTS


@pytest.fixture
def translated(
    untrained: Path,
    tmp_path: Path,
    standard_input: Callable[[bytes], None],
    capfdbinary: pytest.CaptureFixture[bytes],
) -> Callable[..., tuple[bytes, str]]:
    """Standard output and error for bytes; a file gets the same as the standard streams."""

    def run(data: bytes, **settings: Any) -> tuple[bytes, str]:
        standard_input(data)
        job = TranslateJob(model=str(untrained), device="cpu", **settings)
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
    untrained: Path, translated: Callable[..., tuple[bytes, str]], name: str
) -> None:
    data, lines = INPUTS[name]
    out, err = translated(data, beam_size=1)
    if lines is None:
        lines = [line.decode(errors="replace") for line in data.removesuffix(b"\n").split(b"\n")]
    assert out.decode() == "".join(
        f"{line}\n" for line in translate_lines(untrained, lines, beam_size=1)
    )
    blank = [not line.strip(string.whitespace + "".join(map(chr, range(32)))) for line in lines]
    assert [line == "" for line in out.decode().split("\n")[:-1]] == blank
    assert (err == "") == (name not in COUNTED)
    assert COUNTED.get(name, "") in err


def test_utf_16_is_refused(
    untrained: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    source, target = tmp_path / "in", tmp_path / "out"
    source.write_bytes("\ufeffBär\n".encode("utf-16-be"))
    for more in ({}, {"output": str(target)}):
        message = error_of(capfd, model=str(untrained), input=str(source), **more)
        assert message.startswith(f"{source} is UTF-16")
        assert "iconv -f utf-16 -t utf-8" in message
    assert not target.exists()


@pytest.mark.parametrize("name", ["in", "link", "score", "model/checkpoints/step_1/state.json"])
def test_nothing_is_overwritten(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], name: str
) -> None:
    write_model(tmp_path / "model")
    (tmp_path / "link").symlink_to("score")
    for path in ("in", "score", "model/checkpoints/step_1/state.json"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("the dog\n")
    settings = {"model": "model", "input": "in", "score": "score", "output": name}
    paths = {key: str(tmp_path / value) for key, value in settings.items()}
    message = error_of(capfd, **paths)
    what = {"in": "input", "link": "score", "score": "score"}.get(name, "the model")
    assert message == (
        f"output={paths['output']} would overwrite the file of {what}: choose another file"
    )
    assert (tmp_path / name).read_text() == "the dog\n"


def test_invalid_output_names(
    untrained: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, reason in (
        ("none/out.de", f": cannot write to the folder {tmp_path / 'none'}: No such file or dir"),
        ("", " is a folder: name a file"),
        ("out.de.gz", ": the output is plain text; leave out .gz"),
        ("out.de.zst", ": the output is plain text; leave out .zst"),
    ):
        output = str(tmp_path / name)
        message = error_of(capfd, model=str(untrained), output=output)
        assert message.startswith(f"output={output}{reason}")
    assert list(tmp_path.iterdir()) == []
    for key in ("input", "output"):
        with pytest.raises(InputError, match=f"{key}=-: leave {key} out for standard {key}"):
            TranslateJob(model="x", **{key: "-"})  # type: ignore[arg-type]
    monkeypatch.setattr(sys, "stdout", None)
    with pytest.raises(InputError, match="standard output is closed"):
        commands.translate(TranslateJob(model=str(untrained), device="cpu"))


def test_json_lines(untrained: Path, translated: Callable[..., tuple[bytes, str]]) -> None:
    lines = ["the dog", "", 'a "fox"\tö\u2028', " \\ "]
    out, _ = translated("\n".join(lines).encode(), format="jsonl", nbest=3, beam_size=4)
    assert "ö\u2028" in out.decode()
    rows = [json.loads(row) for row in out.decode().split("\n")[:-1]]
    assert [row["source"] for row in rows] == lines
    (blank,) = rows[1]["translations"]
    assert (blank["text"], blank["score"], blank["tokens"]) == ("", 0.0, 0)
    best = translate_lines(untrained, lines, beam_size=4)
    for row, text in zip(rows, best, strict=True):
        assert set(row) == {"source", "translations"}
        found = row["translations"]
        assert len(found) == (3 if row["source"] else 1)
        for translation in found:
            log_probs = translation["piece_log_probs"]
            assert math.fsum(log_probs) == pytest.approx(translation["log_prob"], abs=1e-4)
        assert found[0]["text"] == text
        scores = [translation["score"] for translation in found]
        assert sorted(scores, reverse=True) == scores
        assert max(scores) <= 0
    (plain, _) = translated("\n".join(lines).encode(), beam_size=4)
    assert plain.decode().split("\n")[:-1] == best


def test_sentences_of_a_line_are_translated_separately(
    untrained: Path, translated: Callable[..., tuple[bytes, str]]
) -> None:
    pytest.importorskip("sentencex", reason="sentencex is not installed (the extra 'sentences')")
    text = "The dog jumps. A fox sleeps!\n\n \nThe barn\n"
    out, err = translated(text.encode(), split="sentences")
    first, second, third = translate_lines(
        untrained, ["The dog jumps.", "A fox sleeps!", "The barn"]
    )
    assert out.decode() == f"{first} {second}\n\n\n{third}\n"
    assert err == ""
    whole, _ = translated(text.encode())
    assert whole != out


def test_alignment_needs_a_normalization_that_keeps_words(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "model"
    write_model(folder, replace(JOB, data=replace(JOB.data, normalization="moses_lowercase")))
    message = error_of(capfd, model=str(folder), format="jsonl", alignment=True)
    assert message.startswith("alignment=true does not work with data.normalization=moses_lower")


@pytest.mark.parametrize("file", ["model.bin", "config.json"])
def test_damaged_conversion_is_reported(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], file: str
) -> None:
    """PyTorch translates instead, unless CTranslate2 is asked for."""
    pytest.importorskip("ctranslate2", reason="CTranslate2 is not installed (the extra 'fast')")
    folder, source = tmp_path / "model", tmp_path / "in"
    write_model(folder)
    source.write_text("the dog\n")
    settings: dict[str, Any] = {"model": str(folder), "input": str(source)}
    commands.translate(TranslateJob(device="cpu", **settings))
    expected, err = capfd.readouterr()
    place = folder / "ctranslate2/float32"
    converted = f"mt-translate: converted the model for CTranslate2: {place}\n"
    assert err == converted
    whole = (place / file).read_bytes()
    for damage in (whole[: len(whole) // 2], None):
        (place / file).unlink()
        if damage is not None:
            (place / file).write_bytes(damage)
        commands.translate(TranslateJob(device="cpu", **settings))
        out, err = capfd.readouterr()
        assert out == expected
        error = error_of(capfd, engine="ctranslate2", **settings)
        assert error.startswith(f"CTranslate2 cannot use {place} (")
        assert err == f"mt-translate: {error}; using engine=torch\n"
        (place / file).touch()
    shutil.rmtree(place)
    commands.translate(TranslateJob(device="cpu", **settings))
    assert capfd.readouterr() == (expected, converted)


def test_non_finite_scores_are_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Weights that are finite, and so large that what comes of them is not."""
    folder, lines = tmp_path / "model", tmp_path / "in"
    write_model(folder)
    weights = {k: torch.full_like(v, 3e38) for k, v in load_file(folder / WEIGHTS).items()}
    ckpt.save_tensors(weights, folder / WEIGHTS)
    lines.write_text("the dog\n")
    settings: dict[str, Any] = {"model": str(folder), "input": str(lines)}
    convert(folder)
    for more in ({}, {"score": str(lines)}, {"engine": "torch"}):
        message = error_of(capfd, **settings, **more)
        assert message.startswith("the model's output is not a number")


def test_a_pipe_without_a_name_is_written_to(untrained: Path, tmp_path: Path) -> None:
    """As ``output=/dev/stdout | …`` and ``output=>(…)``."""
    source = tmp_path / "source"
    source.write_text("the dog\n")
    reading, writing = os.pipe()
    settings = {"input": str(source), "output": f"/dev/fd/{writing}"}
    commands.translate(TranslateJob(model=str(untrained), device="cpu", **settings))
    os.close(writing)
    with os.fdopen(reading) as pipe:
        assert pipe.read() == f"{translate_lines(untrained, ['the dog'])[0]}\n"


ENVIRONMENT = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


@pytest.fixture
def process(untrained: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "transformer_mt.cli", "translate", f"model='{untrained}'"]
    env = {**os.environ, **ENVIRONMENT, "CUDA_VISIBLE_DEVICES": ""}
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
    untrained: Path, process: subprocess.Popen[bytes]
) -> None:
    for line, found in zip(TEXT[:3], translate_lines(untrained, TEXT[:3]), strict=True):
        write_line(process, f"{line}\n")
        assert read_line(process).decode() == f"{found}\n"
    process.send_signal(signal.SIGINT)  # while it waits for more
    assert process.wait(60) == 130
    assert process.stderr
    assert process.stderr.read() == b"mt-translate: interrupted\n"


def test_a_full_disk_is_noticed_without_buffers(untrained: Path, tmp_path: Path) -> None:
    """A raw write may write only a part of the data."""
    command = f"ulimit -f 4; {sys.executable} -m transformer_mt.cli translate engine=torch"
    env = {**os.environ, **ENVIRONMENT, "PYTHONUNBUFFERED": "1"}
    env["PYTHONDONTWRITEBYTECODE"] = "1"  # Python itself would leave half of a file there
    with (tmp_path / "out").open("wb") as out:
        done = subprocess.run(
            ["bash", "-c", f"{command} format=jsonl model='{untrained}'"],
            input="".join(f"{line} {n}\n" for n, line in enumerate(TEXT)).encode(),
            stdout=out,
            stderr=subprocess.PIPE,
            env=env,
            check=False,
        )
    assert done.returncode == 1
    assert b"File too large" in done.stderr
    assert done.stderr.count(b"\n") == 1
