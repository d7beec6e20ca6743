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
"""Set once a capture has failed: later ones would fail as well."""


class CudaGraphStep:
    """Work that runs eagerly the first time and is captured and replayed from the second time on.

    The first call loads kernels, which a capture may not do, and a single call is not worth one.
    Work may only change tensors in place and never read their contents on the host.

    ``torch.cuda.graph`` gives each graph its own memory, synchronises with the GPU and empties the
    allocator's cache first. Here a graph reuses the memory of the one before it, which must have
    been deleted, and nothing synchronises.
    """

    def __init__(self, work: Work):
        self._work = work
        self._replay: Work | None = None
        self._has_run = False
        self._pool_owner: torch.cuda.CUDAGraph | None = None

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
                if self._pool_owner is None:
                    torch.cuda.empty_cache()  # memory of the last step's graphs
                    self._pool_owner = _make_pool()
                return _capture(self._work, self._pool_owner).replay
        except RuntimeError as error:
            if is_out_of_memory(error):
                raise
            # For example an old driver; only speed is lost.
            _FAILED.set()
            # The random generator still believes that it is being captured: reset its state.
            stream = torch.cuda.current_stream()
            generator = torch.cuda.default_generators[stream.device_index]
            generator.graphsafe_set_state(torch.Generator(stream.device))
            reason = str(error).partition("\n")[0]
            log.warning("CUDA graphs cannot be used (%s): decoding is slower", reason)
            return self._work


def _make_pool() -> torch.cuda.CUDAGraph:
    """A trivial graph that keeps its memory pool, which other graphs use, alive."""
    cell = torch.zeros(1, device="cuda")
    return _capture(lambda: cell.add_(1))


def _capture(
    work: Callable[[], object], pool_owner: torch.cuda.CUDAGraph | None = None
) -> torch.cuda.CUDAGraph:
    """Captures work in the memory pool of another graph, or in a new one."""
    graph, device = torch.cuda.CUDAGraph(), torch.cuda.current_device()
    pool = torch.cuda.graph_pool_handle() if pool_owner is None else pool_owner.pool()
    with torch.cuda.stream(_capture_stream(device)):
        try:
            # Other threads, such as those that read input, may use the device meanwhile.
            graph.capture_begin(pool, capture_error_mode="thread_local")
            try:
                work()
            finally:
                graph.capture_end()
        except RuntimeError:
            # The allocator still waits for the end, unless there was one; until then it frees no
            # memory of its cache.
            with suppress(RuntimeError):
                torch._C._cuda_endAllocateToPool(device, pool)
                torch._C._cuda_releasePool(device, pool)
            raise
    return graph


@cache
def _capture_stream(device: int) -> torch.cuda.Stream:
    """The stream of all captures; cuBLAS allocates memory for each stream that it sees."""
    return torch.cuda.Stream(device)
