"""Several ranks are one: the same gradient, the same curve, one end together."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from transformer_mt import distributed
from transformer_mt.config import ModelConfig, OptimizerConfig
from transformer_mt.data.batching import GlobalBatch, micro_batches
from transformer_mt.data.store import Side, TokenStore
from transformer_mt.distributed import World
from transformer_mt.errors import InputError
from transformer_mt.model.transformer import Transformer
from transformer_mt.train.step import TrainStep

V = 23
CPU = torch.device("cpu")
LONG = 120.0
UPDATES = {
    # Chunks of pairs in the update, tokens a side in one forward pass.
    "one part a rank": ([range(13), range(13, 30)], 10**6),
    "several parts, not as many on each rank": ([range(13), range(13, 30)], 21),
    "fewer pairs than ranks": ([range(5, 6)], 10**6),
}


def pairs() -> TokenStore:
    rng = np.random.default_rng(0)

    def side() -> Side:
        lengths = rng.integers(1, 12, 30)
        return Side.from_lists([[*rng.integers(4, V, n - 1).tolist(), 3] for n in lengths])

    return TokenStore(side(), side())


def gradients(world: World, update: str) -> tuple[dict[str, torch.Tensor], float, list[int]]:
    """The gradient of an update shared by the ranks, its loss, and this rank's part sizes."""
    chunks, max_tokens = UPDATES[update]
    store = pairs()
    indices = tuple(np.array(chunk) for chunk in chunks)
    targets = sum(int(store.tgt.lengths[chunk].sum()) for chunk in indices)
    torch.manual_seed(1)
    config = ModelConfig(
        d_model=8, d_ff=16, num_heads=2, num_encoder_layers=1, num_decoder_layers=1, dropout=0.0
    )
    model = Transformer(config, V).double()
    step = TrainStep(model, OptimizerConfig(), 0.1, "fp32", world)
    parts = micro_batches(store, GlobalBatch(indices, targets), max_tokens, world.rank, world.size)
    result = step(parts, targets, 1e-3, seed=0)
    loss = world.sum(result.loss).item() / targets
    found = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    sizes = [len(part.tgt_out) if part.weight else 0 for part in parts]
    return {k: v.contiguous() for k, v in found.items()}, loss, sizes


def work_together(folder: Path) -> None:
    """What each rank does in the tests below; it writes what it found into a file of its own."""
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    with distributed.join(CPU) as world:
        report = {
            "size": world.size,
            "is_main": world.is_main,
            "sum": world.sum(torch.tensor([world.rank + 1.0, 10.0])).tolist(),
            "nobody": world.any(False),
            "the last rank alone": world.any(world.rank == world.size - 1),
            "gathered": world.gather({"rank": world.rank, "text": "ü" * world.rank}),
        }
        world.any(False)
        for number, update in enumerate(UPDATES):
            grads, loss, sizes = gradients(world, update)
            report[update] = [loss, sizes]
            save_file(grads, folder / f"{world.rank}.{number}.safetensors")
        (folder / f"{world.rank}.json").write_text(json.dumps(report))


@pytest.fixture(scope="module", autouse=True)
def _signals() -> Iterator[None]:
    """torch's launcher takes the process's signal handlers and does not give them back."""
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
    before = {number: signal.getsignal(number) for number in numbers}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(scope="module", params=[2, 3])
