"""Sweeps by Hydra: folders, failures, results; with stand-ins for training, and once for real."""

import json
import re
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from support.paths import ROOT
from support.training_runs import Running, arguments, write_corpus

from transformer_mt.cli import main as cli
from transformer_mt.config import TrainJob
from transformer_mt.errors import InputError

Run = Callable[..., tuple[int, str, str]]


def test_folders_have_the_names_of_the_swept_settings(run: Run) -> None:
    jobs: list[TrainJob] = []
    argv = ["-m", "run_dir=r", "model=tiny", "train.seed=1,2", "data.cleaning.max_tokens=64,128"]
    status, out, err = run("train", *argv, job=jobs.append)
    names = [f"data.cleaning.max_tokens={m},train.seed={s}" for s in (1, 2) for m in (64, 128)]
    assert (status, out) == (0, "")
    assert [job.run_dir for job in jobs] == [f"r/{name}" for name in names]
    assert {job.model.d_model for job in jobs} == {128}
    assert err.splitlines() == [
        f"mt-train: job {i} ({name}) -> r/{name}" for i, name in enumerate(names)
    ]


@pytest.mark.parametrize("name", ["it's {BUILD}", "t\udce9mp"])
def test_a_sweep_of_translations_leaves_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    temporary, work = tmp_path / name, tmp_path / "work"
    temporary.mkdir(), work.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    monkeypatch.setattr(sys, "argv", ["mt-translate", "-m", "model=x", "beam_size=1,4"])
    sizes: list[int] = []
    cli.main("translate", lambda job: sizes.append(job.beam_size))
    assert (sizes, [*temporary.iterdir()], [*work.iterdir()]) == ([1, 4], [], [])


def test_a_failed_job_does_not_end_the_sweep(run: Run) -> None:
    done: list[str] = []

    def job(job: TrainJob) -> None:
        if job.train.seed == 2:
            raise InputError("a.en:3:\nno")
        done.append(job.run_dir)

    # The third cannot even be composed: a batch of nothing.
    status, _, err = run(
        "train", "-m", "run_dir=r", "train.seed=1,2,3", "train.max_steps=5,0", job=job
    )
    assert (status, len(done)) == (1, 2)
    errors = [line for line in err.splitlines() if " error: " in line]
    assert errors[0].startswith("mt-train: job 1 (train.max_steps=0,train.seed=1): error: ")
    assert errors[1] == "mt-train: job 2 (train.max_steps=5,train.seed=2): error: a.en:3: no"
    assert errors[-1].startswith(f"mt-train: error: {errors[0].split(':')[1].strip()} failed: ")
    assert len(errors) == 5


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


SOURCES = "data.train=[{tsv: 'a b'}],[{tsv: 'a  b'}],[{tsv: ab}]"


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (
            ["-m", "experiment=table3/C_layers_2,table3/C_layers_4", "run_dir=r"],
            ["r/experiment=table3/C_layers_2", "r/experiment=table3/C_layers_4"],
        ),
        (
            ["-m", "run_dir=r,s", "train.seed=1,2"],
            [f"{base}/train.seed={seed}" for base in "rs" for seed in (1, 2)],
        ),
        (
            ["-m", "run_dir=r", "train.seed=3", "train.seed=1,2"],  # the later one holds
            ["r/train.seed=1", "r/train.seed=2"],
        ),
        (
            ["-m", "run_dir=n", "train.seed=1", "model=tiny"],  # nothing varies
            ["n/model=tiny,train.seed=1"],
        ),
        (
            ["hydra.mode=MULTIRUN", "train.seed=1,2"],
            [f"runs/wmt14_en_de/train.seed={seed}" for seed in (1, 2)],
        ),
        (["-m", "run_dir=r", "data=sample", SOURCES], None),
    ],
)
def test_folders_of_any_values(run: Run, argv: list[str], expected: list[str] | None) -> None:
    folders: list[str] = []
    run("train", *argv, job=lambda job: folders.append(job.run_dir))
    if expected is None:
        assert len(set(folders)) == len(folders) == 3
        assert all(Path(folder).parent == Path("r") for folder in folders)
    else:
        assert folders == expected


def test_real_sweep_its_table_and_one_more_job(tmp_path: Path) -> None:
    write_corpus(tmp_path, pairs=30)
    settings = arguments(tmp_path, tmp_path / "sweep", "train.max_steps=2", "train.log_every=1")

    def mt_train(name: str, seeds: str) -> None:
        argv = ["-m", *settings, "train.best_by=nll", f"train.seed={seeds}"]
        status, _, err = Running("train", argv, tmp_path / name).wait()
        assert status == 0, err

    mt_train("first", "1,2")
    models = sorted((tmp_path / "sweep").glob("*/model.safetensors"))
    written = {path: path.stat().st_mtime_ns for path in models}
    assert [path.parent.name for path in models] == ["train.seed=1", "train.seed=2"]
    mt_train("again", "1,2,3")
    assert all(path.stat().st_mtime_ns == at for path, at in written.items())  # not trained again
    script = [sys.executable, ROOT / "scripts/compare_runs.py", tmp_path / "sweep"]
    head, *rows = subprocess.check_output(script, text=True).splitlines()
    columns = ["run", "best valid nll", "test BLEU", "test chrF2", "test TER"]
    assert re.split("  +", head) == [*columns, "test BLEU (paper protocol)"]
    assert len(rows) == 3
    for row in rows:
        name, best, *scores = row.split()
        tested = json.loads((Path(name) / "test.json").read_text())
        assert scores == [f"{s['score']:.2f}" for s in tested]
        lines = (Path(name) / "metrics.jsonl").read_text().splitlines()
        (valid,) = (r for r in map(json.loads, lines) if r["split"] == "valid")
        assert best == f"{valid['nll']:.2f}"


def test_a_table_of_no_runs_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["compare_runs.py", str(tmp_path / "tabel3")])
    with pytest.raises(SystemExit, match=r"no runs of mt-train in .*/tabel3: check the name"):
        runpy.run_path(str(ROOT / "scripts/compare_runs.py"), run_name="__main__")
