"""Sweeps by Hydra: folders, failures, results; with stand-ins for training, and once for real."""

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from support.paths import ROOT
from support.training_runs import Running

from transformer_mt.cli import main as cli
from transformer_mt.config import TrainJob
from transformer_mt.errors import InputError

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Runs mt-train in an empty folder, with a stand-in for training."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HYDRA_FULL_ERROR", "0")

    def command(*argv: str, job: Callable[[TrainJob], float | None]) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["mt-train", *argv])
        status = 0
        try:
            cli.main("train", job)
        except SystemExit as stop:
            status = int(stop.code or 0)
        return status, *capfd.readouterr()

    return command


def test_folders_have_the_names_of_the_swept_settings(run: Run) -> None:
    jobs: list[TrainJob] = []
    argv = ["-m", "run_dir=r", "model=tiny", "train.seed=1,2", "data.cleaning.max_tokens=64,128"]
    status, out, err = run(*argv, job=jobs.append)
    names = [f"data.cleaning.max_tokens={m},train.seed={s}" for s in (1, 2) for m in (64, 128)]
    assert (status, out) == (0, "")
    assert [job.run_dir for job in jobs] == [f"r/{name}" for name in names]
    assert {job.model.d_model for job in jobs} == {128}
    assert err.splitlines() == [
        f"mt-train: job {i} ({name}) -> r/{name}" for i, name in enumerate(names)
    ]


@pytest.mark.parametrize("name", ["it's ${BUILD}", "t\udce9mp"])
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
    status, _, err = run("-m", "run_dir=r", "train.seed=1,2,3", "train.max_steps=5,0", job=job)
    assert (status, len(done)) == (1, 2)
    errors = [line for line in err.splitlines() if " error: " in line]
    assert errors[0].startswith("mt-train: job 1 (train.max_steps=0,train.seed=1): error: ")
    assert errors[1] == "mt-train: job 2 (train.max_steps=5,train.seed=2): error: a.en:3: no"
    assert errors[-1].startswith(f"mt-train: error: {errors[0].split(':')[1].strip()} failed: ")
    assert len(errors) == 5


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(143)])
def test_interrupts_end_the_sweep(run: Run, error: BaseException) -> None:
    seeds: list[int] = []

    def job(job: TrainJob) -> None:
        seeds.append(job.train.seed)
        raise error

    status, out, _ = run("-m", "train.seed=1,2", job=job)
    expected = 130 if isinstance(error, KeyboardInterrupt) else 143
    assert (status, seeds, out) == (expected, [1], "")


def test_under_a_launcher_a_failure_ends_the_sweep(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    seeds: list[int] = []

    def job(job: TrainJob) -> None:
        seeds.append(job.train.seed)
        raise InputError("no")

    status, out, _ = run("-m", "train.seed=1,2", job=job)
    assert (status, seeds, out) == (1, [1], "")


def test_a_sweep_may_be_asked_for_by_a_setting(run: Run) -> None:
    jobs: list[TrainJob] = []
    run("hydra.mode=MULTIRUN", "train.seed=1,2", job=jobs.append)
    folder = "runs/wmt14_en_de"
    assert [job.run_dir for job in jobs] == [f"{folder}/train.seed={seed}" for seed in (1, 2)]


def test_folders_of_any_values(run: Run) -> None:
    folders: list[str] = []

    def job(job: TrainJob) -> None:
        folders.append(job.run_dir)

    run("-m", "experiment=table3/C_layers_2,table3/C_layers_4", "run_dir=r", job=job)
    assert folders == ["r/experiment=table3/C_layers_2", "r/experiment=table3/C_layers_4"]
    folders.clear()
    run("-m", "run_dir=r,s", "train.seed=1,2", job=job)
    assert folders == [f"{base}/train.seed={seed}" for base in "rs" for seed in (1, 2)]
    folders.clear()
    run("-m", "run_dir=r", "train.seed=3", "train.seed=1,2", job=job)  # the later one holds
    assert folders == ["r/train.seed=1", "r/train.seed=2"]
    folders.clear()
    run("-m", "run_dir=n", "train.seed=1", "model=tiny", job=job)  # nothing varies
    assert folders == ["n/model=tiny,train.seed=1"]
    folders.clear()
    sources = "data.train=[{tsv: 'a b'}],[{tsv: 'a  b'}],[{tsv: ab}]"
    run("-m", "run_dir=r", "data=sample", sources, job=job)
    assert len(set(folders)) == len(folders) == 3
    assert all(Path(folder).parent == Path("r") for folder in folders)


def test_real_sweep_its_table_and_one_more_job(tmp_path: Path) -> None:
    pairs = [f"a dog sees {n} houses\tein Hund sieht {n} Häuser" for n in range(30)]
    (tmp_path / "pairs.tsv").write_text("\n".join(pairs) + "\n", encoding="utf-8")
    settings = [
        "data=files",
        *("data.src_lang=en", "data.tgt_lang=de", "tokenizer.vocab_size=290"),
        *(f"data.{part}=[{{tsv: {tmp_path}/pairs.tsv}}]" for part in ("train", "valid", "test")),
        *("model=tiny", "model.d_model=16", "model.d_ff=32", "model.num_heads=2"),
        *("model.num_encoder_layers=1", "model.num_decoder_layers=1"),
        *("train.batch_tokens=200", "train.max_steps=2", "train.log_every=1"),
        *("train.device=cpu", "train.precision=fp32", "decode.max_extra_tokens=2"),
        *(f"run_dir={tmp_path}/sweep", f"cache_dir={tmp_path}/cache", "data.workers=0"),
    ]

    def mt_train(name: str, *overrides: str) -> None:
        status, _, err = Running("train", ["-m", *settings, *overrides], tmp_path / name).wait()
        assert status == 0, err

    mt_train("first", "train.seed=1,2", "train.best_by=nll")
    models = sorted((tmp_path / "sweep").glob("*/model.safetensors"))
    written = {path: path.stat().st_mtime_ns for path in models}
    assert [path.parent.name for path in models] == ["train.seed=1", "train.seed=2"]
    mt_train("again", "train.seed=1,2,3", "train.best_by=nll")
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
