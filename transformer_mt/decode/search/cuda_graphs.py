"""CUDA graphs: a decoding step is captured once and replayed, which saves launching its kernels."""

import threading
from collections.abc import Callable
from functools import cache

import torch

Work = Callable[[], None]

_CAPTURE_LOCK = threading.Lock()
"""A process can capture one graph at a time."""


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
        """Captures the work, without computing anything; returns what replays it."""
        with _CAPTURE_LOCK:
            return _capture(self._work, _pool(torch.cuda.current_device())).replay


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
    at each of the captures of a batch.
    """
    graph, device = torch.cuda.CUDAGraph(), torch.cuda.current_device()
    pool = torch.cuda.graph_pool_handle() if pool_owner is None else pool_owner.pool()
    with torch.cuda.stream(_capture_stream(device)):
        # Other threads, such as those that read input, may use the device meanwhile.
        graph.capture_begin(pool, capture_error_mode="thread_local")
        try:
            work()
        finally:
            graph.capture_end()
    return graph


@cache
def _capture_stream(device: int) -> torch.cuda.Stream:
    """The stream of all captures; cuBLAS allocates memory for each stream that it sees."""
    return torch.cuda.Stream(device)
