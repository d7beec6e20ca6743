"""Several ranks train as one process does: same gradients, same losses, same end."""

import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from support.losses import mean_losses
from support.models import tiny_config
from support.stores import random_store
from support.training_runs import MT_TRAIN, checkpoints, records, start
from torch.multiprocessing.spawn import start_processes

from transformer_mt.batch import IGNORE_INDEX
from transformer_mt.config import OptimizerConfig
from transformer_mt.data.batching.micro_batches import micro_batches
from transformer_mt.data.batching.plan import GlobalBatch
from transformer_mt.distributed.world import World, join
from transformer_mt.model.transformer import Transformer
from transformer_mt.training.step import LossModule, TrainStep
from transformer_mt.training.validation import validation_loss

V = 23
CPU = torch.device("cpu")
UPDATES = {
    # Chunks of pairs in the update, maximum tokens of either side in one forward pass.
    "one part on each rank": ([range(13), range(13, 30)], 10**6),
    "several parts, differently many on each rank": ([range(13), range(13, 30)], 14),
    "fewer pairs than ranks": ([range(5, 6)], 10**6),
}


STORE = random_store(31, V)


def tiny_model() -> Transformer:
    torch.manual_seed(1)
    return Transformer(tiny_config(dropout=0.0), V).double()


def gradients(world: World, update: str) -> tuple[dict[str, torch.Tensor], list[int]]:
    """The gradients and the loss of an update shared by the ranks, and this rank's part sizes."""
    chunks, max_tokens = UPDATES[update]
    indices = tuple(np.array(chunk) for chunk in chunks)
    targets = sum(int(STORE.tgt.lengths[chunk].sum()) for chunk in indices)
    model = tiny_model()
    step = TrainStep(model, OptimizerConfig(), 0.1, "fp32", world)
    parts = micro_batches(GlobalBatch(STORE, indices, targets), max_tokens, world.rank, world.size)
    result = step(parts, targets, 1e-3, seed=0)
    found = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    sizes = [int((part.tgt_out != IGNORE_INDEX).sum()) for part in parts]
    return {**found, "loss": world.sum(result.loss) / targets}, sizes


def collectives(world: World) -> None:
    rank, size = world.rank, world.size
    assert world.is_main == (rank == 0)
    sums = world.sum(torch.tensor([rank + 1.0, 10.0])).tolist()
    assert sums == [size * (size + 1) / 2, 10.0 * size]
    assert (world.any(False), world.any(rank == size - 1)) == (False, True)
    assert world.gather({"text": "ü" * rank}) == [{"text": "ü" * r} for r in range(size)]
    assert world.broadcast_object(("ü", rank)) == ("ü", 0)
    if rank == 1:
        time.sleep(0.2)  # a slow rank, which the others wait for

    def tensors(rank: int) -> list[torch.Tensor]:
        """Each kind that a checkpoint may hold."""
        return [
            torch.nn.Parameter(torch.full((3, 2), rank + 0.1, dtype=torch.float32)),
            torch.tensor(2**40 + rank),
            torch.tensor([rank == 0, True, rank == 1]),
            torch.tensor([rank + 0.5], dtype=torch.bfloat16),
            torch.arange(6, dtype=torch.float64).reshape(2, 3).add(rank).T,
            torch.zeros(0, dtype=torch.float32),
        ]

    received = tensors(rank)
    world.broadcast(iter(received))
    assert all(map(torch.equal, received, tensors(0)))


def gradients_equal_those_of_one_rank(world: World) -> None:
    torch.set_default_dtype(torch.float64)
    for update in UPDATES:
        expected, _ = gradients(World(CPU), update)
        found, own = gradients(world, update)
        assert found.keys() == expected.keys()
        for name, tensor in expected.items():
            rtol = 1e-5 if name == "loss" else 1e-10
            torch.testing.assert_close(found[name], tensor, rtol=rtol, atol=1e-12, msg=name)
        # The update splits as its name says.
        sizes = world.gather(own)
        shares = [sum(each) for each in sizes]
        if update == "fewer pairs than ranks":
            assert shares[0] > 0 == sum(shares[1:])
        else:
            assert len(set(shares)) > 1
            assert min(shares) > 0
        if update.startswith("several"):
            assert len({len(each) for each in sizes}) > 1
            assert all(len(each) > 1 for each in sizes)


