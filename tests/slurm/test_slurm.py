"""scripts/slurm.sbatch, srun and a sweep on a Slurm cluster of two nodes on this machine."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.paths import SCRIPTS
from support.polling import wait_until
from support.training_runs import BIN, ON_RANKS, TIMEOUT, arguments, checkpoints

pytestmark = pytest.mark.slow

OPTIONS = ["--gpus-per-node=1", "--cpus-per-task=1", "--time=60"]
LONGER = ["train.max_steps=100", "train.validate_every=50"]


@pytest.fixture(scope="module", autouse=True)
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a cluster, which the commands of Slurm use."""
    path = f"{BIN}:{os.environ['PATH']}:/usr/sbin"
    missing = [
        name for name in ("munged", "slurmctld", "slurmd") if not shutil.which(name, path=path)
    ]
    if missing:
        pytest.skip(f"no {', '.join(missing)} here: apt-get install slurm-wlm munge")
    folder = tmp_path_factory.mktemp("cluster")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", path)
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.setenv("SLURM_CONF", str(folder / "slurm.conf"))
        subprocess.run([SCRIPTS / "slurm_cluster", "start", folder], check=True)
        yield folder
        subprocess.run([SCRIPTS / "slurm_cluster", "stop", folder], check=True)
    processes = [Path("/proc", path.read_text().strip()) for path in folder.glob("*.pid")]
    assert not [process for process in processes if process.exists()]


def run(*command: str) -> str:
    return subprocess.run(
        command, check=True, capture_output=True, text=True, timeout=TIMEOUT
    ).stdout


def settings(corpus: Path, name: str) -> list[str]:
    return arguments(corpus, corpus / name, *ON_RANKS)


def submit(corpus: Path, name: str, *overrides: str, options: list[str] | None = None) -> str:
    """Submits slurm.sbatch on both nodes unless ``options`` say otherwise; returns the job's id."""
    options = [*OPTIONS, *(options or ["--nodes=2"]), f"--output={corpus}/%x-%j.log"]
    argv = [str(SCRIPTS / "slurm.sbatch"), *settings(corpus, name), *overrides]
    return run("sbatch", "--parsable", *options, *argv).strip()


def state(job: str) -> tuple[str, int, int]:
    """State, exit status and number of restarts of a job."""
    text = run("scontrol", "show", "job", job)
    found = [re.search(rf"{key}=(\w+)", text) for key in ("JobState", "ExitCode", "Restarts")]
    name, status, restarts = [match[1] for match in found if match]
    return name, int(status), int(restarts)


def end(job: str) -> tuple[str, int, int]:
    wait_until(lambda: state(job)[0] not in ("PENDING", "RUNNING", "COMPLETING"), TIMEOUT)
    return state(job)


def log(corpus: Path, job: str) -> str:
    return (corpus / f"mt-train-{job}.log").read_text()


def wait_for_checkpoint(corpus: Path, name: str) -> None:
    wait_until(lambda: checkpoints(corpus / name), TIMEOUT)


def test_requeued_before_its_time_limit(corpus: Path) -> None:
    """To the same model and scores, bit for bit, as without a break."""
    job = submit(corpus, "undisturbed", *LONGER)
    assert end(job) == ("COMPLETED", 0, 0), log(corpus, job)
    (start,) = json.loads((corpus / "undisturbed/run.json").read_text())["starts"]
    assert start["ranks"] == 2
    assert "BLEU" in log(corpus, job)

    job = submit(corpus, "requeued", *LONGER)
    wait_for_checkpoint(corpus, "requeued")
    run("scancel", "--batch", "--signal=USR1", job)  # as Slurm does by --signal=B:USR1@120
    wait_until(lambda: state(job)[2] == 1, TIMEOUT)
    assert end(job) == ("COMPLETED", 0, 1), log(corpus, job)
    stopped = re.search(r"resuming after update (\d+)", log(corpus, job))
    assert stopped
    assert int(stopped[1]) % 20 > 0  # a checkpoint of its own
    for name in ("model.safetensors", "test.json"):
        requeued, undisturbed = (corpus / run / name for run in ("requeued", "undisturbed"))
        assert requeued.read_bytes() == undisturbed.read_bytes()


def test_scancel_leaves_a_checkpoint(corpus: Path) -> None:
    job = submit(corpus, "cancelled", "train.max_steps=100_000")
    wait_for_checkpoint(corpus, "cancelled")
    run("scancel", job)
    assert end(job)[0] == "CANCELLED"
    wait_until(lambda: "Run the same command to resume" in log(corpus, job), TIMEOUT)


def test_array_of_jobs(corpus: Path) -> None:
    index = "${oc.env:SLURM_ARRAY_TASK_ID}"
    overrides = [f"run_dir={corpus}/seed{index}", f"train.seed={index}", "train.max_steps=2"]
    job = submit(corpus, "array", *overrides, options=["--array=1-2"])
    for task in (1, 2):
        assert end(f"{job}_{task}") == ("COMPLETED", 0, 0)
        info = json.loads((corpus / f"seed{task}/run.json").read_text())
        assert info["starts"][0]["ranks"] == 1
    one, two = (corpus / f"seed{task}/model.safetensors" for task in (1, 2))
    assert one.read_bytes() != two.read_bytes()


def test_sweep_of_jobs(corpus: Path) -> None:
    """Each job has a folder; the one that fails does not end the others."""
    argv = ["-m", "hydra/launcher=submitit_slurm", "hydra.launcher.timeout_min=5"]
    argv += ["train.batch_tokens=100,0,200", "train.max_steps=2", "train.validate_every=2"]
    command = ["mt-train", *settings(corpus, "sweep"), *argv, f"cache_dir={corpus}/empty"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "job 1 (train.batch_tokens=0) failed" in done.stderr
    models = sorted(path.parent.name for path in corpus.glob("sweep/*/model.safetensors"))
    assert models == ["train.batch_tokens=100", "train.batch_tokens=200"]
