"""Ranks from the environment of torchrun."""

import pytest
from support.errors import input_error

from transformer_mt.distributed.environment import LauncherEnv

RANKS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in RANKS:
        monkeypatch.delenv(name, raising=False)


SLURM = {"SLURM_JOB_ID": "7", "SLURM_PROCID": "1", "SLURM_NTASKS": "8"}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (("3",), (0, 1, 0, 1)),  # RANK alone is left over from something else
        (("", "", "", ""), (0, 1, 0, 1)),
        (("2", "", "2", "2"), (0, 1, 0, 1)),
        (("1", "4", "", ""), (1, 4, 0, 1)),
        (("1", "4", "1", "2"), (1, 4, 1, 2)),
    ],
)
def test_ranks_of_a_launcher(
    monkeypatch: pytest.MonkeyPatch, values: tuple[str, ...], expected: tuple[int, ...]
) -> None:
    """torchrun gives them; a task of srun, a batch script and a shell of salloc are single."""
    for name, value in {**dict(zip(RANKS, values, strict=False)), **SLURM}.items():
        monkeypatch.setenv(name, value)
    assert LauncherEnv.read() == LauncherEnv(expected[1] > 1, *expected)


@pytest.mark.parametrize(
    ("name", "value"),
    [
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
    with input_error(f"{name}={value} "):
        LauncherEnv.read()
