"""A run that selects checkpoints by COMET, which a script stands in for."""

import json
import sys
from pathlib import Path

import pytest
from support.training_runs import arguments, write_corpus

from transformer_mt import compose, train
from transformer_mt.errors import InputError

# Each call gives a lower score than the one before.
STAND_IN = """#!{python}
from pathlib import Path
calls = Path({calls!r})
number = len(calls.read_text()) if calls.exists() else 0
calls.write_text("." * (number + 1))
print("0.txt\\tscore: {{:.4f}}".format(0.9 - number / 10))
"""


def test_the_best_checkpoint_by_comet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    write_corpus(tmp_path)
    more = ("train.best_by=comet", "train.final=best", "train.max_steps=6", "data.test=[]",
            "train.validate_every=2", "train.checkpoint_every=2")  # fmt: skip
    job = compose(arguments(tmp_path, tmp_path / "run", *more))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(InputError, match=r"^COMET needs the command comet-score.*unbabel-comet$"):
        train(job)
    assert not (tmp_path / "run").exists()
    monkeypatch.undo()
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    script = tmp_path / "comet-score"
    script.write_text(STAND_IN.format(python=sys.executable, calls=str(tmp_path / "calls")))
    script.chmod(0o755)
    train(job)
    records = map(json.loads, (tmp_path / "run/metrics.jsonl").read_text().splitlines())
    scores = {r["step"]: r["comet"] for r in records if r["split"] == "valid"}
    assert scores == {2: 0.9, 4: 0.8, 6: pytest.approx(0.7)}
    assert "COMET 0.9000" in (tmp_path / "run/train.log").read_text()
    end = json.loads((tmp_path / "run/run.json").read_text())["end"]
    assert end["averaged_updates"] == [2]
