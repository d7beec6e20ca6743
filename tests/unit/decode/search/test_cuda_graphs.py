"""The search as a GPU does it, on a CPU: a tape of the operations stands in for the CUDA graph.

Like a graph it runs no Python when it is played, works on the very tensors that it was recorded
with, and refuses to be asked what is in them.
"""

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from test_beam_search import ALPHAS, TABLES, Table, search
from test_translator import PLAIN, make_tokenizer, random_lines, random_model
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from transformer_mt.config import DecodeConfig
from transformer_mt.decode.search import beam_search as searching
from transformer_mt.decode.search import cuda_graphs as recorded
from transformer_mt.decode.search.cuda_graphs import CudaGraphStep, Work
from transformer_mt.decode.translator import Translator

ASKS = {"_local_scalar_dense", "nonzero", "item", "is_nonzero", "equal"}
"""What needs the contents of a tensor, and so cannot be recorded."""
FROM_THE_HOST = {"lift_fresh", "lift_fresh_copy", "pin_memory"}
"""What copies from the processor's memory, which a graph would do with what was there then."""


class Tape(TorchDispatchMode):
    """Notes each operation, its arguments, and what came out."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: list[tuple[Any, tuple[Any, ...], dict[str, Any], Any]] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        name = func.__name__.split(".")[0]
        assert name not in ASKS | FROM_THE_HOST, f"{name} cannot be recorded"
        result = func(*args, **(kwargs or {}))
        self.operations.append((func, tuple(args), kwargs or {}, result))
        return result

    def play(self) -> None:
        now: dict[int, Tensor] = {}  # by the tensor that it was in the recording

        def current(tensor: Tensor) -> Tensor:
            return now.get(id(tensor), tensor)

        for func, args, kwargs, result in self.operations:
            again = func(
                *tree_map_only(Tensor, current, args), **tree_map_only(Tensor, current, kwargs)
            )
            for old, new in zip(_tensors(result), _tensors(again), strict=True):
                now.setdefault(id(old), new)


def _tensors(result: Any) -> list[Tensor]:
    parts = result if isinstance(result, tuple | list) else [result]
    return [part for part in parts if isinstance(part, Tensor)]


class Recorder:
    """Stands in for ``record``: a graph's work is not done while it is recorded."""

    def __init__(self) -> None:
        self.recordings = self.plays = 0

    def __call__(self, work: Work) -> Work:
        self.recordings += 1
        tape = Tape()
        with tape:
            work()
        pending = [True]  # the recording itself was the first time

        def play() -> None:
            self.plays += 1
            if pending:
                pending.clear()
            else:
                tape.play()

        return play


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    made = Recorder()
    pace = searching._Pace(8, 0.25, 0, lambda: made)
    monkeypatch.setattr(searching, "_pace", lambda _: pace)
    return made


@pytest.mark.parametrize("beam_size", [1, 4])
@pytest.mark.parametrize(
    "config",
    [{}, {"max_positions": 12}, {"norm": "pre", "positions": "learned", "max_positions": 31}],
)
@pytest.mark.parametrize("members", [1, 2])
def test_played_from_a_tape_translations_are_the_same(
    tmp_path_factory: pytest.TempPathFactory,
    beam_size: int,
    config: dict[str, Any],
    members: int,
    request: pytest.FixtureRequest,
) -> None:
    tokenizer = make_tokenizer(tmp_path_factory.mktemp("vocabulary"))
    models = [random_model(**config) for _ in range(members)]
    decode = DecodeConfig(beam_size=beam_size, max_extra_tokens=60)
    lines = random_lines(40, 9)

    def translations() -> list[list[Any]]:
        translator = Translator(models[0], tokenizer, decode, PLAIN, others=models[1:])
        return translator.translate_nbest(lines, min(2, beam_size))

    expected = translations()
    recorder: Recorder = request.getfixturevalue("recorder")
    found = translations()
    assert recorder.plays > 4 * recorder.recordings > 0
    for theirs, ours in zip(expected, found, strict=True):
        assert [t.pieces for t in ours] == [t.pieces for t in theirs]
        assert [t.score for t in ours] == pytest.approx([t.score for t in theirs], abs=1e-4)
    assert len({tuple(found[0].pieces) for found in expected}) > 10


@given(
    TABLES,
    st.lists(st.integers(0, 7), min_size=1, max_size=6),
    st.integers(1, 4),
    ALPHAS,
    st.integers(1, 9),
    st.floats(0, 1),
    st.integers(0, 6),
)
def test_looking_seldom_changes_nothing(
    table: Table,
    limits: list[int],
    beam_size: int,
    alpha: float,
    steps: int,
    leaving: float,
    small: int,
) -> None:
    expected = search(table, limits, beam_size=beam_size, alpha=alpha, nbest=beam_size)
    pace = searching._Pace(steps, leaving, small, None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(searching, "_pace", lambda _: pace)
        found = search(table, limits, beam_size=beam_size, alpha=alpha, nbest=beam_size)
    assert found == expected


def test_what_is_not_alike_is_not_recorded(
    recorder: Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = DecodeConfig(no_repeat_ngram=2, min_length=3, max_extra_tokens=5)
    translator = Translator(random_model(), make_tokenizer(tmp_path), config, PLAIN)
    lines = random_lines(10, 6)
    found = translator.translate(lines)
    assert recorder.recordings == 0
    monkeypatch.setattr(searching, "_pace", lambda _: searching._Pace(1, 0, 0, None))
    assert translator.translate(lines) == found


def test_a_recording_is_made_the_second_time_and_again_when_it_is_void() -> None:
    done: list[str] = []

    def record(work: Work) -> Callable[[], None]:
        done.append("record")
        return lambda: done.append("play")

    step = CudaGraphStep(lambda: done.append("work"), record)
    for _ in range(3):
        step()
    step.forget()
    step()
    step()
    assert done == ["work", "record", "play", "play", "work", "record", "play"]


def test_where_a_recording_fails_the_work_goes_on_without_and_none_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tried: list[object] = []
    states: list[torch.Generator] = []

    def fail(*_: object, **__: object) -> None:
        tried.append(1)
        raise RuntimeError("operation not permitted when stream is capturing\nand more")

    stream = SimpleNamespace(device=torch.device("cpu"), device_index=0)
    generator = SimpleNamespace(graphsafe_set_state=states.append)
    for name, value in (
        ("current_stream", lambda: stream),
        ("default_generators", [generator]),
    ):
        monkeypatch.setattr(torch.cuda, name, value)
    for name, value in (
        ("_FAILED", threading.Event()),
        ("_memory", object),
        ("_captured", fail),
    ):
        monkeypatch.setattr(recorded, name, value)
    done: list[int] = []
    for _ in range(2):
        work = CudaGraphStep(lambda: done.append(1), recorded.Recorder())
        for _ in range(3):
            work()
    assert len(done) == 6
    assert len(tried) == len(states) == len(caplog.records) == 1
    assert (
        "CUDA graphs cannot be used (operation not permitted when stream is capturing)"
        in caplog.text
    )
