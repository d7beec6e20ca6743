"""What the recipes share: commands as anyone would type them, steps that resume, paired lines."""

import importlib
import json
import os
import random
import re
import runpy
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from sacrebleu import sentence_bleu
from support.model_folders import JOB, write_model
from support.paths import ROOT
from support.polling import wait_until

from transformer_mt.cli.compose import compose, override
from transformer_mt.config import SourceConfig
from transformer_mt.data.text.sources import read_pairs
from transformer_mt.errors import InputError
from transformer_mt.model_folder import write_config

recipe = importlib.import_module("recipe")
RECIPES = ROOT / "scripts/recipes"
Program = Callable[..., tuple[int, str, str]]


@pytest.fixture
def program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Program:
    """Runs a program of the recipes, or another one, in this process and in ``tmp_path``.

    Returns its exit status, stdout and stderr.
    """
    monkeypatch.chdir(tmp_path)

    def run(name: str, *arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", [f"{name}.py", *arguments])
        status = 0
        try:
            runpy.run_path(str(RECIPES / f"{name}.py"), run_name="__main__")
        except SystemExit as end:
            status = int(end.code or 0)
        return status, *capfd.readouterr()

    return run


def test_settings_are_read_back_from_a_shell_and_hydra() -> None:
    names = ["a.de", "a, b.de", "it's {x}=[y].de", "$HOME\\", 'a "b" ü.de', "1"]
    sources = [SourceConfig(src=name, tgt=name) for name in names]
    sources.append(SourceConfig(tsv="p/it's {DATA}.tsv", tag="<bt>"))
    command = ["mt-train", override("data.train", sources), override("run_dir", "a b\\")]
    command.append(override("data.weights", [0.5] * 7))
    _, *typed = shlex.split(str(recipe.Step("a", command, Path("a"))))
    typed += ["data=wmt14_en_de", "data.normalization=nfc"]
    job = compose(typed)
    assert (job.data.train, job.run_dir, job.data.weights) == (sources, "a b\\", [0.5] * 7)
    assert recipe.train_job(typed) == replace(job, run_dir=".")
    again = compose([*recipe.data_settings(job.data, job.data.train), "cleaning=standard"])
    for key in ("src_lang", "tgt_lang", "train", "valid", "test", "normalization"):
        assert getattr(again.data, key) == getattr(job.data, key)
    settings = recipe.cleaning_settings(again.data)
    assert compose([*settings, "data=sample"]).data.cleaning == again.data.cleaning


def test_reversed_source_has_the_sides_swapped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.en").write_text("one\ntwo\n")
    Path("a.de").write_text("eins\nzwei\n")
    Path("a.tsv").write_text("one\teins\n")
    Path("b.tsv").write_text("x\teins\tone\n")
    Path("a.jsonl").write_text('{"translation": {"en": "one", "de": "eins"}}\n')
    Path("b.jsonl").write_text('{"x": "one", "y": "eins"}\n')
    sources = [
        SourceConfig(src="a.en", tgt="a.de"),
        SourceConfig(tsv="a.tsv", tag="<x>"),
        SourceConfig(tsv="b.tsv", src_column="3", tgt_column="2"),
        SourceConfig(jsonl="a.jsonl"),
        SourceConfig(jsonl="b.jsonl", src_column="x", tgt_column="y"),
    ]
    expected = [("one", "eins"), ("two", "zwei"), ("<x> one", "eins"), *[("one", "eins")] * 3]
    assert list(read_pairs(sources, src_lang="en", tgt_lang="de")) == expected
    others = list(map(recipe.reversed_source, sources))
    backward = [("eins", "one"), ("zwei", "two"), ("<x> eins", "one"), *[("eins", "one")] * 3]
    assert list(read_pairs(others, src_lang="de", tgt_lang="en")) == backward
    again = list(map(recipe.reversed_source, others))
    assert list(read_pairs(again, src_lang="en", tgt_lang="de")) == expected
    sample = SourceConfig(sample="valid")
    assert recipe.reversed_source(sample) == sample
    assert recipe.reversed_source(SourceConfig(testset="wmt19", langs="en-de")).langs == "de-en"
    with pytest.raises(InputError, match="--reverse FOLDER"):
        recipe.reversed_source(SourceConfig(tsv="a.tsv", tag="<2fr>", tgt_lang="fr"))


def test_text_is_a_file_or_the_target_side_of_a_source() -> None:
    assert recipe.text_source("a, b.de") == SourceConfig(src="a, b.de", tgt="a, b.de")
    source = recipe.text_source("{jsonl: 2024-01, tgt_column: no}")  # Norwegian
    assert source == SourceConfig(jsonl="2024-01", tgt_column="no")
    for text in ("{tsv", "{tsv: a.tsv, no: 1}", "{a}"):
        with pytest.raises(InputError, match="is not a data source"):
            recipe.text_source(text)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (["forward:train.seed=x"], "train.seed"),
        (["translate:beam_sise=2"], "did you mean beam_size"),
        (["--mono", "missing.de"], r"--mono: there is no .*missing\.de"),
    ],
)
def test_errors_of_the_last_step_come_first(
    wrong: list[str], message: str, tmp_path: Path, program: Program
) -> None:
    (tmp_path / "mono.de").touch()
    arguments = ["bt", "--mono", "mono.de", "experiment=quickstart", "cache_dir=c", *wrong]
    status, out, err = program("back_translate", *arguments)
    assert status in (1, 2)
    assert out == ""
    assert re.search(message, err)
    assert [path.name for path in tmp_path.iterdir()] == ["mono.de"]


