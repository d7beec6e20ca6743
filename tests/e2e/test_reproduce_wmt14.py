"""``scripts/reproduce_wmt14`` from end to end: the built-in sample as if it were WMT14, tiny model.

The sample lies in a folder of the form that the hub gives wmt/wmt14, and comes in through
``data.mirror``. The run is then asked for once more.
"""

import json
import os
import subprocess
from pathlib import Path

import pytest
from support.paths import ROOT
from support.sample import sample_pairs, write_wmt14
from support.training_runs import BIN, MODEL

SCRIPT = str(ROOT / "scripts/reproduce_wmt14")
UPDATES = 120
TINY = [
    *MODEL[1:],
    *("tokenizer.vocab_size=330", "data.workers=0", "train.batch_tokens=200"),
    *("train.max_tokens_per_device=256", f"train.max_steps={UPDATES}", "train.precision=fp32"),
    *("train.checkpoint_every=20", f"train.validate_every={UPDATES}"),
    *("schedule.warmup_steps=60", "decode.beam_size=1"),  # so that lines are not empty
]


def run(*arguments: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [SCRIPT, *arguments], env=environment, capture_output=True, text=True, timeout=300
    )


@pytest.mark.slow
def test_full_run(tmp_path: Path) -> None:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "MT_", "RUNS"))}
    environment = kept | {
        "PATH": f"{BIN}{os.pathsep}{kept['PATH']}",
        "RUNS": str(tmp_path / "my runs"),
        "HF_HOME": str(tmp_path / "hf"),
        "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": "1",
    }
    train, valid, test = map(sample_pairs, ("train", "valid", "test"))
    splits = {"train": train[:400], "validation": valid[:20], "test": test[:30]}
    write_wmt14(tmp_path / "hub/wmt/wmt14", **splits)
    arguments = [f"data.mirror={tmp_path}/hub", *TINY]
    folder = tmp_path / "my runs/reproduce_wmt14_base"
    first = run(*arguments, environment=environment)
    assert first.returncode == 0, first.stderr
    # 100,000 updates of 9.6 TFLOP at a quarter of 312 TFLOP/s.
    assert f"{100_000 * 9.6 / (0.25 * 312) / 3600:.1f} hours   A100\n" in first.stderr
    work = folder / "newstest2014"
    pairs = splits["test"]
    assert (work / "source").read_text().splitlines() == [en for en, _ in pairs]
    assert (work / "reference").read_text().splitlines() == [de for _, de in pairs]
    assert len((work / "translation").read_text().splitlines()) == 30
    scores = json.loads((work / "scores.json").read_text())
    assert scores == json.loads((folder / "test.json").read_text())  # mt-train's own, the same way
    by_name = {row["name"]: row for row in scores}
    assert by_name["chrF2"]["score"] > 0
    header, paper, sacrebleu = first.stdout.splitlines()[:3]
    assert "30 segments, base model" in header
    assert paper.split()[-2:] == [f"{by_name['BLEU (paper protocol)']['score']:.2f}", "27.3"]
    assert sacrebleu.split()[-2:] == [f"{by_name['BLEU']['score']:.2f}", "-"]

    # Nothing is left to do: the commands are not even started.
    away = tmp_path / "away"
    away.mkdir()
    for name in ("mt-train", "mt-translate", "mt-eval"):
        (away / name).write_text("#!/bin/sh\nexit 99\n")
        (away / name).chmod(0o755)
    environment["PATH"] = f"{away}{os.pathsep}{environment['PATH']}"
    second = run(*arguments, environment=environment)
    assert second.returncode == 0, second.stderr
    assert second.stderr.count("already done") == 4
    assert "hours" not in second.stderr
    assert second.stdout == first.stdout

    # Other settings: training is due again, and with it all that follows.
    more = run(*arguments, "train.max_steps=400", environment=environment)
    assert more.returncode == 99
    assert "already done" not in more.stderr
    assert not list(work.glob("done.*"))
