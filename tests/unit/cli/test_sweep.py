"""Sweeps by Hydra: folders, failures, results; with stand-ins, and once for real."""

import json
import re
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.paths import ROOT
from support.training_runs import Running, arguments, records, write_corpus

from transformer_mt import compose
from transformer_mt.cli import command_line
from transformer_mt.config import Command, TrainJob
from transformer_mt.model_folder import write_config

Run = Callable[..., tuple[int, str, str]]
Sweep = Callable[..., tuple[int, str, list[Any]]]


@pytest.fixture
def sweep(run: Run, monkeypatch: pytest.MonkeyPatch) -> Sweep:
    """Runs a sweep in which each process only composes its job: status, stderr and the jobs."""

    def command(name: Command, *argv: str, statuses: list[int] | None = None) -> Any:
        started: list[list[str]] = []
        ends = iter(statuses or [])

        def process(arguments: list[str]) -> int:
            started.append(arguments)
            return next(ends, 0)

        monkeypatch.setattr(command_line, "run_process", process)
        status, out, err = run(name, "-m", *argv, job=pytest.fail)
        assert out == ""
        jobs: list[Any] = []
        for command, *one in started:
            assert command == name
            assert run(name, *one, job=jobs.append) == (0, "", "")
        return status, err, jobs

    return command


@pytest.mark.parametrize(
    ("argv", "folders"),
    [
        (
            ["experiment=table3/C_layers_2,table3/C_layers_4", "run_dir=r"],
            ["r/experiment=table3/C_layers_2", "r/experiment=table3/C_layers_4"],
        ),
        (
            ["run_dir=r,s", "model=tiny", "train.seed=1,2"],
            [f"{base}/train.seed={seed}" for base in "rs" for seed in (1, 2)],
        ),
        (["run_dir=r", "train.seed=3", "train.seed=1,2"], ["r/train.seed=1", "r/train.seed=2"]),
        (["run_dir=n", "train.seed=1", "model=tiny"], ["n/model=tiny,train.seed=1"]),
        (["train.seed=1"], ["runs/wmt14_en_de/train.seed=1"]),
    ],
    ids=["options", "run_dir", "the later one holds", "nothing varies", "default run_dir"],
)
def test_folders_have_the_names_of_the_swept_settings(
    sweep: Sweep, argv: list[str], folders: list[str]
) -> None:
    status, err, jobs = sweep("train", *argv)
    assert status == 0
    assert [job.run_dir for job in jobs] == folders
    assert {job.model.d_model for job in jobs} == {128 if "model=tiny" in argv else 512}
    for i, (line, folder) in enumerate(zip(err.splitlines(), folders, strict=True)):
        assert re.fullmatch(rf"mt-train: job {i} \((.+)\) -> .+/\1", line)
        assert line.endswith(f" -> {folder}")


