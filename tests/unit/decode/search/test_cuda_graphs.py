"""The search as on a GPU, but on a CPU: a tape of the operations replaces the CUDA graph.

Like a graph, its replay runs no Python, works on the captured tensors, and the capture fails if
the contents of a tensor are read.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.models import make_translator, random_lines, random_model
from support.search_tables import ALPHAS, TABLES, Table, search
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from transformer_mt.config import DecodeConfig
from transformer_mt.data.subwords.tokenizer import Tokenizer
from transformer_mt.decode.search import beam_search
from transformer_mt.decode.search.cuda_graphs import CudaGraphStep, Work

ASKS = {"_local_scalar_dense", "nonzero", "item", "is_nonzero", "equal"}
"""Operations that read the contents of a tensor, and so cannot be captured."""
FROM_THE_HOST = {"lift_fresh", "lift_fresh_copy", "pin_memory"}
"""Operations that copy from host memory, which a replay would repeat with old contents."""


class Tape(TorchDispatchMode):
    """Records each operation, its arguments and its result."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: list[tuple[Any, tuple[Any, ...], dict[str, Any], Any]] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        name = func.__name__.split(".")[0]
        assert name not in ASKS | FROM_THE_HOST, f"{name} cannot be captured"
        result = func(*args, **(kwargs or {}))
        self.operations.append((func, tuple(args), kwargs or {}, result))
        return result

    def play(self) -> None:
        now: dict[int, Tensor] = {}  # by the id of the tensor in the recording

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


class FakeGraphStep(CudaGraphStep):
    """Captures a tape instead of a CUDA graph: the work is not done during the capture."""

    captures = plays = 0

    def _capture(self) -> Work:
        FakeGraphStep.captures += 1
        tape = Tape()
        with tape:
            self._work()
        pending = [True]  # the capture itself was the first run

        def play() -> None:
            FakeGraphStep.plays += 1
            if pending:
                pending.clear()
            else:
                tape.play()

        return play


@pytest.fixture
def graph_step(monkeypatch: pytest.MonkeyPatch) -> type[FakeGraphStep]:
    FakeGraphStep.captures = FakeGraphStep.plays = 0
    policy = beam_search._StepPolicy(8, 0.25, 0, FakeGraphStep)
    monkeypatch.setattr(beam_search, "_CPU_POLICY", policy)
    return FakeGraphStep


LEARNED = {"norm": "pre", "positions": "learned", "max_positions": 31}


@pytest.mark.parametrize(
    ("beam_size", "config", "members"),
    [(1, {}, 2), (4, {}, 1), (4, {"max_positions": 12}, 2), (1, LEARNED, 1), (4, LEARNED, 2)],
)
def test_replayed_steps_give_the_same_translations(
    tokenizer: Tokenizer,
    beam_size: int,
    config: dict[str, Any],
    members: int,
    request: pytest.FixtureRequest,
) -> None:
    models = [random_model(**config) for _ in range(members)]
    decode = DecodeConfig(beam_size=beam_size, max_extra_tokens=40)
    lines = random_lines(25, 9)

    def translations() -> list[list[Any]]:
        translator = make_translator(models[0], tokenizer, decode, ensemble=models[1:])
        return translator.translate_nbest(lines, min(2, beam_size))

    expected = translations()
    graph_step: type[FakeGraphStep] = request.getfixturevalue("graph_step")
    found = translations()
    assert graph_step.plays > 4 * graph_step.captures > 0
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
def test_rare_checks_for_finished_sentences_change_nothing(
    table: Table,
    limits: list[int],
    beam_size: int,
    alpha: float,
    steps: int,
    leaving: float,
    small: int,
) -> None:
    expected = search(table, limits, beam_size=beam_size, alpha=alpha, nbest=beam_size)
    policy = beam_search._StepPolicy(steps, leaving, small, None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(beam_search, "_CPU_POLICY", policy)
        found = search(table, limits, beam_size=beam_size, alpha=alpha, nbest=beam_size)
    assert found == expected


def test_steps_that_are_not_capturable_run_eagerly(
    graph_step: type[FakeGraphStep], tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = DecodeConfig(no_repeat_ngram=2, max_extra_tokens=5)
    translator, lines = make_translator(random_model(), tokenizer, config), random_lines(10, 6)
    found = translator.translate(lines)
    assert graph_step.captures == 0
    monkeypatch.setattr(beam_search, "_CPU_POLICY", beam_search._StepPolicy(1, 0, 0, None))
    assert translator.translate(lines) == found


def test_a_small_batch_is_captured_once(
    graph_step: type[FakeGraphStep], tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = replace(beam_search._CPU_POLICY, small_batch=6)
    monkeypatch.setattr(beam_search, "_CPU_POLICY", policy)
    translator = make_translator(random_model(), tokenizer, DecodeConfig(max_extra_tokens=30))
    translator.translate(random_lines(6, 9))
    assert graph_step.captures == 1
