"""Sweeps: folders, failures, the table; with stand-ins for training, and once for real."""

import csv
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.training_runs import Running

from transformer_mt.cli import main as cli
from transformer_mt.config import TrainJob
from transformer_mt.errors import InputError
from transformer_mt.evaluation.scores import Score, to_json

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Runs mt-train in an empty folder, with a stand-in for training."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HYDRA_FULL_ERROR", "0")

    def command(*argv: str, job: Callable[[TrainJob], None]) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["mt-train", *argv])
        status = 0
        try:
            cli.main("train", job)
        except SystemExit as stop:
            status = int(stop.code or 0)
        return status, *capfd.readouterr()

    return command


def fake_training(job: TrainJob) -> None:
    """Write the files that training writes; the scores depend on the seed."""
    folder, seed = Path(job.run_dir), job.train.seed
    folder.mkdir(parents=True)
    records = [{"split": "train", "bleu": 99.0}]
    records += [
        {"split": "valid", "bleu": b, "ppl": 50 - b} for b in (1.0, 30.0 + seed, 20.0 + seed)
    ]
    lines = [json.dumps({"step": i, **record}) for i, record in enumerate(records)]
    (folder / "metrics.jsonl").write_text("\n".join([*lines, '{"step": 9, "spl']))
    scores = [
        Score(name=name, score=score, signature="nrefs:1|version:2", segments=1)
        for name, score in (("chrF2", 1.0), ("BLEU", 10.123 + seed))
    ]
    (folder / "test.json").write_text(to_json(scores))


def table(path: Path) -> list[list[str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.reader(file, delimiter="\t"))


HEAD = ["best valid BLEU", "last valid BLEU", "best valid ppl", "test BLEU", "run_dir"]


def test_folders_and_table_name_the_swept_settings(run: Run, tmp_path: Path) -> None:
    jobs: list[TrainJob] = []

    def job(job: TrainJob) -> None:
        jobs.append(job)
        fake_training(job)

    argv = ["-m", "run_dir=r", "model=tiny", "train.seed=1,2", "data.cleaning.max_tokens=64,128"]
    status, out, err = run(*argv, job=job)
    assert status == 0
    names = [f"data.cleaning.max_tokens={m},train.seed={s}" for s in (1, 2) for m in (64, 128)]
    assert [job.run_dir for job in jobs] == [f"r/{name}" for name in names]
    assert {job.model.d_model for job in jobs} == {128}
    assert err.splitlines() == [
        f"mt-train: job {i} ({name}) -> r/{name}" for i, name in enumerate(names)
    ]
    rows = table(tmp_path / "r" / "sweep.tsv")
    assert rows == [
        ["data.cleaning.max_tokens", "train.seed", *HEAD],
        ["64", "1", "31.00", "21.00", "19.00", "11.12", f"r/{names[0]}"],
        ["128", "1", "31.00", "21.00", "19.00", "11.12", f"r/{names[1]}"],
        ["64", "2", "32.00", "22.00", "18.00", "12.12", f"r/{names[2]}"],
        ["128", "2", "32.00", "22.00", "18.00", "12.12", f"r/{names[3]}"],
    ]
    assert [line.split() for line in out.splitlines()] == [" ".join(row).split() for row in rows]


@pytest.mark.parametrize("name", ["it's", "w ${BUILD} x", 'a "b" \\', "t\udce9mp"])
def test_temporary_folder_of_any_name(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / name).mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / name))
    status, out, err = run("-m", "run_dir=r", "train.seed=1,2", job=fake_training)
    assert (status, len(out.splitlines())) == (0, 3), err
    assert list((tmp_path / name).iterdir()) == []


def test_a_folder_name_that_is_too_long_does_not_end_the_sweep(run: Run, tmp_path: Path) -> None:
    long = "d" * 250
    status, _, err = run(
        "-m",
        "run_dir=r",
        f"tokenizer.path={long},null",
        "tokenizer.vocab_size=500",
        job=fake_training,
    )
    assert status == 1
    assert "the settings that name its folder are too long" in err
    assert (tmp_path / "r/tokenizer.path=null").is_dir()


