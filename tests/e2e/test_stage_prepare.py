"""``mt-train stage=prepare``: it prepares the data only, and the next run uses them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

WORDS = ["cat", "dog", "horse", "bird", "fish", "mouse"]
SETTINGS = [
    "data=files",
    "data.src_lang=en",
    "data.tgt_lang=de",
    "cleaning=standard",
    "tokenizer.vocab_size=300",
]
MODEL = ["model=tiny", "model.num_encoder_layers=1", "model.num_decoder_layers=1"]


@pytest.fixture
def arguments(tmp_path: Path) -> list[str]:
    lines = [f"the {a} sees the {b}\tdie {b} sieht die {a}" for a in WORDS for b in WORDS]
    (tmp_path / "train.tsv").write_text("\n".join([*lines, "\tleer", lines[0]]) + "\n")
    (tmp_path / "valid.tsv").write_text("a dog barks\tein Hund bellt\n")
    data = [f"data.{part}=[{{tsv: {tmp_path}/{part}.tsv}}]" for part in ("train", "valid")]
    return [f"run_dir={tmp_path}/run", f"cache_dir={tmp_path}/cache", *data, *SETTINGS]


def mt_train(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "transformer_mt.cli.train", *arguments]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run(command, capture_output=True, text=True, env=environment)


def test_run_uses_the_prepared_data(arguments: list[str], tmp_path: Path) -> None:
    # Prepared on a machine without a GPU, for a run on a GPU.
    done = mt_train("stage=prepare", "train.device=cuda", *arguments)
    assert done.returncode == 0, done.stderr
    places = {name: Path(path) for name, path in map(str.split, done.stdout.splitlines())}
    assert list(places) == ["vocabulary", "corpus", "report"]
    assert all(path.exists() for path in places.values())
    report = json.loads(places["report"].read_text())
    assert (report["total"], report["kept"]) == (38, 36)
    (kept,) = [line.split() for line in done.stderr.splitlines() if line.startswith("kept")]
    assert kept[1] == "36"
    assert {path.name for path in (tmp_path / "run").iterdir()} == {"train.log"}

    short = ["train.max_steps=1", "train.device=cpu", "train.max_tokens_per_device=256"]
    trained = mt_train(*arguments, *MODEL, *short)
    assert trained.returncode == 0, trained.stderr
    assert "encoding the training data" not in trained.stderr
    assert trained.stderr.count("duplicate_pair") == 1  # the table, now from the cache
    saved = json.loads((tmp_path / "run" / "data" / "cleaning.json").read_text())
    assert all(saved.pop(key) for key in ("corpus", "valid", "test"))
    assert saved == report


def test_bad_input_is_a_one_line_error(arguments: list[str], tmp_path: Path) -> None:
    wrong = mt_train("stage=prepair", *arguments)
    assert (wrong.returncode, wrong.stdout) == (1, "")
    assert wrong.stderr == "mt-train: error: stage='prepair' is not one of: train, prepare\n"
    (tmp_path / "train.tsv").write_text("no tab\n")
    bad = mt_train("stage=prepare", *arguments)
    assert (bad.returncode, bad.stdout) == (1, "")
    message = f"mt-train: error: {tmp_path}/train.tsv, line 1: has 1 tab-separated column(s)"
    assert bad.stderr.splitlines()[-1].startswith(message)