def test_back_translation_with_the_configuration_and_the_held_out_pairs_of_a_run(
    tmp_path: Path, program: Program
) -> None:
    data = replace(JOB.data, valid=[], valid_pairs=2, test=[], test_pairs=3)
    write_config(tmp_path, replace(JOB, data=data, run_dir="r"))
    (tmp_path / "data").mkdir()
    for name in ("valid.en", "valid.de", "test.en", "test.de"):
        (tmp_path / "data" / name).touch()
    run = ["--config-dir", str(tmp_path), "--config-name", "config"]
    status, out, err = program("back_translate", "bt", "--mono", "mono.de", *run, "--dry-run")
    assert status == 0, err
    valid = [SourceConfig(src=f"{tmp_path}/data/valid.en", tgt=f"{tmp_path}/data/valid.de")]
    *_, forward = out.splitlines()
    assert shlex.join(["data.valid_pairs=null", override("data.valid", valid)]) in forward
    assert "data.test_pairs=null" in forward


def test_a_model_of_the_same_direction_is_refused(tmp_path: Path, program: Program) -> None:
    write_model(tmp_path / "model")
    arguments = ["bt", "--mono", "mono.de", "--reverse", "model", "data=sample"]
    status, _, err = program("back_translate", *arguments)
    assert (status, err.count("\n")) == (1, 1)
    assert "--reverse model translates en to de, not de to en" in err
    arguments += ["data.src_lang=de", "data.tgt_lang=en"]
    assert "--mono: there is no" in program("back_translate", *arguments)[2]


