"""``mt-train stage=prepare``: it prepares the data only, and the next run uses them."""

import json
from pathlib import Path

import pytest
from support.training_runs import Running

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


def test_run_uses_the_prepared_data(arguments: list[str], tmp_path: Path) -> None:
    def mt_train(name: str, *more: str) -> tuple[str, str]:
        argv = [*more, *arguments]
        return Running("train", argv, tmp_path / name, CUDA_VISIBLE_DEVICES="").done()

    # Prepared on a machine without a GPU, for a run on a GPU.
    out, err = mt_train("first", "stage=prepare", "train.device=cuda")
    places = {name: Path(path) for name, path in map(str.split, out.splitlines())}
    assert list(places) == ["vocabulary", "corpus", "report"]
    assert all(path.exists() for path in places.values())
    report = json.loads(places["report"].read_text())
    assert (report["total"], report["kept"]) == (38, 36)
    (kept,) = [line.split() for line in err.splitlines() if line.startswith("kept")]
    assert kept[1] == "36"
    assert {path.name for path in (tmp_path / "run").iterdir()} == {"train.log"}

    short = ["train.max_steps=1", "train.device=cpu", "train.max_tokens_per_device=256"]
    _, err = mt_train("second", *MODEL, *short)
    assert "encoding the training data" not in err
    assert err.count("duplicate_pair") == 1  # the table, now from the cache
    saved = json.loads((tmp_path / "run" / "data" / "cleaning.json").read_text())
    assert all(saved.pop(key) for key in ("corpus", "valid", "test"))
    assert saved == report