def ranks(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The reports of ranks that worked together, in order."""
    folder = tmp_path_factory.mktemp(f"ranks{request.param}")
    distributed.launch(work_together, (folder,), request.param)
    reports = sorted(folder.glob("*.json"))
    assert len(reports) == request.param
    return reports


def test_ranks_know_their_places_and_talk(ranks: list[Path]) -> None:
    size = len(ranks)
    for rank, path in enumerate(ranks):
        report = json.loads(path.read_text())
        assert report["size"] == size
        assert report["is_main"] == (rank == 0)
        assert report["sum"] == [size * (size + 1) / 2, 10.0 * size]
        assert report["nobody"] is False
        assert report["the last rank alone"] is True
        assert report["gathered"] == [{"rank": r, "text": "ü" * r} for r in range(size)]


def test_one_process_is_a_world_of_its_own() -> None:
    world = World(CPU)
    assert world.is_main
    assert world.sum(torch.tensor([3.0])).tolist() == [3.0]
    assert (world.any(True), world.any(False), world.gather("x")) == (True, False, ["x"])
    world.any(False)


@pytest.mark.parametrize("update", UPDATES)
def test_the_gradient_is_that_of_one_rank(ranks: list[Path], update: str) -> None:
    torch.set_default_dtype(torch.float64)
    try:
        expected, loss, (targets, *_) = gradients(World(CPU), update)
    finally:
        torch.set_default_dtype(torch.float32)
    sizes = []
    for path in ranks:
        own_loss, own_sizes = json.loads(path.read_text())[update]
        sizes.append(own_sizes)
        assert own_loss == pytest.approx(loss, rel=1e-5)
        number = list(UPDATES).index(update)
        found = load_file(path.with_name(f"{path.stem}.{number}.safetensors"))
        assert found.keys() == expected.keys()
        for name, gradient in expected.items():
            torch.testing.assert_close(found[name], gradient, rtol=1e-10, atol=1e-12, msg=name)
    # The case is the one it claims to be.
    shares = [sum(own) for own in sizes]
    if update == "fewer pairs than ranks":
        assert shares == [targets, *[0] * (len(ranks) - 1)]
    else:
        assert len(set(shares)) > 1
        assert min(shares) > 0
    if update.startswith("several"):
        assert len({len(own) for own in sizes}) > 1
        assert all(len(own) > 1 for own in sizes)


def fail_on_one_rank(how: str) -> None:
    with distributed.join(CPU) as world:
        world.any(False)
        if world.rank == 1:
            if how == "input":
                raise InputError("data.tsv, line 7: the file is on fire")
            os.kill(os.getpid(), signal.SIGKILL)
        world.any(False)  # for ever, if nobody ends it


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("input", r"^data\.tsv, line 7: the file is on fire$"),
        ("killed", r"^a worker was killed: Signal 9 \(SIGKILL\)"),
    ],
)
def test_a_rank_that_fails_ends_the_others(
    how: str, message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    start = time.monotonic()
    with pytest.raises(InputError, match=message):
        distributed.launch(fail_on_one_rank, (how,), 2)
    assert time.monotonic() - start < LONG
    if how == "input":
        assert "Traceback" not in capfd.readouterr().err


# The command.

SETTINGS = [
    "train.precision=fp32",
    "data=files",
    "data.src_lang=en",
    "data.tgt_lang=de",
    "tokenizer.vocab_size=290",
    "data.cleaning.max_tokens=64",
    "model=tiny",
    "model.d_model=16",
    "model.d_ff=32",
    "model.num_heads=2",
    "model.num_encoder_layers=1",
    "model.num_decoder_layers=1",
    "model.dropout=0",
    "schedule=inverse_sqrt",
    "schedule.warmup_steps=10",
    "schedule.peak_lr=5e-3",
    "train.batch_tokens=200",
    "train.max_tokens_per_device=80",
    "train.max_steps=50",
    "train.log_every=1",
    "train.checkpoint_every=20",
    "train.validate_every=25",
    "train.device=cpu",
    "decode.beam_size=2",
    "decode.max_extra_tokens=2",
]
BIN = Path(sys.executable).parent


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    rng = random.Random(0)
    for name, count in (("train", 120), ("valid", 7), ("test", 5)):
        lines = [" ".join(rng.choices("abcdefgh", k=rng.randint(2, 6))) for _ in range(count)]
        (folder / f"{name}.tsv").write_text("".join(f"{s}\t{s.upper()}\n" for s in lines))
    return folder


def start(corpus: Path, name: str, command: list[str], *more: str) -> subprocess.Popen[str]:
    data = [f"data.{part}=[{{tsv: {corpus}/{part}.tsv}}]" for part in ("train", "valid", "test")]
    where = [f"run_dir={corpus}/{name}", f"cache_dir={corpus}/cache"]
    return subprocess.Popen(
        [*command, *where, *SETTINGS, *data, *more],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        start_new_session=True,
    )


def end(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    try:
        out, err = process.communicate(timeout=LONG)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    return process.returncode, out, err


def records(run_dir: Path, split: str) -> list[dict[str, float]]:
    lines = (run_dir / "metrics.jsonl").read_text().splitlines()
    return [record for record in map(json.loads, lines) if record["split"] == split]


def test_two_processes_learn_what_one_learns_however_they_are_started(corpus: Path) -> None:
    """One process alone; two of them until Ctrl-C; then two by torchrun, from there to the end."""
    mt_train = str(BIN / "mt-train")
    status, printed, err = end(start(corpus, "one", [mt_train]))
    assert status == 0, err

    run_dir = corpus / "two"
    process = start(corpus, "two", [mt_train], "distributed.processes=2")
    deadline = time.monotonic() + LONG
    while not list(run_dir.glob("checkpoints/step_*")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    status, out, err = end(process)
    assert (status, out) == (130, "")
    assert "Traceback" not in err
    assert err.count("the same command goes on from here") == 1  # one rank speaks
    stopped_at = int(max(run_dir.glob("checkpoints/step_*")).name.removeprefix("step_"))
    assert stopped_at == records(run_dir, "train")[-1]["step"]  # no update is lost
    assert 20 <= stopped_at < 50

    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", mt_train]
    status, out, err = end(start(corpus, "two", torchrun))
    assert status == 0, err
    assert f"resuming after update {stopped_at}" in err
    assert len(out.splitlines()) == len(printed.splitlines())  # one rank prints

    for split, updates in (("train", range(1, 51)), ("valid", (25, 50))):
        one, two = (records(corpus / name, split) for name in ("one", "two"))
        assert [r["step"] for r in one] == [r["step"] for r in two] == list(updates)
        for key in ("loss", "nll", "grad_norm" if split == "train" else "bleu"):
            assert [r[key] for r in two] == pytest.approx([r[key] for r in one], rel=1e-4), key
    assert records(corpus / "two", "train")[-1]["nll"] < 0.8 * records(run_dir, "train")[0]["nll"]
    scores = [json.loads((corpus / name / "test.json").read_text()) for name in ("one", "two")]
    assert [s["segments"] for s in scores[1]] == [5] * len(scores[0])


def test_compiled_layers_learn_what_one_process_learns(corpus: Path) -> None:
    """Buffers of one shape, every layer a graph of its own: as on several GPUs."""
    mt_train = str(BIN / "mt-train")
    short = ["train.max_steps=6", "train.validate_every=3", "train.max_tokens_per_device=120"]
    status, _, err = end(start(corpus, "eager", [mt_train], *short))
    assert status == 0, err
    two = ["distributed.processes=2", "train.compile=true"]
    status, _, err = end(start(corpus, "compiled", [mt_train], *short, *two))
    assert status == 0, err
    assert "compiled" in err
    for split in ("train", "valid"):
        eager, compiled = (records(corpus / name, split) for name in ("eager", "compiled"))
        for key in ("loss", "nll", "grad_norm" if split == "train" else "bleu"):
            assert [r[key] for r in compiled] == pytest.approx([r[key] for r in eager], rel=1e-4)
