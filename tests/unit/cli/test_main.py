"""The main function of the commands: composition, exit statuses, one-line errors."""

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf

from transformer_mt.cli import main as cli
from transformer_mt.cli.help import help_text
from transformer_mt.config import JOBS, Command, TranslateJob
from transformer_mt.errors import InputError

Run = Callable[..., tuple[int, str, str]]


def test_model_folder_is_not_a_config_group(run: Run) -> None:
    jobs: list[Any] = []
    argv = ["model=base", "beam_size=8", 'input="a, b=c.en"']
    assert run("translate", *argv, job=jobs.append) == (0, "", "")
    assert jobs == [TranslateJob(model="base", beam_size=8, input="a, b=c.en")]


BAD_USAGE = {
    "train.batch_size=1": ["'train.batch_size'", "train.batch_tokens"],
    "experiments=quickstart": ["'experiments'", "experiment?"],
    "nonsense=1": ["'nonsense'", "--help lists"],
    "+train.nonsense=1": ["train.nonsense: there is no such setting"],
    "data.train=[{scr: a}]": ["'scr'", "data.train"],
    "train.max_steps=many": ["train.max_steps=many"],
    "train.seed=${nowhere}": ["train.seed", "nowhere"],
    "train.seed=???": ["train.seed"],
    "model=huge": ["model=huge", "big, deep_shallow, medium, mini, small, student, tiny, auto"],
    "max_step=1": ["mean train.max_steps"],
    "data.cleaning=standard": ["; a preset is chosen by cleaning=none, paper or standard"],
    "train.max=1": ["train.max_hours or train.max_steps?"],
    "experiment=quickstrat": ["experiment=quickstrat", "mean experiment=quickstart?", "table3/big"],
    "experiment=table3/C_layers_3": ["mean experiment=table3/C_layers_", "table3/A_heads_1, "],
    "src=a.en": ["'src'", "'data.train=[{src: FILE, tgt: FILE}]'"],
    "augment.upper_case=1": ["--help lists all settings"],
    "dropout=0.1": ["did you mean model.dropout or "],
    "trian.max_steps=5": ["did you mean train.max_steps?"],
    "decode.sampling=true": ["a setting of mt-translate, sampling=VALUE"],
    "data.train=[{tsv: a}]": ["data.valid and data.test would be WMT14's", "data=files"],
    "train.max_steps=1,2": ["train.max_steps=1,2", "-m"],
    "train.trackers=[a=b]": ["'train.trackers=[a=b]'", "quotes"],
    "in.en": ["'in.en'", "KEY=VALUE", "--help"],
    "--max-tokens=5": ["--max-tokens=5", "data.cleaning.max_tokens=VALUE"],
    "--experimental-rerun=a.pickle": ["--experimental-rerun"],  # it would unpickle the file
    "--config-dir=/nowhere": ["/nowhere"],
    "cleaning.max_tokens=9": ["did you mean data.cleaning.max_tokens or "],
    "cleaning.strict=1": ["its settings are written data.cleaning.NAME"],
    "data.train={src: a, tgt: b}": ["ListConfig; a list is written 'KEY=[ITEM, "],
    "data.train=[a, b]": ["; a data source is written {tsv: FILE} or {src: FILE,"],
    "data.train.0.tsv=x": ["read-only", "; a list is set as a whole: 'KEY=[ITEM, ITEM]'"],
    "model=[1]": ["(given: 'model=[1]')"],
}


@pytest.mark.parametrize("argument", BAD_USAGE)
def test_bad_usage_is_one_line_and_status_2(run: Run, argument: str) -> None:
    status, out, err = run("train", argument, job=pytest.fail)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("mt-train: error: ")
    for part in BAD_USAGE[argument]:
        assert part in err


