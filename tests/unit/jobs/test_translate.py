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
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from support.model_folders import JOB, TEXT, convert, error_of, translate_lines, write_model
from support.paths import ROOT

from transformer_mt import checkpoint as ckpt
from transformer_mt.cli import main as commands
from transformer_mt.config import TranslateJob
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


IN_THE_MODEL = "model/checkpoints/step_1/state.json"
FILES = {
    "in": b"the dog\n" * 5,
    "utf-16": "\ufeffB\u00e4r\n".encode("utf-16-be"),
    "latin": b"a\n\xe4\n" * 9,
    "aligned": b"a\n" * 5,
    "short": b"a\n" * 4,
    "long": b"a\n" * 6,
    "empty": b"",
    IN_THE_MODEL: b"{}",
}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"input": "utf-16"}, "utf-16 is UTF-16"),
        ({"input": "utf-16", "output": "out"}, "utf-16 is UTF-16"),
        (
            {"output": "none/out"},
            "output=none/out: cannot write to the folder {here}/none: No such",
        ),
        ({"output": "model"}, "output=model is a folder: name a file"),
        ({"output": "out.gz"}, "output=out.gz: the output is plain text; leave out .gz"),
        ({"output": "out.zst"}, "output=out.zst: the output is plain text; leave out .zst"),
        ({"output": "in"}, "output=in would overwrite the file of input: choose another file"),
        ({"output": "link", "score": "aligned"}, "output=link would overwrite the file of score"),
        (
            {"output": "aligned", "prefix": "aligned"},
            "output=aligned would overwrite the file of pr",
        ),
        ({"output": IN_THE_MODEL}, f"output={IN_THE_MODEL} would overwrite the file of the model"),
        ({"prefix": "missing"}, "cannot read missing: No such file or directory"),
        ({"score": "model"}, "score=model must be a file"),
        ({"score": "latin"}, "latin, line 2: not valid UTF-8"),
        ({"score": "short"}, "score=short has 4 line(s), but the input has more: "),
        ({"score": "short", "output": "out"}, "score=short has 4 line(s), but the input has 5: "),
        ({"prefix": "empty", "output": "out"}, "prefix=empty has 0 line(s), but the input has 5: "),
        ({"prefix": "long", "output": "out"}, "prefix=long has 6 line(s), but the input has 5: "),
        (
            {"format": "jsonl", "alignment": True},
            "alignment=true does not work with data.normalization=moses_lowercase",
        ),
    ],
)
def test_errors_are_one_line_and_change_no_file(
    settings: dict[str, Any],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    write_model(
        Path("model"), replace(JOB, data=replace(JOB.data, normalization="moses_lowercase"))
    )
    for name, content in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    (tmp_path / "link").symlink_to("aligned")
    before = {path: path.is_dir() or path.read_bytes() for path in tmp_path.rglob("*")}
    found = error_of(capfd, **{"model": "model", "input": "in", "engine": "torch", **settings})
    assert found.startswith(message.format(here=tmp_path))
    assert {path: path.is_dir() or path.read_bytes() for path in tmp_path.rglob("*")} == before


def test_standard_input_and_output_have_no_names(
    untrained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_a_slow_pipe_is_answered_line_by_line_until_interrupted(untrained: Path) -> None:
    command = [sys.executable, "-m", "transformer_mt.cli", "translate", f"model='{untrained}'"]
    env = {**os.environ, **ENVIRONMENT, "CUDA_VISIBLE_DEVICES": ""}
    env.pop("PYTHONUNBUFFERED", None)  # it would answer for us
    with (
        subprocess.Popen(command, stdin=PIPE, stdout=PIPE, stderr=PIPE, env=env) as process,
        selectors.DefaultSelector() as waiting,
    ):
        waiting.register(process.stdout, selectors.EVENT_READ)
        try:
            for line, found in zip(TEXT[:3], translate_lines(untrained, TEXT[:3]), strict=True):
                process.stdin.write(f"{line}\n".encode())
                process.stdin.flush()
                assert waiting.select(timeout=60), "no line came back"
                assert process.stdout.readline().decode() == f"{found}\n"
            process.send_signal(signal.SIGINT)  # while it waits for more
            assert process.wait(60) == 130
            assert process.stderr.read() == b"mt-translate: interrupted\n"
        finally:
            process.kill()


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
