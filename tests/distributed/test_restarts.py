"""mt-train recovers from killed and hanging workers, with bit for bit the same result."""

import os
import signal
from pathlib import Path

import pytest
from safetensors.torch import load_file
from support.launched_runs import MT_TRAIN, checkpoints, end, records, start, wait_until, workers

TWO = "distributed.processes=2"


@pytest.fixture(scope="module")
def undisturbed(corpus: Path) -> Path:
    status, _, err = end(start(corpus, "undisturbed", [MT_TRAIN], TWO))
    assert status == 0, err
    return corpus / "undisturbed"


def check_same(run_dir: Path, undisturbed: Path) -> None:
    """Asserts the same model, last checkpoint, losses and scores, bit for bit."""
    last = checkpoints(undisturbed)[-1].relative_to(undisturbed)
    for path in (Path("model.safetensors"), last / "model.safetensors"):
        found, expected = (load_file(folder / path) for folder in (run_dir, undisturbed))
        assert found.keys() == expected.keys()
        assert all(found[name].equal(tensor) for name, tensor in expected.items())
    for split in ("train", "valid"):
        one, two = (records(folder, split) for folder in (undisturbed, run_dir))
        for key in ("step", "loss", "nll"):
            assert [r[key] for r in two] == [r[key] for r in one]
    assert (run_dir / "test.json").read_text() == (undisturbed / "test.json").read_text()


@pytest.mark.slow
def test_hanging_worker_is_restarted(corpus: Path, undisturbed: Path) -> None:
    run_dir = corpus / "stopped"
    process = start(corpus, "stopped", [MT_TRAIN], TWO, "distributed.timeout_minutes=0.1")
    wait_until(process, lambda: checkpoints(run_dir))
    os.kill(workers(process.pid)[1], signal.SIGSTOP)
    status, _, err = end(process)
    assert status == 0, err
    assert "rank 0 of 2, on " in err
    assert "lost the connection to another rank: Timed out" in err
    assert "Traceback" not in err
    check_same(run_dir, undisturbed)
