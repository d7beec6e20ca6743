"""Training on a corpus of many shards, as if it were too large to be planned as a whole."""

import signal
from pathlib import Path

import pytest
from support.training_runs import Start, checkpoints, curve, write_corpus

SHARDS = ("data.window_pairs=16", "train.batch_tokens=60", "train.checkpoint_every=5")


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    write_corpus(tmp_path, pairs=300)
    return tmp_path


def test_a_run_killed_in_an_epoch_of_many_shards_resumes_exactly(
    tmp_path: Path, train: Start
) -> None:
    """Of sampled pairs; robustness/faults.py kills runs on shards that sample nothing."""
    argv = (*SHARDS, "tokenizer.sampling=0.1", "data.weights=[1.5]")
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    train(whole, *argv).done()
    running = train(killed, *argv)
    running.wait_for(lambda: len(checkpoints(killed)) >= 3)
    running.send(signal.SIGKILL)
    running.wait()
    assert not (killed / "test.json").exists()
    _, err = train(killed, *argv).done()
    assert "resuming after update" in err
    model = "model.safetensors"
    assert (killed / model).read_bytes() == (whole / model).read_bytes()
    assert curve(killed)[-1] == curve(whole)[-1]


def test_two_ranks_train_as_one(tmp_path: Path, train: Start) -> None:
    recipe = ("model.dropout=0", "train.precision=fp32", "tokenizer.sampling=0.1")
    for name, more in (("one", ()), ("two", ("distributed.processes=2",))):
        train(tmp_path / name, *SHARDS, *recipe, *more).done()
    # Rounding differs, and grows with the updates: most in the last value, the gradient norm.
    for one, two in zip(curve(tmp_path / "one"), curve(tmp_path / "two"), strict=True):
        assert two[:-1] == pytest.approx(one[:-1], rel=1e-2)
