"""Training on a corpus of many shards, as if it were too large to be planned as a whole."""

import os
import signal
from pathlib import Path

import pytest
from support.training_runs import Running, Start, arguments, checkpoints, curve, write_corpus

SHARDS = ("data.window_pairs=16", "train.batch_tokens=60", "train.checkpoint_every=5")


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    write_corpus(tmp_path, pairs=300)
    return tmp_path


@pytest.fixture
def train(corpus: Path) -> Start:
    def start(name: str, *more: str) -> Running:
        argv = arguments(corpus, corpus / name, *SHARDS, *more)
        return Running("train", argv, corpus / f"{name}-{os.urandom(4).hex()}")

    return start


def weights(run_dir: Path) -> bytes:
    return (run_dir / "model.safetensors").read_bytes()


@pytest.mark.parametrize("more", [(), ("tokenizer.sampling=0.1", "data.weights=[1.5]")])
def test_a_run_killed_in_an_epoch_of_many_shards_resumes_exactly(
    corpus: Path, train: Start, more: tuple[str, ...]
) -> None:
    train("whole", *more).done()
    running = train("killed", *more)
    running.wait_for(lambda: len(checkpoints(corpus / "killed")) >= 3)
    running.send(signal.SIGKILL)
    running.wait()
    assert not (corpus / "killed" / "test.json").exists()
    _, err = train("killed", *more).done()
    assert "resuming after update" in err
    assert weights(corpus / "killed") == weights(corpus / "whole")
    assert curve(corpus / "killed")[-1] == curve(corpus / "whole")[-1]


def test_two_ranks_train_as_one(corpus: Path, train: Start) -> None:
    recipe = ("model.dropout=0", "train.precision=fp32", "tokenizer.sampling=0.1")
    for name, more in (("one", ()), ("two", ("distributed.processes=2",))):
        train(name, *recipe, *more).done()
    # Rounding differs, and grows with the updates: most in the last value, the gradient norm.
    for one, two in zip(curve(corpus / "one"), curve(corpus / "two"), strict=True):
        assert two[:-1] == pytest.approx(one[:-1], rel=1e-2)
