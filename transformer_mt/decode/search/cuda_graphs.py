"""Work that is recorded and then repeated, so that a GPU need not be told each part of it."""

import logging
import threading
from collections.abc import Callable
from functools import cache

import torch

from transformer_mt.errors import is_out_of_memory

log = logging.getLogger(__name__)

Work = Callable[[], None]

_ONE_AT_A_TIME = threading.Lock()
"""A process can make one recording at a time."""
_FAILED = threading.Event()
"""A recording has failed: the next would as well."""


class Recorder:
    """Makes recordings, one after the other, as CUDA graphs: one call starts hundreds of kernels.

    ``torch.cuda.graph`` gives each its own memory, and before it waits for the GPU and hands the
    driver back what is free. Here a recording takes the memory of the one before it, which has to
    be gone, and waits for nothing.
    """

    def __init__(self) -> None:
        self._memory: torch.cuda.CUDAGraph | None = None

    def __call__(self, work: Work) -> Work:
        """Records work on a GPU.

        Args:
            work: Changes tensors in place and nothing else, and does not ask what is in them. It
                is run, but nothing is computed yet.

        Returns:
            Does the work, each time on the same tensors. Where that has failed once, in this
            process, it is ``work`` itself.

        Raises:
            RuntimeError: The device's memory does not hold what lies between.
        """
        if _FAILED.is_set():
            return work
        try:
            with _ONE_AT_A_TIME:
                if self._memory is None:
                    torch.cuda.empty_cache()  # what the last recorder's was
                    self._memory = _memory()
                return _captured(work, self._memory).replay
        except RuntimeError as error:
            if is_out_of_memory(error):
                raise
            # An old driver, say; nothing is lost but speed.
            _FAILED.set()
            # The generator takes itself for one that is being recorded still: it gets a new state.
            stream = torch.cuda.current_stream()
            generator = torch.cuda.default_generators[stream.device_index]
            generator.graphsafe_set_state(torch.Generator(stream.device))
            reason = str(error).partition("\n")[0]
            log.warning("CUDA graphs cannot be used (%s): decoding is slower", reason)
            return work


def _memory() -> torch.cuda.CUDAGraph:
    """A recording of nothing much: as long as it lives, so does its memory, which others use."""
    cell = torch.zeros(1, device="cuda")
    return _captured(lambda: cell.add_(1))


def _captured(
    work: Callable[[], object], into: torch.cuda.CUDAGraph | None = None
) -> torch.cuda.CUDAGraph:
    """Work as a graph, in the memory of another or in its own."""
    graph = torch.cuda.CUDAGraph()
    pool = None if into is None else into.pool()
    with torch.cuda.stream(_side_stream(torch.cuda.current_device())):
        # Other threads, which read lines, may use the device meanwhile.
        graph.capture_begin(pool, capture_error_mode="thread_local")
        try:
            work()
        finally:
            graph.capture_end()
    return graph


@cache
def _side_stream(device: int) -> torch.cuda.Stream:
    """Recordings are not made on the stream that work is done on; cuBLAS keeps memory for each."""
    return torch.cuda.Stream(device)


class CudaGraphStep:
    """Work that is recorded when it is done a second time.

    The first time loads kernels, which a recording may not; and once is not worth one.

    Args:
        work: What to do.
        record: Makes a recording of it; None does it anew each time.
    """

    def __init__(self, work: Work, record: Callable[[Work], Work] | None):
        self._work, self._record = work, record
        self._recording: Work | None = None
        self._was_done = False

    def __call__(self) -> None:
        """Does the work."""
        if self._record is not None and self._was_done and self._recording is None:
            self._recording = self._record(self._work)
        (self._recording or self._work)()
        self._was_done = True

    def forget(self) -> None:
        """The recording is void: the work is on other tensors from now on."""
        self._recording = None  # before the next is made, which may take its memory
        self._was_done = False
