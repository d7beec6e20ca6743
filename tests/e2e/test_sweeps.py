"""Sweeps and searches by Hydra's plugins, from an empty cache to their results."""

import json
import os
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
    environ = {**os.environ, "TMPDIR": str(folder / "it's")}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=TIMEOUT)
    return done.returncode, done.stderr


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_corpus(tmp_path)
    (tmp_path / "it's").mkdir()
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["joblib", "submitit_local"])
def test_jobs_in_parallel(folder: Path, launcher: str) -> None:
    """One of them fails; the other trains."""
    pytest.importorskip(f"hydra_plugins.hydra_{launcher.partition('_')[0]}_launcher")
    status, err = sweep(folder, f"hydra/launcher={launcher}", "train.batch_tokens=0,200")
    assert status == 1
    assert "Traceback" not in err
    assert err.splitlines()[-1].startswith("mt-train: error: job 0 (train.batch_tokens=0) failed")
    tested = sorted(path.parent.name for path in folder.glob("sweep/*/test.json"))
    assert tested == ["train.batch_tokens=200"]


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
