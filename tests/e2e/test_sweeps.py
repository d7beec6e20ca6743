"""Sweeps and searches by Hydra's plugins, from an empty cache to their results."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from support.training_runs import TIMEOUT, arguments, write_corpus

SHORT = ["train.max_steps=4", "train.validate_every=2", "data.workers=2"]


def sweep(folder: Path, *overrides: str) -> tuple[int, str]:
    """Exit status and standard error. Not by a fork: its end would wait for joblib's processes."""
    settings = [*arguments(folder, folder / "sweep", *SHORT), *overrides]
    command = [sys.executable, "-m", "transformer_mt.cli", "train", "-m", *settings]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT)
    return done.returncode, done.stderr


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_corpus(tmp_path)
    return tmp_path


def test_search_for_a_learning_rate(folder: Path) -> None:
    """It looks for the highest BLEU, and continues by the same command."""
    pytest.importorskip("hydra_plugins.hydra_optuna_sweeper")

    argv = ["hydra/sweeper=optuna", "hydra.sweeper.sampler.seed=1", "train.best_by=chrf"]
    argv += ["schedule=inverse_sqrt", "schedule.peak_lr=interval(1e-4,5e-2)"]
    argv += ["train.max_steps=40", "train.validate_every=40"]

    def search(trials: int) -> set[float]:
        status, err = sweep(folder, *argv, f"hydra.sweeper.n_trials={trials}")
        assert status == 0, err
        infos = [json.loads(path.read_text()) for path in folder.glob("sweep/*/run.json")]
        assert len(infos) == trials
        scores = {info["end"]["best"]["score"] for info in infos}
        found = yaml.safe_load((folder / "sweep/optimization_results.yaml").read_text())
        assert found["best_value"] == max(scores) > min(scores)
        return scores

    assert search(2) <= search(3)
