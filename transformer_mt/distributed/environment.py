"""This process's place among the ranks, by the environment that its launcher made."""

import os
import re
import socket
from collections.abc import MutableMapping

from transformer_mt.errors import InputError

# Below Linux's own choice for outgoing connections, which begins at 32768.
_PORTS = range(20000, 32000)


def under_launcher() -> bool:
    """Whether torchrun, or anything that sets its environment, started this process.

    One of the two alone is a leftover in somebody's shell.
    """
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def env_rank() -> int:
    """This process's rank by its environment; 0 where there is no launcher."""
    return _rank_and_size()[0]


def env_size() -> int:
    """How many ranks there are by the environment; 1 where there is no launcher."""
    return _rank_and_size()[1]


def env_local_rank() -> int:
    """This process's rank among those of its machine, for which it takes a GPU."""
    return _number("LOCAL_RANK", "0")


def env_local_size() -> int:
    """How many ranks share this machine; 1 where the launcher does not say."""
    return max(1, _number("LOCAL_WORLD_SIZE", "1"))


def _rank_and_size() -> tuple[int, int]:
    if not under_launcher():
        return 0, 1
    rank, size = _number("RANK"), _number("WORLD_SIZE")
    if rank >= size:
        raise InputError(
            f"RANK={rank} and WORLD_SIZE={size}: ranks are counted from 0; unset both to be alone"
        )
    return rank, size


def _number(name: str, default: str = "") -> int:
    value = os.environ.get(name, default)
    if not re.fullmatch("[0-9]+", value):
        raise InputError(f"the environment says {name}={value!r}, which is not a number: unset it")
    return int(value)


def place() -> str:
    """This process among the ranks, for a person to find it."""
    return f"rank {env_rank()} of {env_size()}, on {socket.gethostname()}"


def adopt_slurm_step(environ: MutableMapping[str, str] = os.environ) -> None:
    """Lets a task of ``srun --ntasks-per-node=8 mt-train …`` know its place as torchrun would.

    Only srun sets SLURM_STEP_NUM_TASKS. SLURM_NTASKS proves nothing: a batch script has it, and so
    has the shell of salloc, where this process is alone. So is one typed into ``srun --pty bash``,
    whatever the number of tasks.

    Raises:
        InputError: The step's environment lacks something, or makes no sense.
    """
    launched = "RANK" in environ and "WORLD_SIZE" in environ  # by a torchrun inside the step
    if launched or "SLURM_PTY_PORT" in environ or environ.get("SLURM_STEP_NUM_TASKS", "1") == "1":
        return
    try:
        size, rank, local_rank, job, step = (
            int(environ[name])
            for name in (
                "SLURM_STEP_NUM_TASKS",
                "SLURM_PROCID",
                "SLURM_LOCALID",
                "SLURM_JOB_ID",
                "SLURM_STEP_ID",
            )
        )
        nodes = environ["SLURM_STEP_NODELIST"]
    except (KeyError, ValueError) as error:
        raise InputError(
            f"this is a task of a Slurm step, but its environment makes no sense ({error}): set "
            "RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT, or unset "
            "SLURM_STEP_NUM_TASKS to train in this process alone"
        ) from None
    environ.update(RANK=str(rank), WORLD_SIZE=str(size), LOCAL_RANK=str(local_rank))
    # Not SLURM_LAUNCH_NODE_IPADDR: that is where srun runs, which may be a login node.
    environ.setdefault("MASTER_ADDR", first_host(nodes))
    # The same on all tasks, and another one for the step or the job beside this one.
    environ.setdefault("MASTER_PORT", str(_PORTS[(31 * job + step) % len(_PORTS)]))


def first_host(nodes: str) -> str:
    """The first of a Slurm list of hosts: ``rack[0-3]n[07,09],login`` begins with ``rack0n07``.

    ``scontrol show hostnames`` would say so too, but is often missing inside a container.
    """
    # A comma ends the name unless it is inside brackets; of brackets, what comes first counts.
    name = re.match(r"(?:\[[^]]*\]|[^,\[])*", nodes)
    return re.sub(r"\[([^],-]*)[^]]*\]", r"\1", name[0]) if name else ""
