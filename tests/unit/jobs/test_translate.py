"""mt-translate: one line out for each line in, in order, without delay; one-line errors."""

import os
import re
import selectors
import shutil
import signal
import string
import subprocess
import sys
from collections.abc import Callable
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
from transformer_mt.run_layout import WEIGHTS

Translated = Callable[..., tuple[str, str]]

INPUTS: dict[str, tuple[bytes, list[str], list[str]]] = {  # the lines, and what is said of them
    "nothing": (b"", [], []),
    "windows": (b"\xef\xbb\xbfthe dog\r\n\r\na fox", ["the dog", "", "a fox"], []),
    "blank": (
        b"\n \n\t\r\n\n\xc2\xa0\n \nthe dog\n\n" + b" " * 100_000 + b"\na fox\n\n",
        [*[""] * 6, "the dog", "", "", "a fox", ""],
        [],
    ),
    "separators": (
        "the\u2028dog\na\x85fox\x0c the\x0bdog\x1ca\n\u2029\na\rb\na\n\ufeffb\n".encode(),
        ["the dog", "a fox the dog a", "", "a b", "a", "\ufeffb"],
        [],
    ),
    "odd characters": (
        b"fine \xc3\xb6\n\xe4 dog\n\xff\xfe\n\xed\xa0\x80\xed\xb0\x80 a\nthe\0dog\n\0\n"
        b"the dog\nthe\xe2\x96\x81dog\n",
        [
            *("fine ö", "\ufffd dog", "\ufffd\ufffd", "\ufffd" * 6 + " a", "the\0dog", "\0"),
            *["the dog"] * 2,
        ],
        ["3 line(s) were not valid UTF-8 (the first: line 2); invalid bytes were read as U+FFFD"],
    ),
}


@pytest.mark.parametrize("name", INPUTS)
def test_as_many_lines_out_as_in(untrained: Path, translated: Translated, name: str) -> None:
    data, lines, messages = INPUTS[name]
    out, err = translated(data, beam_size=1)
    assert out == "".join(f"{line}\n" for line in translate_lines(untrained, lines, beam_size=1))
    blank = [not line.strip(string.whitespace + "".join(map(chr, range(32)))) for line in lines]
    assert [line == "" for line in out.split("\n")[:-1]] == blank
    assert err.splitlines() == [f"mt-translate: {message}" for message in messages]


FILES = {
    "in": b"the dog\n" * 5,
    "latin": b"a\n\xe4\n" * 9,
    "aligned": b"a\n" * 5,
    "short": b"a\n" * 4,
    "long": b"a\n" * 6,
}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"output": "none/out"},
            "output=none/out: cannot write to the folder {here}/none: No such",
        ),
        ({"output": "model"}, "output=model is a folder: name a file"),
        ({"output": "out.gz"}, "output=out.gz: the output is plain text; leave out .gz"),
        ({"output": "in"}, "output=in would overwrite the file of input: choose another file"),
        ({"output": "link", "score": "aligned"}, "output=link would overwrite the file of score"),
        ({"output": "link", "prefix": "aligned"}, "output=link would overwrite the file of pr"),
        ({"prefix": "missing"}, "cannot read missing: No such file or directory"),
        ({"score": "latin"}, "latin, line 2 is not valid UTF-8"),
        ({"score": "short"}, "score=short has 4 line(s), but the input has at least 5: "),
        ({"prefix": "long", "output": "out"}, "prefix=long has 6 line(s), but the input has 5: "),
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
    write_model(Path("model"), JOB)
    for name, content in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    (tmp_path / "link").symlink_to("aligned")
    before = {path: path.is_dir() or path.read_bytes() for path in tmp_path.rglob("*")}
    found = error_of(capfd, **{"model": "model", "input": "in", "engine": "torch", **settings})
    assert found.startswith(message.format(here=tmp_path))
    assert {path: path.is_dir() or path.read_bytes() for path in tmp_path.rglob("*")} == before


def test_sentences_of_a_line_are_translated_separately_and_keep_their_markup(
    untrained: Path, translated: Translated
) -> None:
    marked = "The <b>red</b> dog jumps. {who} saw <br/> it!\n"
    text = f"The dog jumps. A fox sleeps!\n\n \nThe barn\n{marked}".encode()
    out, err = translated(text, markup="keep", engine="torch")
    assert err == ""
    plain, kept = out[: out.rindex("\n", 0, -1) + 1], out.splitlines()[-1]
    first, second, third = translate_lines(
        untrained, ["The dog jumps.", "A fox sleeps!", "The barn"]
    )
    assert plain == f"{first} {second}\n\n\n{third}\n"
    assert sorted(re.findall(r"<[^<>]*>|\{\w+\}", kept)) == ["</b>", "<b>", "<br/>", "{who}"]


def test_damaged_conversion_is_reported(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """PyTorch translates instead, unless CTranslate2 is asked for."""
    folder, source = tmp_path / "model", tmp_path / "in"
    write_model(folder)
    source.write_text("the dog\n")
    settings: dict[str, Any] = {"model": str(folder), "input": str(source)}
    commands.translate(TranslateJob(device="cpu", **settings))
    expected, err = capfd.readouterr()
    (place,) = (folder / "ctranslate2").glob("float32-*/")
    converted = f"mt-translate: converting the model for CTranslate2: {place}\n"
    assert err == converted
    weights = (place / "model.bin").read_bytes()
    (place / "model.bin").unlink()
    (place / "model.bin").write_bytes(weights[: len(weights) // 2])
    commands.translate(TranslateJob(device="cpu", **settings))
    out, err = capfd.readouterr()
    assert out == expected
    error = error_of(capfd, engine="ctranslate2", **settings)
    assert error.startswith(f"CTranslate2 cannot use {place} (")
    assert err == f"mt-translate: {error}; using engine=torch\n"
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


def test_a_slow_pipe_is_answered_line_by_line_until_interrupted(untrained: Path) -> None:
    command = [sys.executable, "-m", "transformer_mt.cli", "translate", f"model='{untrained}'"]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
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