def losses_of_a_validation_are_means_over_the_target_tokens_of_all_ranks(world: World) -> None:
    torch.set_default_dtype(torch.float64)
    assert len(STORE.src.tokens) != len(STORE.tgt.tokens)
    loss, nll = mean_losses(tiny_model().eval(), STORE, range(31), 0.1)
    found = validation_loss(LossModule(tiny_model().eval(), 0.1, "fp32"), STORE, 14, world)
    assert found == {"loss": pytest.approx(loss), "nll": pytest.approx(nll)}


def run_rank(rank: int, size: int, port: int, check: Callable[[World], None]) -> None:
    os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": str(port)}  # as torchrun does
    os.environ |= {"WORLD_SIZE": str(size), "RANK": str(rank), "LOCAL_RANK": str(rank)}
    torch.set_num_threads(1)
    with join(CPU) as world:
        assert (world.rank, world.size) == (rank, size)
        check(world)


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize(
    "check",
    [
        collectives,
        gradients_equal_those_of_one_rank,
        losses_of_a_validation_are_means_over_the_target_tokens_of_all_ranks,
    ],
)
def test_ranks_that_work_together(size: int, check: Callable[[World], None]) -> None:
    with socket.create_server(("localhost", 0)) as probe:
        port = probe.getsockname()[1]
    start_processes(run_rank, (size, port, check), nprocs=size, start_method="fork")


# The mt-train command.


def check_same_curves(one: Path, two: Path, updates: Sequence[int], validated: list[int]) -> None:
    """The runs have records of these updates and validations, equal but for rounding."""
    for split, steps, last in (("train", updates, "grad_norm"), ("valid", validated, "bleu")):
        expected, found = (records(folder, split) for folder in (one, two))
        assert [r["step"] for r in expected] == [r["step"] for r in found] == list(steps)
        for key in ("loss", "nll", last):
            assert [r[key] for r in found] == pytest.approx([r[key] for r in expected], rel=1e-4)


def test_other_numbers_of_ranks_continue_a_run_under_mt_train_and_torchrun(corpus: Path) -> None:
    """Two ranks until Ctrl-C, one until SIGTERM, then two under torchrun: as one trains alone."""
    printed, _ = start(corpus, "one", "train").done()

    run_dir = corpus / "two"
    launcher = start(corpus, "two", "train", "distributed.processes=2")
    launcher.wait_for(lambda: bool(checkpoints(run_dir)))
    launcher.send(signal.SIGINT)  # the ranks have left its process group
    status, out, err = launcher.wait()
    assert (status, out) == (130, "")
    assert "Traceback" not in err
    assert err.count("same command") == 1  # only rank 0 prints
    stopped_at = last_update(run_dir)
    assert 20 <= stopped_at < 50

    recorded = (run_dir / "metrics.jsonl").stat().st_size
    alone = start(corpus, "two", "train")
    alone.wait_for(lambda: (run_dir / "metrics.jsonl").stat().st_size > recorded)
    alone.send(signal.SIGTERM)
    status, _, err = alone.wait()
    assert status == 143
    assert f"resuming after update {stopped_at}" in err
    assert stopped_at < last_update(run_dir) < 50
    stopped_at = last_update(run_dir)

    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", MT_TRAIN]
    out, err = start(corpus, "two", torchrun).done()
    assert f"resuming after update {stopped_at}" in err
    assert len(out.splitlines()) == len(printed.splitlines())  # only rank 0 prints

    check_same_curves(corpus / "one", run_dir, range(1, 51), [25, 50])
    nll = [record["nll"] for record in records(run_dir, "train")]
    assert nll[-1] < 0.8 * nll[0]
    scores = [json.loads((corpus / name / "test.json").read_text()) for name in ("one", "two")]
    assert [s["segments"] for s in scores[1]] == [7] * len(scores[0])

    _, err = start(corpus, "two", "train", "distributed.processes=2").done()
    assert "nothing to do" in err


def last_update(run_dir: Path) -> int:
    """The update of the last checkpoint of a run that was stopped, which is also recorded."""
    step = int(checkpoints(run_dir)[-1].name.removeprefix("step_"))
    assert step == records(run_dir, "train")[-1]["step"]  # no update is lost
    return step


@pytest.mark.slow
def test_two_compiled_processes_train_as_one(corpus: Path) -> None:
    """With buffers of a fixed shape, and each layer a separate graph, as on several GPUs."""
    more = ["train.max_steps=20", "train.validate_every=10", "train.max_tokens_per_device=120"]
    start(corpus, "eager", "train", *more).done()
    more += ["train.compile=true", "distributed.processes=2"]
    _, err = start(corpus, "compiled", [MT_TRAIN], *more).done()
    assert "compiled" in err
    check_same_curves(corpus / "eager", corpus / "compiled", range(1, 21), [10, 20])