@pytest.mark.parametrize("flag", ["", "--config-dir=FOLDER", "hydra.searchpath=['file://FOLDER']"])
def test_a_job_has_the_data_and_the_options_of_its_sweep(
    flag: str, sweep: Sweep, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("it's {configs}" if flag[:1] == "-" else "own")
    (folder / "model").mkdir()
    (folder / "model/mine.yaml").write_text("defaults: [tiny]\nd_ff: 48\n")
    argv = ["run_dir=r s", "train.seed=1,2", "model=mine" if flag else "model=tiny"]
    argv += ["data=files", "data.src_lang=en", "data.tgt_lang=de", "data.valid=[{tsv: 'v w'}]"]
    argv += ["data.train=[{tsv: c}],[{tsv: 'a, b'}]", flag.replace("FOLDER", str(folder))]
    jobs: list[TrainJob] = sweep("train", *filter(None, argv))[2]
    assert [job.train.seed for job in jobs] == [1, 1, 2, 2]
    assert {job.model.d_ff for job in jobs} == {48 if flag else 256}
    assert {job.data.valid[0].tsv for job in jobs} == {"v w"}
    assert [job.data.train[0].tsv for job in jobs] == ["c", "a, b"] * 2
    folders = {Path(job.run_dir) for job in jobs}
    assert len(folders) == 4
    assert {folder.parent for folder in folders} == {Path("r s")}


def test_the_configuration_of_a_run_can_be_swept(
    sweep: Sweep, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("run")
    write_config(folder, compose(["model=tiny", "run_dir=r"]))
    found = ["--config-dir", str(folder), "--config-name", "config"]
    jobs = sweep("train", *found, "run_dir=s", "train.seed=1,2")[2]
    assert [job.run_dir for job in jobs] == ["s/train.seed=1", "s/train.seed=2"]
    assert {job.model.d_model for job in jobs} == {128}


def test_texts_of_a_sweep_are_what_was_typed(sweep: Sweep) -> None:
    jobs = sweep("translate", "model=x", "input=it's 1.50", "output=a,'1_0'", "tag=1.10")[2]
    assert [job.output for job in jobs] == ["a", "1_0"]
    assert {(job.input, job.tag) for job in jobs} == {("it's 1.50", "1.10")}
    numbered = 'output="a.${hydra:job.num}.de"'
    jobs = sweep("translate", "model=x", "input=a", "beam_size=1,4", numbered)[2]
    assert [(job.beam_size, job.output) for job in jobs] == [(1, "a.0.de"), (4, "a.1.de")]


def test_the_value_of_a_job_is_its_best_validation(
    sweep: Sweep, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, run_job, values = tmp_path_factory.mktemp("sweep"), command_line._run_job, []
    (trained := folder / "train.seed=1").mkdir()
    (trained / "run.json").write_text('{"end": {"best": {"score": 37.5}}}')
    monkeypatch.setattr(command_line, "_run_job", lambda *args: values.append(run_job(*args)))
    assert sweep("train", f"run_dir={folder}", "train.seed=1,2")[0] == 0
    assert values == [37.5, None]  # the other one has only prepared its data


def test_a_failed_job_does_not_end_the_sweep(sweep: Sweep) -> None:
    status, err, jobs = sweep("train", "run_dir=r", "train.seed=1,2,3", statuses=[1, -9])
    assert (status, len(jobs)) == (1, 3)
    errors = [line for line in err.splitlines() if " error: " in line]
    assert errors == ["mt-train: error: job 0 (train.seed=1) failed: its error is above"]


@pytest.mark.parametrize("status", [130, 143])
def test_an_interrupted_job_ends_the_sweep(sweep: Sweep, status: int) -> None:
    found, _, jobs = sweep("train", "train.seed=1,2", statuses=[status])
    assert (found, len(jobs)) == (status, 1)


def test_a_sweep_starts_torchrun_itself(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    status, err, jobs = sweep("train", "train.seed=1,2")
    assert (status, err.count("\n"), jobs) == (2, 1, [])


def test_real_sweep_and_its_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_corpus(tmp_path, pairs=30)
    more = ("train.max_steps=2", "train.log_every=1", "train.best_by=nll", "data.workers=0")
    settings = arguments(tmp_path, tmp_path / "sweep", *more)
    running = Running("train", ["-m", *settings, "train.seed=1,2"], tmp_path / "out")
    running.done()
    models = sorted((tmp_path / "sweep").glob("*/model.safetensors"))
    assert [path.parent.name for path in models] == ["train.seed=1", "train.seed=2"]
    unfinished = tmp_path / "sweep/x"
    unfinished.mkdir()
    config = (models[0].parent / "config.yaml").read_text()
    (unfinished / "config.yaml").write_text(config.replace("seed: 1", "seed: 9"))
    (unfinished / "metrics.jsonl").write_text(
        '{"step": 1, "split": "valid", "loss": 6.5, "nll": 6.25, "ppl": 518.01}\n'
        '{"step": 2, "split": "valid", "loss": 7.0, "nll": 6.75, "ppl": 854.06}\n'
    )
    script = str(ROOT / "scripts/compare_runs.py")
    monkeypatch.setattr(sys, "argv", [script, str(tmp_path / "sweep")])
    runpy.run_path(script, run_name="__main__")
    head, *rows, last = capsys.readouterr().out.splitlines()
    columns = ["run", "train.seed", "updates", "valid loss", "valid ppl", "best valid nll"]
    columns += ["test BLEU", "test chrF2", "test TER", "test BLEU (paper protocol)"]
    assert re.split("  +", head) == columns
    assert re.split("  +", last) == [
        str(unfinished), "9", "2, unfinished", "7.00", "854.06", "6.25"
    ]  # fmt: skip
    assert len(rows) == 2
    for seed, row in enumerate(rows, 1):
        name, *shown, best = row.split()[:6]
        scores = row.split()[6:]
        tested = json.loads((Path(name) / "test.json").read_text())
        assert scores == [f"{s['score']:.2f}" for s in tested]
        (valid,) = records(Path(name), "valid")
        assert shown == [str(seed), "2", f"{valid['loss']:.2f}", f"{valid['ppl']:.2f}"]
        assert best == f"{valid['nll']:.2f}"
