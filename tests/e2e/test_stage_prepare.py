"""``mt-train stage=prepare``: it prepares the data only, and the next run uses them."""

import json
from pathlib import Path

from support.training_runs import Running, arguments, write_corpus

WORDS = ["cat", "dog", "horse", "bird", "fish", "mouse"]


def test_run_uses_the_prepared_data(tmp_path: Path) -> None:
    write_corpus(tmp_path)
    lines = [f"the {a} sees the {b}\tdie {b} sieht die {a}" for a in WORDS for b in WORDS]
    (tmp_path / "train.tsv").write_text("\n".join([*lines, "\tleer", lines[0]]) + "\n")

    def mt_train(name: str, *more: str) -> tuple[str, str]:
        more = (*more, "cleaning=standard", "tokenizer.vocab_size=300")
        argv = arguments(tmp_path, tmp_path / "run", *more)
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

    _, err = mt_train("second", "train.max_steps=1", "train.max_tokens_per_device=256")
    assert "encoding the training data" not in err
    assert err.count("deduplicate=pairs") == 1  # the table, now from the cache
    saved = json.loads((tmp_path / "run" / "data" / "cleaning.json").read_text())
    assert all(saved.pop(key) for key in ("corpus", "valid", "test"))
    assert saved == report
