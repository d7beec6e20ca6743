"""Work that is recorded and then repeated, so that a GPU need not be told each part of it."""

import logging
import threading
from collections.abc import Callable

import torch

log = logging.getLogger(__name__)

Work = Callable[[], None]

_ONE_AT_A_TIME = threading.Lock()
"""A process can make one recording at a time."""
_FAILED = threading.Event()
"""A recording has failed: the next would as well."""


def record(work: Work) -> Work:
    """Work on a GPU as a CUDA graph: hundreds of kernels that one call starts.

    Args:
        work: Changes tensors in place and nothing else, and does not ask what is in them. It is
            run, but nothing is computed yet.

    Returns:
        Does the work, each time on the same tensors. Where that has failed once, in this process,
        it is ``work`` itself.

    Raises:
        torch.OutOfMemoryError: The device's memory does not hold what lies between.
    """
    if _FAILED.is_set():
        return work
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
    try:
        # Other threads, which read lines, may use the device meanwhile.
        with _ONE_AT_A_TIME, torch.cuda.graph(graph, capture_error_mode="thread_local"):
            work()
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:  # an old driver, say; nothing is lost but speed
        _FAILED.set()
        torch.cuda.set_stream(stream)
        # The generator takes itself for one that is being recorded still: it gets a new state.
        generator = torch.cuda.default_generators[stream.device_index]
        generator.graphsafe_set_state(torch.Generator(stream.device))
        log.warning("no CUDA graph (%s): steps are told one by one", str(error).partition("\n")[0])
        return work
    return graph.replay


class Recorded:
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
