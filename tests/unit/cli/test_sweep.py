"""Sweeps by Hydra: folders, failures, results; with stand-ins for training, and once for real."""

import json
import re
import runpy
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from support.paths import ROOT
from support.training_runs import Running, arguments, write_corpus

from transformer_mt.cli import main as cli
from transformer_mt.config import TrainJob
from transformer_mt.errors import InputError

Run = Callable[..., tuple[int, str, str]]


def test_a_sweep_of_translations_leaves_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary, work = tmp_path / "it's {BUILD} tmp", tmp_path / "work"
    temporary.mkdir(), work.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    monkeypatch.setattr(sys, "argv", ["mt-translate", "-m", "model=x", "input=a", "beam_size=1,4"])
    sizes: list[int] = []
    cli.main("translate", lambda job: sizes.append(job.beam_size))
    assert (sizes, [*temporary.iterdir()], [*work.iterdir()]) == ([1, 4], [], [])


def test_translations_of_a_sweep_do_not_share_a_file(run: Run) -> None:
    for given, message in (("input=a output=b", "same files, output=b: set"), ("", "input=FILE")):
        assert message in run("translate", "-m", "model=x,y", *given.split(), job=print)[2]


def test_a_failed_job_does_not_end_the_sweep(run: Run) -> None:
    done: list[str] = []

    def job(job: TrainJob) -> None:
        if job.train.seed == 1:
            raise InputError("a.en:3:\nno")
        done.append(job.run_dir)

    # Half of them cannot even be composed: no updates at all.
    argv = ["-m", "run_dir=r", "train.seed=1,2", "train.max_steps=5,0"]
    status, _, err = run("train", *argv, job=job)
    assert (status, done) == (1, ["r/train.max_steps=5,train.seed=2"])
    errors = [line for line in err.splitlines() if " error: " in line]
    first = "job 0 (train.max_steps=5,train.seed=1)"
    assert errors[0] == f"mt-train: {first}: error: a.en:3: no"
    assert errors[1].startswith("mt-train: job 1 (train.max_steps=0,train.seed=1): error: ")
    assert errors[-1] == f"mt-train: error: {first} failed: its error is above"
    assert len(errors) == 4