def test_failed_job_does_not_end_the_sweep(run: Run, tmp_path: Path) -> None:
    def job(job: TrainJob) -> None:
        if job.train.seed == 2:
            raise InputError("a.en:3:\nno")
        fake_training(job)

    # The third cannot even be composed: a batch of nothing.
    status, out, err = run("-m", "run_dir=r", "train.seed=1,2,3", "train.max_steps=5,0", job=job)
    assert status == 1
    errors = [line for line in err.splitlines() if " error: " in line]
    assert errors[0].startswith("mt-train: error: job 1 (train.max_steps=0,train.seed=1): ")
    assert errors[1] == "mt-train: error: job 2 (train.max_steps=5,train.seed=2): a.en:3: no"
    assert errors[-1] == "mt-train: error: 4 of 6 jobs failed"
    assert len(errors) == 5
    assert [row[5] for row in table(tmp_path / "r" / "sweep.tsv")[1:]] == ["11.12", "", "13.12"]
    assert len(out.splitlines()) == 4


@pytest.mark.parametrize("error", [PermissionError(13, "no"), MemoryError("no")])
def test_errors_of_the_machine_do_not_end_the_sweep(run: Run, error: Exception) -> None:
    def job(job: TrainJob) -> None:
        if job.train.seed == 1:
            raise error
        fake_training(job)

    status, out, err = run("-m", "run_dir=r", "train.seed=1,2", job=job)
    assert (status, len(out.splitlines())) == (1, 3)
    assert err.count(" error: ") == 2
    assert "Traceback" not in err


@pytest.mark.parametrize("error", [ValueError("a bug"), KeyboardInterrupt(), SystemExit(143)])
def test_bugs_and_interrupts_end_the_sweep(run: Run, error: BaseException) -> None:
    seeds: list[int] = []

    def job(job: TrainJob) -> None:
        seeds.append(job.train.seed)
        raise error

    status, out, err = run("-m", "train.seed=1,2", job=job)
    expected = {ValueError: 1, KeyboardInterrupt: 130, SystemExit: 143}[type(error)]
    assert (status, seeds, out) == (expected, [1], "")
    assert ("Traceback" in err) == isinstance(error, ValueError)


def test_under_a_launcher_a_failure_ends_the_sweep(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")

    def job(job: TrainJob) -> None:
        raise InputError("no")

    status, out, err = run("-m", "train.seed=1,2", job=job)
    assert (status, out, err) == (1, "", "mt-train: error: no\n")


def test_folders_of_any_values(run: Run, tmp_path: Path) -> None:
    folders: list[str] = []

    def job(job: TrainJob) -> None:
        folders.append(job.run_dir)

    run("-m", "experiment=table3/C_layers_2,table3/C_layers_4", "run_dir=r", job=job)
    assert folders == ["r/experiment=table3_C_layers_2", "r/experiment=table3_C_layers_4"]
    folders.clear()
    run("-m", "run_dir=r,s/t", job=job)  # different folders already
    assert folders == ["r", "s/t"]
    folders.clear()
    run("-m", "run_dir=r,s", "train.seed=1,2", job=job)
    assert folders == [f"{base}/train.seed={seed}" for base in "rs" for seed in (1, 2)]
    assert (tmp_path / "s" / "sweep.tsv").exists()
    folders.clear()
    run("-m", "run_dir=n", "train.seed=1", "model=tiny", job=job)  # nothing varies
    assert folders == ["n/model=tiny,train.seed=1"]
    folders.clear()
    run("-m", "run_dir=r", "data.train=[{tsv: 'a b'}],[{tsv: 'a  b'}],[{tsv: ab}]", job=job)
    assert len(set(folders)) == len(folders) == 3
    assert all(Path(folder).parent == Path("r") for folder in folders)


def test_the_table_keeps_the_rows_of_earlier_sweeps(run: Run, tmp_path: Path) -> None:
    run("-m", "run_dir=r", "train.seed=1,2,4", job=fake_training)
    shutil.rmtree(tmp_path / "r" / "train.seed=4")
    status, out, _ = run("-m", "run_dir=r", "train.seed=2,3", "model=tiny,small", job=fake_training)
    assert status == 0
    rows = table(tmp_path / "r" / "sweep.tsv")
    assert rows[0] == ["model", "train.seed", *HEAD]
    assert [row[:2] for row in rows[1:]] == [
        ["", "1"],
        ["", "2"],
        *([size, seed] for seed in "23" for size in ("tiny", "small")),
    ]
    assert {row[5] for row in rows[1:3]} == {"11.12", "12.12"}
    assert len(out.splitlines()) == 5  # of this sweep alone
    run("-m", "run_dir=r", "train.seed=2", "model.dropout=0,0.1", job=fake_training)
    assert table(tmp_path / "r" / "sweep.tsv")[0] == ["model", "model.dropout", "train.seed", *HEAD]
    assert len(table(tmp_path / "r" / "sweep.tsv")) == 9


def test_the_same_sweep_again_has_the_same_folders(run: Run, tmp_path: Path) -> None:
    first = ["-m", "run_dir=r", "model.dropout=0.1", "train.seed=1,2"]
    run(*first, job=fake_training)
    run("-m", "run_dir=r", "train.seed=1", "model.dropout=0.2,0.3", job=fake_training)
    folders: list[str] = []
    run(*first, job=lambda job: folders.append(job.run_dir))
    assert folders == ["r/train.seed=1", "r/train.seed=2"]
    assert len(table(tmp_path / "r" / "sweep.tsv")) == 5


def test_run_without_swept_settings_stays_in_the_table(run: Run, tmp_path: Path) -> None:
    run("-m", "run_dir=r", job=fake_training)
    run("-m", "run_dir=r", "train.seed=2,3", job=fake_training)
    assert [row[0] for row in table(tmp_path / "r" / "sweep.tsv")[1:]] == ["", "2", "3"]


def test_full_disk_while_printing_the_table_is_reported(tmp_path: Path) -> None:
    code = (
        "from test_sweep import fake_training; from transformer_mt.cli import main as cli; "
        "cli.main('train', fake_training)"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, str(Path(__file__).parent)])}
    env.pop("PYTHONUNBUFFERED", None)
    command = [sys.executable, "-c", code, "-m", "run_dir=r", "train.seed=1,2"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            command, cwd=tmp_path, env=env, stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "mt-train: error: No space left on device"


def test_single_job_joins_an_earlier_sweep(run: Run, tmp_path: Path) -> None:
    run("-m", "run_dir=r", "train.seed=1,2", job=fake_training)
    status, _, err = run("-m", "run_dir=r", "train.seed=3", job=fake_training)
    assert (status, err) == (0, "mt-train: job 0 (train.seed=3) -> r/train.seed=3\n")
    assert [row[0] for row in table(tmp_path / "r" / "sweep.tsv")[1:]] == ["1", "2", "3"]


@pytest.mark.parametrize(
    "text", ["", "\xff\xfe\0", "\n", "what\tis\tthis\n1\n", "run_dir\na\tb\tc\n"]
)
def test_damaged_table_is_replaced(run: Run, tmp_path: Path, text: str) -> None:
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "sweep.tsv").write_text(text, encoding="latin1")
    status, _, err = run("-m", "run_dir=r", "train.seed=1,2", job=fake_training)
    assert status == 0, err
    assert len(table(tmp_path / "r" / "sweep.tsv")) == 3


