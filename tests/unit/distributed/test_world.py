"""Threads of a process, no more than the cores that it may use; a GPU that cannot be used."""

from collections.abc import Iterator
from contextlib import nullcontext

import pytest
import torch
from support.errors import input_error

from transformer_mt.distributed import world
from transformer_mt.kernels import hardware

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def eight_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(8)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("cores", "chosen", "threads"),
    [
        (64, None, 8),  # hardware threads: PyTorch counts cores
        (3, None, 3),  # a container
        (2, "8", 8),
    ],
)
def test_threads_of_a_process(
    cores: int, chosen: str | None, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hardware, "available_cores", lambda: cores)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if chosen is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", chosen)
    with world.join(CPU):
        assert torch.get_num_threads() == threads


def test_a_gpu_that_pytorch_cannot_use_is_reported(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr("pathlib.Path.exists", lambda _: True)  # the driver's device file
    world.warn_about_gpu("auto")
    assert world._cuda_problem() in caplog.messages[0]


@pytest.mark.parametrize("shares_store", [True, False])
def test_restarted_ranks_must_not_meet_in_the_store_of_the_failed_ones(
    shares_store: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {
        "RANK": "0",
        "WORLD_SIZE": "2" if shares_store else "1",
        "TORCHELASTIC_USE_AGENT_STORE": str(shares_store),
        "TORCHELASTIC_MAX_RESTARTS": "3",
    }.items():
        monkeypatch.setenv(name, value)
    refusal = input_error("TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1")
    with refusal if shares_store else nullcontext(), world.join(CPU):
        pass
