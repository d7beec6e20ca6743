"""COMET's command is called as its own help says, and told apart when it is not there."""

import sys
from pathlib import Path

import pytest
import torch
from support.errors import input_error

from transformer_mt.config import EvaluateJob
from transformer_mt.distributed import world
from transformer_mt.evaluation import source_metrics
from transformer_mt.evaluation.comparison import ScoreSettings, TestSet, evaluate_systems
from transformer_mt.evaluation.scores import Score, to_text
from transformer_mt.evaluation.source_metrics import COMET_MODEL, comet

SYSTEMS = {"x/a.de": ["Ein\u2028Haus", "zwei"], "b.de": ["Haus", ""]}
SOURCE, REFERENCE = ["A\rhouse", "two"], ["Ein Haus", "zwei"]

# Scores are shares of characters, so that the test knows them; the rest is as comet-score does it
# (unbabel-comet 2.2.7, comet/cli/score.py): files of lines, and a line for each of them.
STAND_IN = """#!{python}
import argparse, sys
parser = argparse.ArgumentParser()
parser.add_argument("-s"), parser.add_argument("-r"), parser.add_argument("-t", nargs="+")
parser.add_argument("--model"), parser.add_argument("--gpus", type=int)
parser.add_argument("--quiet", action="store_true")
parser.add_argument("--only_system", action="store_true")
args = parser.parse_args()
print("a word from a library")
if args.model == "missing":
    print("Traceback (most recent call last):", file=sys.stderr)
    sys.exit("KeyError: Model 'missing' not supported by COMET.")
lines = {{name: open(name, encoding="utf-8").readlines() for name in (args.s, args.r, *args.t)}}
assert {{len(text) for text in lines.values()}} == {{2}}, lines
for name in args.t:
    size = [sum(map(len, lines[file])) for file in (name, args.r)]
    print("{{}}\\tscore: {{:.4f}}".format(name, size[0] / size[1] - args.gpus))
"""


def score(device: str = "cpu") -> list[Score]:
    files = {"hypotheses": [*SYSTEMS], "references": ["ref"], "source": "src"}
    test = TestSet(references={"ref": REFERENCE}, source=SOURCE)
    evaluation = evaluate_systems(SYSTEMS, test, ScoreSettings(metrics=[]))
    return comet(EvaluateJob(**files, device=device), None, evaluation)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "comet-score"
    script.write_text(STAND_IN.format(python=sys.executable), encoding="utf-8")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.mark.usefixtures("installed")
def test_every_system_gets_its_score(monkeypatch: pytest.MonkeyPatch) -> None:
    found = score()
    assert [score.score for score in found] == [1.0, round(6 / 14, 4)]
    row = found[1].to_row()
    assert (row["name"], row["model"], row["segments"]) == ("COMET", COMET_MODEL, 2)
    assert "COMET  0.4286  2 segments" in to_text(found[1:])
    monkeypatch.setattr(world, "pick_device", lambda _: torch.device("cuda"))
    assert score("cuda")[0].score == 0.0


@pytest.mark.usefixtures("installed")
def test_failure_is_reported_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_metrics, "COMET_MODEL", "missing")
    with input_error(r"^comet-score failed \(KeyError: Model 'missing' not .* model missing\? Off"):
        score()