def test_two_jobs_never_share_a_folder(run: Run) -> None:
    folders: list[str] = []
    status, _, err = run(
        "-m", "tokenizer.path='a/b','a_b'", "run_dir=r", job=lambda job: folders.append(job.run_dir)
    )
    assert status == 1
    assert folders == ["r/tokenizer.path='a_b'"]
    assert "error: job 1 (tokenizer.path='a_b'): another job of this sweep uses the folder" in err


def test_a_sweep_that_only_prepares_has_no_results(run: Run, tmp_path: Path) -> None:
    status, out, _ = run("-m", "stage=prepare", "train.seed=1,2", job=lambda job: None)
    assert (status, out) == (0, "")
    assert list(tmp_path.rglob("sweep.tsv")) == []


def test_real_sweep_and_one_more_job(tmp_path: Path) -> None:
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

    mt_train("first", "train.seed=1,2", "model.dropout=0.0,0.1")
    rows = table(tmp_path / "sweep" / "sweep.tsv")
    assert rows[0] == ["model.dropout", "train.seed", *HEAD]
    assert [row[:2] for row in rows[1:]] == [[d, s] for s in "12" for d in ("0.0", "0.1")]
    for row in rows[1:]:
        folder = tmp_path / row[-1]
        scores = {s["name"]: s["score"] for s in json.loads((folder / "test.json").read_text())}
        assert row[5] == f"{scores['BLEU']:.2f}"
        records: list[dict[str, Any]] = [
            json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()
        ]
        (valid,) = (record for record in records if record["split"] == "valid")
        assert row[2:5] == [*[f"{valid['bleu']:.2f}"] * 2, f"{valid['ppl']:.2f}"]
    models = (tmp_path / "sweep").glob("*/model.safetensors")
    written = {path: path.stat().st_mtime_ns for path in models}
    assert len(written) == 4
    mt_train("again", "train.seed=1,2,3", "model.dropout=0.0,0.1")
    assert table(tmp_path / "sweep" / "sweep.tsv")[:5] == rows
    assert len(table(tmp_path / "sweep" / "sweep.tsv")) == 7
    assert all(path.stat().st_mtime_ns == at for path, at in written.items())  # not trained again