@pytest.mark.parametrize(
    ("error", "expected"),
    [(KeyboardInterrupt(), 130), (SystemExit(143), 143), (InputError("under a launcher"), 1)],
)
def test_interrupts_and_failures_under_a_launcher_end_the_sweep(
    run: Run, error: BaseException, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if expected == 1:
        monkeypatch.setenv("RANK", "1")
        monkeypatch.setenv("WORLD_SIZE", "2")
    seeds: list[int] = []

    def job(job: TrainJob) -> None:
        seeds.append(job.train.seed)
        raise error

    status, out, _ = run("train", "-m", "train.seed=1,2", job=job)
    assert (status, seeds, out) == (expected, [1], "")


@pytest.mark.parametrize(
    ("argv", "folders"),
    [
        (
            ["-m", "experiment=table3/C_layers_2,table3/C_layers_4", "run_dir=r"],
            ["r/experiment=table3/C_layers_2", "r/experiment=table3/C_layers_4"],
        ),
        (
            ["-m", "run_dir=r,s", "model=tiny", "train.seed=1,2"],
            [f"{base}/train.seed={seed}" for base in "rs" for seed in (1, 2)],
        ),
        (
            ["-m", "run_dir=r", "train.seed=3", "train.seed=1,2"],
            ["r/train.seed=1", "r/train.seed=2"],
        ),
        (["-m", "run_dir=n", "train.seed=1", "model=tiny"], ["n/model=tiny,train.seed=1"]),
        (["hydra.mode=MULTIRUN", "train.seed=1"], ["runs/wmt14_en_de/train.seed=1"]),
    ],
    ids=["options", "run_dir", "the later one holds", "nothing varies", "without -m"],
)
def test_folders_have_the_names_of_the_swept_settings(
    run: Run, argv: list[str], folders: list[str]
) -> None:
    jobs: list[TrainJob] = []
    status, out, err = run("train", *argv, job=jobs.append)
    assert (status, out) == (0, "")
    assert [job.run_dir for job in jobs] == folders
    assert {job.model.d_model for job in jobs} == {128 if "model=tiny" in argv else 512}
    for i, (line, folder) in enumerate(zip(err.splitlines(), folders, strict=True)):
        assert re.fullmatch(rf"mt-train: job {i} \((.+)\) -> .+/\1", line)
        assert line.endswith(f" -> {folder}")


def test_different_data_sources_have_different_folders(run: Run) -> None:
    jobs: list[TrainJob] = []
    sources = "data.train=[{tsv: 'a b'}],[{tsv: 'a  b'}],[{tsv: ab}]"
    assert run("train", "-m", "run_dir=r", "data=sample", sources, job=jobs.append)[0] == 0
    folders = {Path(job.run_dir) for job in jobs}
    assert [folder.parent for folder in folders] == [Path("r")] * 3


@pytest.mark.parametrize("flag", ["", "--config-dir=FOLDER", "hydra.searchpath=['file://FOLDER']"])
def test_the_command_of_one_job_composes_the_same_job(
    flag: str, run: Run, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """torchrun runs it, and ``run.json`` records it."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "model").mkdir()
    (folder / "model/mine.yaml").write_text("defaults: [tiny]\nd_ff: 48\n")
    argv = ["-m", "run_dir=r s", "train.seed=1,2", "model=mine" if flag else "model=tiny"]
    argv += ["data=files", "data.src_lang=en", "data.tgt_lang=de", "data.valid=[{tsv: 'v w'}]"]
    argv += [
        "data.train=[{tsv: 1.10}],[{tsv: 'a, b'}]",
        flag.replace("FOLDER", str(folder)),
    ]
    found: list[tuple[TrainJob, list[str]]] = []
    again: list[TrainJob] = []
    run("train", *filter(None, argv), job=lambda job: found.append((job, sys.argv)))
    for _, command in found:
        run("train", *command[1:], job=again.append)
    assert len(again) == 4
    for (job, _), same in zip(found, again, strict=True):
        assert replace(same, run_dir=job.run_dir) == job
        assert same.run_dir == str(Path(job.run_dir).absolute())


def test_real_sweep_its_table_and_one_more_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_corpus(tmp_path, pairs=30)
    more = ("train.max_steps=2", "train.log_every=1", "train.best_by=nll", "data.workers=0")
    settings = arguments(tmp_path, tmp_path / "sweep", *more)

    def mt_train(name: str, seeds: str) -> None:
        running = Running("train", ["-m", *settings, f"train.seed={seeds}"], tmp_path / name)
        assert running.done()[1].endswith(f": scripts/compare_runs.py {tmp_path / 'sweep'}\n")

    mt_train("first", "1,2")
    models = sorted((tmp_path / "sweep").glob("*/model.safetensors"))
    written = {path: path.stat().st_mtime_ns for path in models}
    assert [path.parent.name for path in models] == ["train.seed=1", "train.seed=2"]
    mt_train("again", "2,3")
    assert all(path.stat().st_mtime_ns == at for path, at in written.items())  # not trained again
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
    assert len(rows) == 3
    for seed, row in enumerate(rows, 1):
        name, *shown, best = row.split()[:6]
        scores = row.split()[6:]
        tested = json.loads((Path(name) / "test.json").read_text())
        assert scores == [f"{s['score']:.2f}" for s in tested]
        lines = (Path(name) / "metrics.jsonl").read_text().splitlines()
        (valid,) = (r for r in map(json.loads, lines) if r["split"] == "valid")
        assert shown == [str(seed), "2", f"{valid['loss']:.2f}", f"{valid['ppl']:.2f}"]
        assert best == f"{valid['nll']:.2f}"
