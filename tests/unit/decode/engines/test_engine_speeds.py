"""Engines are timed within a limit, and their speeds are kept."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from transformer_mt.decode.engines import engine_speeds
from transformer_mt.decode.engines.engine import EngineChoice
from transformer_mt.decode.engines.engine_speeds import measure, read, write

A, B, C = EngineChoice("torch"), EngineChoice("ctranslate2"), EngineChoice("ctranslate2", "int8")


class Clock:
    """A clock that only engines advance."""

    now = 100.0

    def perf_counter(self) -> float:
        return self.now


class TimedEngine:
    """An engine that generates ``speed`` tokens per second after ``start_up`` seconds."""

    def __init__(self, clock: Clock, speed: float, start_up: float = 0.5):
        self._clock, self._speed, self._start_up = clock, speed, start_up
        self.rounds: list[tuple[int, int]] = []

    def benchmark(self, sources: Sequence[list[int]], max_length: int) -> None:
        assert {len(ids) for ids in sources} == {max_length}
        self._clock.now += len(sources) * (max_length + 1) / self._speed + self._start_up
        self._start_up = 0
        self.rounds.append((len(sources), max_length))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(engine_speeds, "time", clock)
    return clock


def timed(clock: Clock, **speeds: float) -> Any:
    choices = {"a": A, "b": B, "c": C}
    return {choices[name]: TimedEngine(clock, speed) for name, speed in speeds.items()}


SENTENCES = [list(range(4, 4 + n % 20 + 1)) for n in range(4000)]


@pytest.mark.parametrize("speed", [100, 500, 3000, 20000])
def test_speeds_are_measured_within_two_seconds(clock: Clock, speed: float) -> None:
    engines = timed(clock, a=speed, b=0.8 * speed)
    found = measure(engines, SENTENCES, threads=2)
    start_up = 1 + 2 * (1 + 1 / 0.8) / speed
    assert clock.now - 100 <= start_up + max(2.0, 64 * 2 * (1 + 1 / 0.8) / speed)
    assert found == {A: pytest.approx(speed), B: pytest.approx(0.8 * speed)}
    (one, *sizes), (_, *lengths) = zip(*engines[A].rounds, strict=True)
    assert one == 1
    assert set(sizes) == {64}  # as large as the batches of CTranslate2
    assert lengths == sorted({*lengths})
    assert lengths[-1] <= 11  # the median


def test_measurement_takes_a_small_share_of_the_job(clock: Clock) -> None:
    engines = timed(clock, a=3000, b=2000)
    seconds = sum(len(ids) + 1 for ids in SENTENCES[:800]) / 3000
    assert measure(engines, SENTENCES[:800], threads=2)
    assert clock.now - 100 - 1 - 2 * (1 / 3000 + 1 / 2000) <= 0.1 * seconds


def test_small_jobs_tell_nothing(clock: Clock) -> None:
    engines = timed(clock, a=30000, b=20000)
    assert measure(engines, SENTENCES[:300], threads=2) == {}
    assert len(engines[A].rounds) == 2


def test_slow_engines_are_timed_less(clock: Clock) -> None:
    engines = timed(clock, a=400, b=3000, c=4000)
    found = measure(engines, SENTENCES, threads=2)
    assert found == {A: pytest.approx(400), B: pytest.approx(3000), C: pytest.approx(4000)}
    assert len(engines[A].rounds) < len(engines[B].rounds) == len(engines[C].rounds)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path / ".cache" / "transformer_mt"


def test_speeds_are_kept(cache: Path) -> None:
    conditions = {"models": ["1" * 64], "threads": 2}
    assert read(conditions) == {}
    place = write(conditions, {A: 636.25, C: 1150.0})
    assert place.is_relative_to(cache)
    assert read(conditions) == {A: pytest.approx(636.2, abs=0.1), C: 1150}
    assert read({**conditions, "threads": 1}) == {}


@pytest.mark.parametrize("damage", ["", "[]", '{"speeds": 1}', "half", "[" * 10**5])
def test_damaged_speeds_are_measured_again(cache: Path, damage: str) -> None:
    place = write({"threads": 2}, {A: 1.0})
    text = place.read_text()
    place.write_text(text[: len(text) // 2] if damage == "half" else damage)
    assert read({"threads": 2}) == {}
    write({"threads": 2}, {B: 2.0})
    assert read({"threads": 2}) == {B: 2.0}
