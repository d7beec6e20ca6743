"""Work that is recorded once and then repeated, so that a GPU need not be told each part of it."""

from collections.abc import Callable

import torch

Work = Callable[[], None]


def record(work: Work) -> Work:
    """Work on a GPU as a CUDA graph: hundreds of kernels that one call starts.

    Args:
        work: Changes tensors in place and nothing else, and does not ask what is in them. It is
            run, but nothing is computed yet.

    Returns:
        Does the work, each time on the same tensors.
    """
    graph = torch.cuda.CUDAGraph()
    # Other threads, which read lines, may use the device meanwhile.
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        work()
    return graph.replay


class Recorded:
    """Work that is recorded when it is first asked for.

    Args:
        work: What to do.
        record: Makes a recording of it; None does it anew each time.
    """

    def __init__(self, work: Work, record: Callable[[Work], Work] | None):
        self._work, self._record = work, record
        self._recording: Work | None = None

    def __call__(self) -> None:
        """Does the work."""
        if self._record is None:
            self._work()
            return
        if self._recording is None:
            self._recording = self._record(self._work)
        self._recording()

    def forget(self) -> None:
        """The recording is void: the work is on other tensors from now on."""
        self._recording = None
