"""Ranks from the environment of torchrun, srun, sbatch and salloc."""

from itertools import product

import pytest

from transformer_mt.distributed.environment import (
    env_cores,
    env_local_rank,
    env_local_size,
    env_rank,
    env_size,
    first_host,
    set_ranks_from_slurm,
    under_launcher,
)
from transformer_mt.errors import InputError

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
    "SLURM_STEP_TASKS_PER_NODE": "4(x2)",
    "SLURM_LAUNCH_NODE_IPADDR": "10.0.0.1",
    "SLURM_PROCID": "6",
    "SLURM_LOCALID": "2",
    "SLURM_NODEID": "1",
}
RANKS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
OURS = (*RANKS, "MASTER_ADDR", "MASTER_PORT")


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*RANKS, "SLURM_STEP_NUM_TASKS", "SLURM_CPUS_ON_NODE"):
        monkeypatch.delenv(name, raising=False)


def adopted(environ: dict[str, str]) -> dict[str, str]:
    environ = dict(environ)
    set_ranks_from_slurm(environ)
    return {name: environ[name] for name in OURS if name in environ}


@pytest.mark.parametrize("leftover", ["RANK", "WORLD_SIZE"])
def test_a_single_launcher_variable_is_ignored(
    monkeypatch: pytest.MonkeyPatch, leftover: str
) -> None:
    monkeypatch.setenv(leftover, "3")
    assert (env_rank(), env_size()) == (0, 1)


@pytest.mark.parametrize("empty", [RANKS, ("RANK",), ("WORLD_SIZE",), ("RANK", "LOCAL_RANK")])
def test_empty_variables_are_not_set(
    monkeypatch: pytest.MonkeyPatch, empty: tuple[str, ...]
) -> None:
    for name in RANKS:
        monkeypatch.setenv(name, "" if name in empty else "2")
    assert not under_launcher()
    assert (env_rank(), env_size(), env_local_rank(), env_local_size()) == (0, 1, 0, 1)


def test_empty_local_variables_are_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in zip(RANKS, ("1", "4", "", ""), strict=True):
        monkeypatch.setenv(name, value)
    assert (env_rank(), env_size(), env_local_rank(), env_local_size()) == (1, 4, 0, 1)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("WORLD_SIZE", "two"),
        ("WORLD_SIZE", "0"),
        ("RANK", "-1"),
        ("RANK", "4"),
        ("RANK", "1.0"),
        ("LOCAL_RANK", "x"),
        ("LOCAL_WORLD_SIZE", "0"),
    ],
)
def test_invalid_variables_are_named(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    for key, number in zip(RANKS, "1414", strict=True):
        monkeypatch.setenv(key, number)
    monkeypatch.setenv(name, value)
    with pytest.raises(InputError, match=f"{name}={value} ") as caught:
        print(env_rank(), env_size(), env_local_rank(), env_local_size())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("available", "ranks", "slurm", "cores"),
    [
        (64, 8, None, 8),  # torchrun: the processes share what each of them may use
        (64, 8, 8, 8),  # srun without binding
        (8, 8, 8, 8),  # srun that binds each task to its own cores
        (2, 8, 8, 2),  # hardware threads, a quota
        (64, 8, 2, 8),  # torchrun in a task of srun
        (2, 8, None, 1),
    ],
)
def test_share_of_the_cores(
    monkeypatch: pytest.MonkeyPatch, available: int, ranks: int, slurm: int | None, cores: int
) -> None:
    for key, number in zip(RANKS, (1, ranks, 1, ranks), strict=True):
        monkeypatch.setenv(key, str(number))
    if slurm is not None:
        monkeypatch.setenv("SLURM_STEP_NUM_TASKS", str(slurm))
        monkeypatch.setenv("SLURM_CPUS_ON_NODE", "64")
    assert env_cores(available) == cores


def test_slurm_task_gets_its_rank() -> None:
    found = adopted(TASK)
    port = int(found.pop("MASTER_PORT"))
    assert found == {
        "RANK": "6",
        "WORLD_SIZE": "8",
        "LOCAL_RANK": "2",
        "LOCAL_WORLD_SIZE": "4",
        "MASTER_ADDR": "gnode10",
    }
    assert 1024 <= port < 32768


@pytest.mark.parametrize(
    ("tasks_per_node", "sizes"),
    [("8", [8]), ("4(x2)", [4, 4]), ("2(x3),1", [2, 2, 2, 1]), ("1,2,1(x3),3", [1, 2, 1, 1, 1, 3])],
)
def test_number_of_tasks_on_a_node(tasks_per_node: str, sizes: list[int]) -> None:
    found = [
        adopted({**TASK, "SLURM_STEP_TASKS_PER_NODE": tasks_per_node, "SLURM_NODEID": str(node)})[
            "LOCAL_WORLD_SIZE"
        ]
        for node in range(len(sizes))
    ]
    assert found == list(map(str, sizes))


def test_empty_variables_are_replaced_under_slurm() -> None:
    assert adopted({**TASK, **dict.fromkeys(OURS, "")}) == adopted(TASK)


@pytest.mark.parametrize("invalid", [None, "", "x"])
@pytest.mark.parametrize(
    "name",
    [
        *("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_STEP_TASKS_PER_NODE"),
        *("SLURM_JOB_ID", "SLURM_STEP_ID"),
    ],
)
def test_an_incomplete_task_is_refused(name: str, invalid: str | None) -> None:
    task = {key: value for key, value in TASK.items() if key != name}
    if invalid is not None:
        task[name] = invalid
    with pytest.raises(InputError, match=f"{name}={invalid or ''}") as caught:
        adopted(task)
    assert "unset SLURM_STEP_NUM_TASKS" in str(caught.value)
    assert "\n" not in str(caught.value)


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
        {"SLURM_JOB_ID": "7", "SLURM_STEP_NUM_TASKS": "", "SLURM_PROCID": "0"},
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
