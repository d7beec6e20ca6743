"""Sweeps and searches by Hydra's plugins, from an empty cache to their results."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from support.training_runs import TIMEOUT, arguments, write_corpus


def test_search_for_a_learning_rate(tmp_path: Path) -> None:
    """It looks for the highest BLEU, and continues by the same command."""
    pytest.importorskip("hydra_plugins.hydra_optuna_sweeper")
    write_corpus(tmp_path)
    argv = arguments(tmp_path, tmp_path / "sweep", "train.best_by=chrf")
    argv += ["hydra/sweeper=optuna", "hydra.sweeper.sampler.seed=1"]
    argv += ["schedule=inverse_sqrt", "schedule.peak_lr=interval(1e-4,5e-2)"]
    argv += ["train.max_steps=40", "train.validate_every=40", "data.workers=2"]
    command = [sys.executable, "-m", "transformer_mt.cli", "train", "-m", *argv]

    def search(trials: int) -> set[float]:
        # Not by a fork: its end would wait for joblib's processes.
        argv = [*command, f"hydra.sweeper.n_trials={trials}"]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=TIMEOUT)
        assert done.returncode == 0, done.stderr
        infos = [json.loads(path.read_text()) for path in tmp_path.glob("sweep/*/run.json")]
        assert len(infos) == trials
        scores = {info["end"]["best"]["score"] for info in infos}
        found = yaml.safe_load((tmp_path / "sweep/optimization_results.yaml").read_text())
        assert found["best_value"] == max(scores) > min(scores)
        return scores

    assert search(2) <= search(3)
