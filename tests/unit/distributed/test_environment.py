"""Ranks from the environment of torchrun, srun, sbatch and salloc."""

from itertools import product

import pytest

from transformer_mt.distributed.environment import (
    env_rank,
    env_size,
    first_host,
    set_ranks_from_slurm,
)

# What `srun --nodes=2 --ntasks-per-node=4` gives its task 6, among much else.
ALLOCATION = {
    "SLURM_JOB_ID": "200505",
    "SLURM_JOB_NODELIST": "gnode[09-10,25]",
    "SLURM_NTASKS": "8",
    "SLURM_NNODES": "2",
}
TASK = {
    **ALLOCATION,
    "SLURM_STEP_ID": "3",
    "SLURM_STEP_NUM_TASKS": "8",
    "SLURM_STEP_NODELIST": "gnode[10,25]",
    "SLURM_LAUNCH_NODE_IPADDR": "10.0.0.1",
    "SLURM_PROCID": "6",
    "SLURM_LOCALID": "2",
    "SLURM_NODEID": "1",
}
OURS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")


def adopted(environ: dict[str, str]) -> dict[str, str]:
    environ = dict(environ)
    set_ranks_from_slurm(environ)
    return {name: environ[name] for name in OURS if name in environ}


@pytest.mark.parametrize("leftover", ["RANK", "WORLD_SIZE"])
def test_a_single_launcher_variable_is_ignored(
    monkeypatch: pytest.MonkeyPatch, leftover: str
) -> None:
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(leftover, "3")
    assert (env_rank(), env_size()) == (0, 1)


def test_slurm_task_gets_its_rank() -> None:
    found = adopted(TASK)
    port = int(found.pop("MASTER_PORT"))
    assert found == {"RANK": "6", "WORLD_SIZE": "8", "LOCAL_RANK": "2", "MASTER_ADDR": "gnode10"}
    assert 1024 <= port < 32768


def test_master_port_is_shared_by_tasks_and_differs_between_steps_and_jobs() -> None:
    def port(**changed: str) -> str:
        return adopted({**TASK, **changed})["MASTER_PORT"]

    assert port(SLURM_PROCID="0", SLURM_LOCALID="0") == port()
    ports = {
        port(SLURM_JOB_ID=str(200505 + job), SLURM_STEP_ID=str(step))
        for job, step in product(range(20), range(5))
    }
    assert len(ports) == 100


def test_variables_set_by_the_user_are_kept() -> None:
    found = adopted({**TASK, "MASTER_ADDR": "10.1.2.3", "MASTER_PORT": "4000"})
    assert (found["MASTER_ADDR"], found["MASTER_PORT"]) == ("10.1.2.3", "4000")


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {**ALLOCATION, "SLURM_PROCID": "0", "SLURM_LOCALID": "0"},  # a batch script, a salloc shell
        {**TASK, "SLURM_STEP_NUM_TASKS": "1"},  # srun of one task: its own launcher, or ours
        {**TASK, "SLURM_PROCID": "0", "SLURM_PTY_PORT": "40123"},  # srun --ntasks=8 --pty bash
    ],
)
def test_a_process_outside_a_step_of_several_tasks_is_single(environ: dict[str, str]) -> None:
    assert adopted(environ) == {}


def test_torchrun_inside_a_step_takes_precedence() -> None:
    ranks = {"RANK": "1", "WORLD_SIZE": "16", "LOCAL_RANK": "1"}
    assert adopted({**TASK, **ranks}) == ranks


@pytest.mark.parametrize(
    ("nodes", "first"),
    [
        ("login", "login"),
        ("a,b", "a"),
        ("node[001-004]", "node001"),
        ("gnode[10,20,25,37]", "gnode10"),
        ("gpu[7]", "gpu7"),
        ("rack[0-3]n[07,09-11]-ib,login", "rack0n07-ib"),
        ("n-1,n-[2-3]", "n-1"),
    ],
)
def test_first_host_of_a_node_list(nodes: str, first: str) -> None:
    assert first_host(nodes) == first
