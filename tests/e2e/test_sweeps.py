"""Sweeps and searches by Hydra's plugins, from an empty cache to the table of their results."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from support.paths import ROOT
from support.training_runs import Running, arguments, write_corpus

SHORT = ["train.max_steps=4", "train.validate_every=2", "data.workers=2"]


def sweep(folder: Path, name: str, *overrides: str) -> tuple[int | None, str, str]:
    argv = ["-m", *arguments(folder, folder / "sweep", *SHORT), *overrides]
    return Running("train", argv, folder / name, TMPDIR=str(folder / "it's")).wait()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_corpus(tmp_path)
    (tmp_path / "it's").mkdir()
    return tmp_path


@pytest.mark.parametrize("launcher", ["joblib", "submitit_local"])
def test_jobs_in_parallel(folder: Path, launcher: str) -> None:
    """One of them fails; the others are in the table."""
    pytest.importorskip(f"hydra_plugins.hydra_{launcher.partition('_')[0]}_launcher")
    argv = [f"hydra/launcher={launcher}", "train.batch_tokens=100,0,200"]
    status, _, err = sweep(folder, "out", *argv)
    assert status == 1
    assert "Traceback" not in err
    assert err.splitlines()[-1].startswith("mt-train: error: job 1 (train.batch_tokens=0) failed")
    runs = [folder / f"sweep/train.batch_tokens={tokens}" for tokens in (100, 200)]
    script = [sys.executable, ROOT / "scripts/compare_runs.py", folder / "sweep"]
    _, *rows = subprocess.check_output(script, text=True).splitlines()
    assert [re.split("  +", row)[0] for row in rows] == [str(run) for run in runs]


def test_search_for_a_learning_rate(folder: Path) -> None:
    """It looks for the highest BLEU, and continues by the same command."""
    pytest.importorskip("hydra_plugins.hydra_optuna_sweeper")

    def search(name: str, trials: int) -> list[float]:
        argv = ["hydra/sweeper=optuna", "hydra.sweeper.sampler.seed=1"]
        argv += [f"hydra.sweeper.n_trials={trials}", "schedule.peak_lr=interval(1e-4,1e-2)"]
        status, _, err = sweep(folder, name, *argv, "schedule=inverse_sqrt", "train.best_by=chrf")
        assert status == 0, err
        infos = [json.loads(path.read_text()) for path in folder.glob("sweep/*/run.json")]
        assert len(infos) == trials
        scores = [info["end"]["best"]["score"] for info in infos]
        found = yaml.safe_load((folder / "sweep/optimization_results.yaml").read_text())
        assert found["best_value"] == max(scores)
        return scores

    assert set(search("first", 2)) < set(search("more", 3))
