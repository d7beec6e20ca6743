"""mt-train recovers from killed and hanging workers, with bit for bit the same result."""

import os
import signal
from pathlib import Path

import pytest
from safetensors.torch import load_file
from support import polling
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
def test_killed_worker_is_restarted(corpus: Path, undisturbed: Path) -> None:
    run_dir = corpus / "killed"
    process = start(corpus, "killed", [MT_TRAIN], TWO)
    wait_until(process, lambda: checkpoints(run_dir))
    os.kill(workers(process.pid)[1], signal.SIGKILL)
    status, _, err = end(process)
    assert status == 0, err
    assert err.count("was killed by SIGKILL") == 1
    assert "(restart 1 of 3 without a new checkpoint)" in err
    assert "Traceback" not in err
    assert "was killed by SIGKILL" in (run_dir / "train.log").read_text()
    check_same(run_dir, undisturbed)


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


@pytest.mark.slow
def test_workers_end_with_a_killed_launcher(corpus: Path) -> None:
    """They would write to the run folder at the same time as the next run."""
    process = start(corpus, "orphans", [MT_TRAIN], TWO)
    wait_until(process, lambda: checkpoints(corpus / "orphans"))
    pids = workers(process.pid)
    assert len(pids) == 2
    process.kill()
    process.communicate()
    polling.wait_until(lambda: not any(is_running(pid) for pid in pids), 10)


def is_running(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    return "State:\tZ" not in status  # a zombie has ended
