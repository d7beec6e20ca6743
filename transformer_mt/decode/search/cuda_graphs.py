"""CUDA graphs: a decoding step is captured once and replayed, which saves launching its kernels."""

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import cache

import torch

from transformer_mt.errors import is_out_of_memory

log = logging.getLogger(__name__)

Work = Callable[[], None]

_CAPTURE_LOCK = threading.Lock()
"""A process can capture one graph at a time."""
_FAILED = threading.Event()
"""Set once a capture has failed, unless memory ran out: later ones would fail as well."""


class CudaGraphStep:
    """Work that runs eagerly the first time and is captured and replayed from the second time on.

    The first call loads kernels, which a capture may not do, and a single call is not worth one.
    Work may only change tensors in place and never read their contents on the host.
    """

    def __init__(self, work: Work):
        self._work = work
        self._replay: Work | None = None
        self._has_run = False

    def __call__(self) -> None:
        """Runs the step."""
        if self._has_run and self._replay is None:
            self._replay = self._capture()
        (self._replay or self._work)()
        self._has_run = True

    def invalidate(self) -> None:
        """Drops the graph, because the step uses other tensors from now on."""
        self._replay = None  # before the next capture, which may reuse its memory
        self._has_run = False

    def _capture(self) -> Work:
        """Captures the work, without computing anything; returns what replays it.

        Once a capture has failed, this is the work itself.
        """
        if _FAILED.is_set():
            return self._work
        try:
            with _CAPTURE_LOCK:
                return _capture(self._work, _pool(torch.cuda.current_device())).replay
        except RuntimeError as error:
            if is_out_of_memory(error):
                raise
            # For example an old driver; only speed is lost.
            _FAILED.set()
            reason = str(error).partition("\n")[0]
            log.warning("CUDA graphs cannot be used (%s): decoding is slower", reason)
            return self._work


@cache
def _pool(device: int) -> torch.cuda.CUDAGraph:
    """A trivial graph whose memory pool all others of the process use: it keeps the pool alive."""
    cell = torch.zeros(1, device=f"cuda:{device}")
    return _capture(lambda: cell.add_(1))


def release_memory() -> None:
    """Lets other work have the memory of graphs, which torch otherwise keeps even when it runs out.

    For use when decoding is over, as after a validation; later graphs get new memory.
    """
    _pool.cache_clear()


def _capture(
    work: Callable[[], object], pool_owner: torch.cuda.CUDAGraph | None = None
) -> torch.cuda.CUDAGraph:
    """Captures work in the memory pool of another graph, or in a new one.

    Like ``torch.cuda.graph``, which would wait for the GPU and return all memory that torch keeps,
    at each of the captures of a batch; and if the work fails, its error would be replaced by that
    of ending the capture.
    """
    graph, device = torch.cuda.CUDAGraph(), torch.cuda.current_device()
    pool = torch.cuda.graph_pool_handle() if pool_owner is None else pool_owner.pool()
    with torch.cuda.stream(_capture_stream(device)):
        try:
            # Other threads, such as those that read input, may use the device meanwhile.
            graph.capture_begin(pool, capture_error_mode="thread_local")
            work()
            graph.capture_end()
        except BaseException:
            _abandon(graph, pool, device)
            raise
    return graph


def _abandon(graph: torch.cuda.CUDAGraph, pool: tuple[int, int], device: int) -> None:
    """Ends a capture that has failed, also where torch cannot, because CUDA has ended it."""
    try:
        graph.capture_end()
    except RuntimeError:
        # The allocator and the random generator still believe that it continues: memory of the pool
        # would never be freed, and dropout in later training would fail.
        with suppress(RuntimeError, AttributeError):
            torch._C._cuda_endAllocateToPool(device, pool)
            torch._C._cuda_releasePool(device, pool)
        generator = torch.cuda.default_generators[device]
        generator.graphsafe_set_state(torch.Generator(f"cuda:{device}"))


@cache
def _capture_stream(device: int) -> torch.cuda.Stream:
    """The stream of all captures; cuBLAS allocates memory for each stream that it sees."""
    return torch.cuda.Stream(device)
