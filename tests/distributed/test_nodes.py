"""Two nodes without a shared file system, as two connected network namespaces."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from support.training_runs import BIN, MT_TRAIN, Running, checkpoints, curve, start

CABLE = "mtcable"
ADDRESSES = ("10.231.7.1", "10.231.7.2")


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


@pytest.fixture
def nodes() -> Iterator[list[str]]:
    """Names of two namespaces, connected by a virtual cable, with the addresses above."""
    names = [f"mt{os.getpid()}{letter}" for letter in "ab"]
    try:
        for name in names:
            ip("netns", "add", name)
        ends = [["name", CABLE, "netns", name] for name in names]
        ip("link", "add", *ends[0], "type", "veth", "peer", *ends[1])
        for name, address in zip(names, ADDRESSES, strict=True):
            ip("-n", name, "addr", "add", f"{address}/24", "dev", CABLE)
            for device in ("lo", CABLE):
                ip("-n", name, "link", "set", device, "up")
        yield names
    except FileNotFoundError:
        pytest.skip("no ip command here")
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no network namespaces here: {error.stderr.strip()}")
    finally:
        for name in names:
            with suppress(FileNotFoundError):
                subprocess.run(["ip", "netns", "del", name], capture_output=True)


@pytest.mark.slow
def test_two_nodes_train_as_one(corpus: Path, nodes: list[str]) -> None:
    start(corpus, "one", [MT_TRAIN], "distributed.processes=2").done()
    running: list[Running] = []
    for name, address in zip(nodes, ADDRESSES, strict=True):
        folder = corpus / f"node {address}"  # with its own run and cache
        folder.mkdir()
        torchrun = [
            *("torchrun", "--nnodes=2", "--nproc-per-node=1"),
            *("--rdzv-backend=c10d", f"--rdzv-endpoint={ADDRESSES[0]}:29400", "--rdzv-id=two"),
            *(f"--local-addr={address}", f"--rdzv-conf=is_host={int(address == ADDRESSES[0])}"),
            *("--no-python", "mt-train"),
        ]
        command = ["ip", "netns", "exec", name, *torchrun]
        more = [f"run_dir={folder}/two", f"cache_dir={folder}/cache"]
        env = {"PATH": f"{BIN}:{os.environ['PATH']}", "GLOO_SOCKET_IFNAME": CABLE}
        running.append(start(corpus, "two", command, *more, **env))
    try:
        ended = [each.wait() for each in running]
    finally:
        for each in running:
            with suppress(ProcessLookupError):
                os.killpg(each.pid, signal.SIGKILL)
    assert [status for status, _, _ in ended] == [0, 0], ended
    assert ended[0][1]  # the scores
    assert not ended[1][1]
    run_dir = corpus / f"node {ADDRESSES[0]}" / "two"
    assert not checkpoints(corpus / f"node {ADDRESSES[1]}" / "two")  # only rank 0 writes
    one, two = (folder / "model.safetensors" for folder in (corpus / "one", run_dir))
    assert one.read_bytes() == two.read_bytes()
    for split in ("train", "valid"):
        assert curve(corpus / "one", split) == curve(run_dir, split)