def test_custom_experiment_needs_a_package_header(
    run: Run, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("it's {configs}")
    (folder / "experiment").mkdir()
    mine = folder / "experiment/mine.yaml"
    argv = [f"--config-dir={folder}", "experiment=mine"]
    for text in ("train:\n  max_steps: 5\n", "defaults:\n  - override /data: files\n"):
        mine.write_text(text)
        status, _, err = run("train", *argv, job=pytest.fail)
        assert (status, err.count("\n")) == (2, 1)
        assert "# @package _global_" in err
    mine.write_text("# @package _global_\ntrain:\n  max_steps: 5\n")
    jobs: list[Any] = []
    assert run("train", *argv, job=jobs.append)[0] == 0
    assert jobs[0].train.max_steps == 5


def test_a_folder_of_a_sweep_has_an_equals_sign(
    run: Run, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("sweep") / "train.seed=1"
    folder.mkdir()
    (folder / "config.yaml").write_text("train:\n  max_steps: 5\ndefaults: [train, _self_]\n")
    jobs: list[Any] = []
    argv = ["--config-dir", str(folder), "--config-name", "config", "run_dir=a"]
    assert run("train", *argv, job=jobs.append)[0] == 0
    assert jobs[0].train.max_steps == 5


@pytest.mark.parametrize(
    ("status", "name", "argv", "part"),
    [
        (2, "translate", [], "model=FOLDER"),
        (2, "evaluate", ["hypotheses=[a]"], "references"),
        (2, "export", ["model=a", "format=hub"], "output=FOLDER"),
        (2, "train", ["data=files"], "data.src_lang"),
        (2, "train", ["-m", "train.seed=1,two"], ""),  # a sweep, which runs nothing
        (2, "train", ["-m", "train.seed=[1"], ""),
        # Values of the right type, which are bad input.
        (1, "train", ["model.d_model=7"], "model.d_model=7"),
        (1, "train", ["run_dir="], "run_dir is empty: set it to a folder"),
        (1, "evaluate", ["hypotheses=[a]", "references=[a]", "metrics=[comet]"], "source=FILE"),
    ],
)
def test_bad_usage_and_bad_input_of_a_command(
    run: Run, status: int, name: Command, argv: list[str], part: str
) -> None:
    found, out, err = run(name, *argv, job=pytest.fail)
    assert (found, out, err.count("\n")) == (status, "", 1)
    assert part in err


def raising(error: BaseException) -> Callable[[object], None]:
    def job(_: object) -> None:
        raise error

    return job


@pytest.mark.parametrize(
    ("error", "status", "part"),
    [
        (lambda _: torch.empty(2**60), 1, "error: out of memory ("),  # PyTorch's own error
        (InputError("a.en:3: no"), 1, "error: a.en:3: no\n"),
        (PermissionError(errno.EACCES, "denied", "/x/y"), 1, "error: denied: /x/y\n"),
        (OSError(errno.ENOSPC, "No space left"), 1, "error: No space left\n"),
        (ConnectionError("the hub\nis away"), 1, "error: the hub is away\n"),
        (MemoryError(), 1, "error: out of memory (MemoryError)"),
        (KeyboardInterrupt(), 130, "interrupted\n"),
    ],
)
def test_errors_of_input_and_environment_are_one_line(
    run: Run, error: Any, status: int, part: str
) -> None:
    job = error if callable(error) else raising(error)
    found, out, err = run("translate", "model=m", job=job)
    assert (found, out, err.count("\n")) == (status, "", 1)
    assert err.startswith("mt-translate: ")
    assert part in err


def test_a_bug_is_left_to_python(run: Run) -> None:
    with pytest.raises(ValueError, match="a bug"):
        run("translate", "model=m", job=raising(ValueError("a bug")))
    assert run("translate", "model=m", job=raising(SystemExit(143))) == (143, "", "")


TEXTS = [
    *["1.50", "1_0", "1e3", "1.10", ".5", "-7", "inf", "NaN", "true", "False", "007"],
    "null and void",
    "The animal didn't cross the street because it was too tired .",
    'Commas, "quotes" and {braces: [1, 2]} # 5 € = \\',
    "out (1).de",
]


def test_a_text_is_what_was_typed(run: Run) -> None:
    """As Hydra reads them, ``output=1_0`` would replace a file that is named 10."""
    jobs: list[Any] = []
    for text in TEXTS:
        argv = [f"model={text}", f"input={text}", f"output={text}"]
        assert run("translate", *argv, job=jobs.append) == (0, "", "")
    assert [(job.model, job.input, job.output) for job in jobs] == [(text,) * 3 for text in TEXTS]
    argv = ["model=x", "report='It\\'s quoted, for Hydra'"]
    assert run("evaluate", *argv, job=jobs.append)[0] == 0
    assert jobs[-1].report == "It's quoted, for Hydra"
    assert run("translate", "model=x", "input=null", job=jobs.append)[0] == 0
    assert jobs[-1].input is None


def test_cfg_prints_the_recipe_and_runs_nothing(run: Run) -> None:
    argv = ["model=base", "-c", "job", "train.seed=3"]  # flags may stand anywhere
    status, out, err = run("train", *argv, job=pytest.fail)
    assert (status, err) == (0, "")
    config = OmegaConf.create(out)
    assert (config.model.d_model, config.train.max_steps) == (512, 100_000)
    assert config.train.seed == 3


@pytest.mark.parametrize("name", JOBS)
def test_help_and_version(run: Run, name: Command) -> None:
    program, text = cli.PROGRAMS[name], help_text(name)
    assert f'eval "$({program} -sc install=bash)"' in text
    assert run(name, "--help", job=pytest.fail) == (0, f"{text}\n", "")
    assert run(name, "--version", job=pytest.fail)[1].startswith(program)


def test_completion_in_a_shell(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "complete " in run("translate", "-sc", "install=bash", job=pytest.fail)[1]
    monkeypatch.setenv("COMP_LINE", "mt-translate mod")
    assert "model" in run("translate", "-sc", "query=bash", job=pytest.fail)[1]


CHILD = """
import sys
from transformer_mt.cli import main as cli

def run(job):
    sys.stdout.write("0\\n\\u03bc\\n" * (1 if job.nbest < 9 else 100_000))

cli.RUN["translate"] = run
cli.main("translate")
"""


def child(*argv: str, stdout: Any = subprocess.PIPE, **environment: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", CHILD, "model=x", "format=jsonl", *argv]
    root = Path(cli.__file__).parents[2]
    env = {**os.environ, "PYTHONPATH": str(root), "PYTHONUNBUFFERED": "", **environment}
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdout=stdout, stderr=pipe, encoding="utf-8", env=env)


def test_closed_pipe_ends_the_command_quietly() -> None:
    with child("nbest=9") as process:
        assert process.stdout
        assert process.stderr
        assert process.stdout.readline() == "0\n"
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 128 + signal.SIGPIPE


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_reported_for_the_last_bytes() -> None:
    with Path("/dev/full").open("w") as full, child("nbest=2", stdout=full) as process:
        assert process.stderr
        assert process.stderr.read() == "mt-translate: error: No space left on device\n"
    assert process.returncode == 1