def test_cleaned_lines_are_translated_whole(
    tmp_path: Path, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    decode = replace(JOB.decode, max_source_tokens=20)
    write_model(tmp_path / "model", replace(JOB, decode=decode))
    (tmp_path / "mono.de").write_text("the dog jumps\n" + "the dog jumps " * 20)
    monkeypatch.setenv("HOME", str(tmp_path))
    text = override("data.train", [recipe.text_source("~/mono.de")])
    status, _, err = program("clean_text", "out.de", "--model", "model", "data=sample", text)
    assert status == 0, err
    assert (tmp_path / "out.de").read_text() == "the dog jumps\n"


# Two steps, each of which notes its start and copies a file; the first may be slow, or fail.
STEPS = """
import sys
from pathlib import Path
sys.path.insert(0, {recipes!r})
import recipe
recipe._SCRIPTS = Path(".")
steps = [
    recipe.Step("a", ["copy_file.py", "in", "a", *sys.argv[1:]], Path("a"), [Path("in")]),
    recipe.Step("b", ["copy_file.py", "a", "b"], Path("b"), [Path("a")]),
]
recipe.main(lambda: recipe.run_steps(Path("."), steps, dry_run="--dry-run" in sys.argv))
"""
COPY = """
import os, sys, time
from pathlib import Path
source, target, *more = sys.argv[1:]
with open("starts", "a") as file: file.write(target)
print("copied", target, flush=True)
if "slow" in more: Path("busy").write_text(str(os.getpid())); time.sleep(30)
if "fail" in more: sys.exit(3)
Path("temporary").write_text(Path(source).read_text())
Path("temporary").rename(target)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "steps.py").write_text(STEPS.format(recipes=str(RECIPES)))
    (tmp_path / "copy_file.py").write_text(COPY)
    (tmp_path / "in").write_text("text")
    return tmp_path


@pytest.fixture
def run(folder: Path, program: Program, monkeypatch: pytest.MonkeyPatch) -> Program:
    """Runs the steps."""
    monkeypatch.setattr(recipe, "_SCRIPTS", Path())
    return partial(program, str(folder / "steps"))


def starts(folder: Path) -> str:
    path = folder / "starts"
    return path.read_text() if path.exists() else ""


def test_steps_run_once_and_the_last_one_writes_to_stdout(folder: Path, run: Program) -> None:
    status, out, err = run("data.workers=2")
    assert (status, out, starts(folder)) == (0, "copied b\n", "ab")
    assert "$ python copy_file.py in a data.workers=2\ncopied a\n" in err
    for name in ("in", "a", "b"):  # as copies of the files have other times
        os.utime(folder / name, (0, 0))
    without_effect = ["data.workers=0", "cache_dir=x"]
    assert run(*without_effect) == (0, "", "[1/2] a: done\n[2/2] b: done\n")
    (folder / "b").unlink()
    assert run(*without_effect)[0] == 0
    assert starts(folder) == "abb"


def test_what_another_command_or_input_made_is_refused_in_one_line(
    folder: Path, run: Program
) -> None:
    (folder / "a").write_text("mine")
    status, _, err = run()
    assert (status, err.count("\n")) == (1, 1)
    assert err.startswith("steps: error: a was not made by this recipe: move it, or choose")
    (folder / "a").unlink()
    assert run()[0] == 0
    status, out, err = run("more")
    assert (status, out) == (1, "")
    (line,) = err.splitlines()
    assert line.startswith("steps: error: a was made by another command: to make it again, delete")
    assert "(a, b)" in line
    (folder / "in").write_text("other text")
    status, _, err = run()
    assert status == 1
    assert "a was made from another in:" in err
    (folder / "a").unlink()
    status, _, err = run()
    assert status == 1
    assert "b was made from another a:" in err
    (folder / "b").unlink()
    assert run()[0] == 0
    assert (folder / "b").read_text() == "other text"


def test_a_failed_step_stops_with_its_status_and_runs_again(folder: Path, run: Program) -> None:
    status, _, err = run("fail")
    assert (status, starts(folder)) == (3, "a")
    assert "run the same command again to resume with this step" in err
    assert run()[0] == 0  # nothing was made by the failed command
    assert starts(folder) == "aab"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_ends_the_step_as_well(number: signal.Signals, folder: Path, run: Program) -> None:
    process = subprocess.Popen(
        [sys.executable, "steps.py", "slow"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    busy = folder / "busy"
    wait_until(lambda: busy.exists() and busy.read_text())
    other = run("slow")
    assert other[0] == 1
    assert "another process is at work in ." in other[2]
    process.send_signal(number)
    process.wait(60)
    if number != signal.SIGKILL:
        assert process.returncode == 128 + number
    assert not (folder / "a").exists()
    wait_until(lambda: not Path("/proc", busy.read_text(), "cwd").exists(), 20)
    busy.unlink()
    assert run()[0] == 0
    assert starts(folder) == "aab"


def test_the_input_is_not_overwritten(tmp_path: Path, program: Program) -> None:
    (tmp_path / "mono.de").write_text("eins\n")
    (tmp_path / "back.en").write_text("one\n")
    status, _, err = program("pair_translations", "mono.de", "back.en", "back.en")
    assert (status, err.count("\n")) == (1, 1)
    assert "would overwrite" in err
    argv = ["mono.de", "--model", "m", "data=files", "data.src_lang=en", "data.tgt_lang=de"]
    argv += ["data.train=[{src: mono.de, tgt: mono.de}]", "data.valid=[{tsv: a}]"]
    status, _, err = program("clean_text", *argv)
    assert (status, err.count("\n")) == (1, 1)
    assert "would overwrite" in err
    assert (tmp_path / "mono.de").read_text() == "eins\n"
    assert (tmp_path / "back.en").read_text() == "one\n"


def test_a_failed_translation_is_dropped_with_its_pair(tmp_path: Path, program: Program) -> None:
    (tmp_path / "mono.de").write_text("eins\nzwei\ndrei\nvier \u2028 fünf\n", encoding="utf-8")
    (tmp_path / "back.en").write_text("one\n\nthree\tthree\nfour\n")
    status, _, err = program("pair_translations", "mono.de", "back.en", "out.tsv", "--reverse")
    assert (status, err) == (0, "4 lines, 3 pairs; dropped: 1 without a translation\n")
    expected = "one\teins\nthree three\tdrei\nfour\tvier   fünf\n"
    assert (tmp_path / "out.tsv").read_text("utf-8") == expected
    (tmp_path / "mono.de").write_text("eins\n")
    status, _, err = program("pair_translations", "mono.de", "back.en", "again.tsv")
    assert status == 1
    assert "mono.de has 1 lines but back.en has 4" in err
    assert not (tmp_path / "again.tsv").exists()


def test_selection_from_nbest_lists(tmp_path: Path, program: Program) -> None:
    rng = random.Random(1)
    words = ["a", "big", "red", "house", "stands", "near", "the", "old", "river"]
    rows, references, best, nearest = [], [], [], []
    for i in range(40):
        texts = [" ".join(rng.sample(words, rng.randint(3, 7))) for _ in range(4)]
        scores = sorted((rng.uniform(-3, 0) for _ in texts), reverse=True)
        references.append(" ".join(rng.sample(words, 5)))
        found = [{"text": t, "score": s} for t, s in zip(texts, scores, strict=True)]
        rows.append({"source": f"line {i}", "translations": found})
        best.append((scores[0], f"line {i}\t{texts[0]}\n"))
        bleu = [sentence_bleu(text, [references[-1]]).score for text in texts]
        nearest.append(f"line {i}\t{texts[bleu.index(max(bleu))]}\n")
    (tmp_path / "in").write_text("".join(f"line {i}\n" for i in range(40)))
    (tmp_path / "ref").write_text("".join(f"{line}\n" for line in references))
    (tmp_path / "out.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    assert program("pair_translations", "in", "out.jsonl", "a.tsv", "--closest-to", "ref")[0] == 0
    assert (tmp_path / "a.tsv").read_text() == "".join(nearest)
    status, _, err = program("pair_translations", "in", "out.jsonl", "b.tsv", "--keep", "0.75")
    assert status == 0
    assert err.startswith("40 lines, 30 pairs; dropped: 0 without a translation, 10 with a score")
    limit = sorted(score for score, _ in best)[10]
    assert (tmp_path / "b.tsv").read_text() == "".join(t for score, t in best if score >= limit)

    rows[7]["source"] = "another"
    (tmp_path / "out.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    status, _, err = program("pair_translations", "in", "out.jsonl", "c.tsv")
    assert status == 1
    assert "out.jsonl, line 8: its source is not line 8 of" in err
