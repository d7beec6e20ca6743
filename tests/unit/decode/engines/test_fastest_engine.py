"""Which engine translates: the first, until speeds are known; then the fastest."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from transformer_mt.decode.engines import engine_speeds
from transformer_mt.decode.engines.engine import EngineChoice
from transformer_mt.decode.engines.fastest_engine import MIN_SENTENCES, FastestEngine
from transformer_mt.decode.search.hypothesis import Hypothesis
from transformer_mt.errors import InputError

SLOW, FAST = EngineChoice("ctranslate2"), EngineChoice("torch")
INT8 = EngineChoice("ctranslate2", "int8")
SPEEDS = {SLOW: 462.0, FAST: 636.0, INT8: 1150.0}
FEW, MANY = [[4, 5]] * 5, [[4, 5]] * MIN_SENTENCES


class FakeEngine:
    """An engine whose only hypothesis has its name's length as score."""

    def __init__(self, choice: EngineChoice):
        self.choice, self.max_tokens = choice, None

    def search(self, sources: Sequence[list[int]], *_: Any, **__: Any) -> list[list[Hypothesis]]:
        return [[Hypothesis([], 0.0, SPEEDS[self.choice])] for _ in sources]

    score = align = benchmark = search


class Lab:
    """Builds engines; keeps what was built, measured and reported."""

    def __init__(self) -> None:
        self.built: list[EngineChoice] = []
        self.broken: set[EngineChoice] = set()
        self.measured = 0
        self.reports: list[str] = []

    def build(self, choice: EngineChoice) -> Any:
        if choice in self.broken:
            raise InputError(f"no {choice.engine}")
        self.built.append(choice)
        return FakeEngine(choice)

    def engine(self, *candidates: EngineChoice) -> FastestEngine:
        return FastestEngine(
            candidates,
            self.build,
            max_tokens=None,
            conditions=lambda: {"candidates": [str(each) for each in candidates]},
            report=self.reports.append,
        )


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    monkeypatch.setenv("HOME", str(tmp_path))
    lab = Lab()

    def measure(engines: dict[EngineChoice, Any], *_: Any) -> dict[EngineChoice, float]:
        lab.measured += 1
        return {choice: SPEEDS[choice] for choice in engines}

    monkeypatch.setattr(engine_speeds, "measure", measure)
    return lab


def translator_of(engine: FastestEngine, sources: list[list[int]]) -> EngineChoice:
    """The engine that translates the sources."""
    found = engine.search(sources, 1)
    assert len(found) == len(sources)
    return next(choice for choice, speed in SPEEDS.items() if speed == found[0][0].score)


def test_few_sentences_are_not_worth_a_measurement(lab: Lab) -> None:
    engine = lab.engine(SLOW, FAST)
    for _ in range(3):
        assert translator_of(engine, FEW) == engine.choice == SLOW
    assert (lab.built, lab.measured, lab.reports) == ([SLOW], 0, [])


def test_many_sentences_are_translated_by_the_fastest(lab: Lab) -> None:
    engine = lab.engine(SLOW, FAST)
    assert translator_of(engine, FEW) == SLOW
    assert translator_of(engine, MANY) == engine.choice == FAST
    assert translator_of(engine, FEW) == FAST
    assert translator_of(engine, MANY) == FAST
    assert lab.measured == 1
    (message,) = lab.reports
    assert "engine=torch 636 tokens/s" in message
    assert "engine=ctranslate2 462 tokens/s" in message


def test_a_measurement_is_kept_for_later_jobs(lab: Lab) -> None:
    translator_of(lab.engine(SLOW, FAST), MANY)
    lab.built.clear()
    lab.reports.clear()
    assert translator_of(lab.engine(SLOW, FAST), FEW) == FAST
    assert (lab.built, lab.measured, lab.reports) == ([FAST], 1, [])
    assert translator_of(lab.engine(SLOW, INT8, FAST), FEW) == SLOW  # another choice


def test_an_unwritable_cache_is_reported(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / ".cache").write_text("in the way")
    assert translator_of(lab.engine(SLOW, FAST), MANY) == FAST
    assert "not kept" in lab.reports[0]


def test_unclear_measurements_decide_nothing(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = lab.engine(SLOW, FAST)
    with monkeypatch.context() as patched:
        patched.setattr(engine_speeds, "measure", lambda *_: {})
        assert translator_of(engine, MANY) == SLOW
    assert lab.reports == []
    assert translator_of(engine, MANY) == FAST


def test_among_several_types_the_first_search_decides(lab: Lab) -> None:
    """Otherwise the translations of one stream would depend on when its lines arrived."""
    engine = lab.engine(INT8, SLOW, FAST)
    assert translator_of(engine, FEW) == INT8
    (message,) = lab.reports
    assert "compute_type=int8" in message
    assert "differ from float32" in message
    assert translator_of(engine, MANY) == INT8
    assert lab.measured == 0


def test_engines_that_cannot_be_built(lab: Lab) -> None:
    lab.broken = {SLOW}
    engine = lab.engine(SLOW, FAST)
    assert translator_of(engine, FEW) == FAST
    assert lab.reports == ["no ctranslate2; using engine=torch"]
    lab.broken.add(FAST)
    with pytest.raises(InputError, match="no torch"):
        lab.engine(SLOW, FAST).search(FEW, 1)
    lab.broken = {FAST}
    assert translator_of(lab.engine(SLOW, FAST), MANY) == SLOW


def test_a_choice_that_was_made_before(lab: Lab) -> None:
    engine = lab.engine(SLOW, INT8, FAST)
    engine.use(FAST)
    assert translator_of(engine, MANY) == engine.choice == FAST
    assert (lab.built, lab.measured) == ([FAST], 0)
    reports = list(lab.reports)
    engine.use(FAST)
    assert lab.reports == reports


@pytest.mark.parametrize("name", ["score", "align", "benchmark"])
def test_the_rest_is_done_by_the_same_engine(lab: Lab, name: str) -> None:
    engine = lab.engine(SLOW, FAST)
    call: Callable[..., Any] = getattr(engine, name)
    call(FEW, 1)
    engine.use(FAST)
    call(FEW, 1)
    assert lab.built == [SLOW, FAST]
