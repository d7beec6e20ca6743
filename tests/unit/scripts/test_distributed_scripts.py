"""scripts/slurm.sbatch and scripts/torchrun.sh, with stand-ins for Slurm's and torch's commands."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from support.paths import SCRIPTS
from support.polling import wait_until


@pytest.fixture
def commands(tmp_path: Path) -> Path:
    """A folder for PATH; each command in it adds its name and arguments to the file ``calls``."""
    folder = tmp_path / "bin"
    folder.mkdir()
    command(folder, "mt-train", "")
    return folder


def command(folder: Path, name: str, body: str) -> None:
    path = folder / name
    path.write_text(f'#!/bin/bash\necho {name} "$@" >>{folder}/calls\n{body}\n')
    path.chmod(0o755)


def calls(commands: Path) -> list[str]:
    path = commands / "calls"
    return path.read_text().splitlines() if path.exists() else []


def start(script: str, commands: Path, *arguments: str, **env: str) -> subprocess.Popen[str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "MT_"))}
    return subprocess.Popen(
        [SCRIPTS / script, *arguments],
        env={**clean, "PATH": f"{commands}:/usr/bin:/bin", **env},
        stderr=subprocess.PIPE,
        text=True,
    )


def end(process: subprocess.Popen[str]) -> tuple[int, str]:
    err = process.communicate(timeout=60)[1]
    return process.returncode, err


JOB = {"SLURM_JOB_ID": "42", "SLURM_CPUS_PER_TASK": "6"}
SRUN = (
    "srun --kill-on-bad-exit=0 --wait=300 --cpus-per-task=6 mt-train run_dir=runs/a b data.tsv=x y"
)
ARGUMENTS = ["run_dir=runs/a b", "data.tsv=x y"]


def slurm(commands: Path, *statuses: int, **env: str) -> tuple[int, str]:
    """The job, when one step after the other ends with the given status."""
    (commands / "statuses").write_text("".join(f"{status}\n" for status in statuses))
    command(
        commands,
        "srun",
        f"cd {commands}; status=$(head -n 1 statuses); sed -i 1d statuses; exit $status",
    )
    return end(start("slurm.sbatch", commands, *ARGUMENTS, **JOB, **env))


@pytest.mark.parametrize("status", [0, 1, 2, 130, 143])
def test_a_job_ends_as_its_step_does(commands: Path, status: int) -> None:
    assert slurm(commands, status)[0] == status
    assert calls(commands) == [SRUN]


@pytest.mark.parametrize("status", [75, 137])
def test_a_lost_task_restarts_all_tasks(commands: Path, status: int) -> None:
    ended, err = slurm(commands, status, status, 0)
    assert ended == 0
    assert calls(commands) == [SRUN] * 3
    assert err.count(f"status {status}: a task was killed or lost; restarting all tasks") == 2


def test_new_starts_are_limited(commands: Path) -> None:
    ended, err = slurm(commands, 137, 137, 137, 137, MT_RESTARTS="2")
    assert ended == 137
    assert calls(commands) == [SRUN] * 3
    assert "giving up" in err


def test_before_the_time_limit_a_job_stops_its_tasks_and_is_requeued(commands: Path) -> None:
    # The step goes on until scancel has come to it.
    command(
        commands,
        "srun",
        f"touch {commands}/up; until [ -e {commands}/term ]; do sleep 0.05; done; exit 143",
    )
    command(commands, "scancel", f"touch {commands}/term")
    command(commands, "scontrol", "")
    job = start("slurm.sbatch", commands, *ARGUMENTS, **JOB)
    wait_until((commands / "up").exists)
    job.send_signal(signal.SIGUSR1)
    status, err = end(job)
    assert status == 143
    assert calls(commands) == [SRUN, "scancel --signal=TERM 42", "scontrol requeue 42"]
    assert "requeueing the job" in err


def test_a_job_that_is_cancelled_waits_for_its_tasks_and_is_not_requeued(
    commands: Path,
) -> None:
    command(
        commands,
        "srun",
        f"touch {commands}/up; until [ -e {commands}/term ]; do sleep 0.05; done; exit 143",
    )
    command(commands, "scontrol", "")
    job = start("slurm.sbatch", commands, *ARGUMENTS, **JOB)
    wait_until((commands / "up").exists)
    job.send_signal(signal.SIGTERM)
    time.sleep(0.2)
    assert job.poll() is None
    (commands / "term").touch()  # the tasks have received SIGTERM from Slurm
    assert end(job)[0] == 143
    assert calls(commands) == [SRUN]


def test_outside_of_slurm_it_says_so(commands: Path) -> None:
    status, err = end(start("slurm.sbatch", commands))
    assert status == 2
    assert "submit this script with sbatch" in err


def test_torchrun_on_one_machine(commands: Path) -> None:
    command(commands, "torchrun", "")
    assert end(start("torchrun.sh", commands, "run_dir=a b")) == (0, "")
    assert calls(commands) == [
        "torchrun --nnodes=1 --nproc-per-node=auto --max-restarts=3 --rdzv-backend=c10d "
        f"--rdzv-endpoint=localhost:0 --rdzv-id=mt-train {commands}/mt-train run_dir=a b"
    ]


def test_torchrun_on_several_machines(commands: Path) -> None:
    command(commands, "torchrun", "exit 3")
    meet = "10.0.0.1:29400"
    settings = {"MT_NODES": "2", "MT_MEET": meet, "MT_PROCESSES": "4", "MT_RUN_ID": "b"}
    settings |= {"MT_ADDRESS": "10.0.0.2", "MT_RESTARTS": "0"}
    assert end(start("torchrun.sh", commands, **settings)) == (3, "")
    assert calls(commands) == [
        "torchrun --nnodes=2 --nproc-per-node=4 --max-restarts=0 --rdzv-backend=c10d "
        "--rdzv-endpoint=10.0.0.1:29400 --rdzv-id=b --local-addr=10.0.0.2 --rdzv-conf=is_host=0 "
        f"{commands}/mt-train"
    ]


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"MT_NODES": "2"}, "MT_MEET=HOST:PORT"), ({"MT_NODES": "two"}, "MT_NODES=two")],
)
def test_torchrun_settings_that_make_no_sense(
    commands: Path, settings: dict[str, str], message: str
) -> None:
    command(commands, "torchrun", "")
    status, err = end(start("torchrun.sh", commands, **settings))
    assert status == 2
    assert message in err
    assert len(err.splitlines()) == 1
    assert calls(commands) == []


@pytest.mark.parametrize("script", ["torchrun.sh", "slurm.sbatch"])
def test_a_missing_mt_train_is_named(commands: Path, script: str) -> None:
    (commands / "mt-train").unlink()
    command(commands, "torchrun", "")
    status, err = end(start(script, commands, **JOB))
    assert status == 1
    assert "mt-train is not on PATH" in err
