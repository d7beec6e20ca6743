"""The fastest of several engines, found by timing them with the model on this machine."""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import torch

from transformer_mt.decode.engines import engine_speeds
from transformer_mt.decode.engines.engine import Engine, EngineChoice, TokenPair, WordIds
from transformer_mt.decode.engines.engine_speeds import Speeds
from transformer_mt.decode.search.hypothesis import Hypothesis
from transformer_mt.decode.translation import Link
from transformer_mt.errors import InputError, format_os_error

MIN_SENTENCES = 256
"""A search of fewer sentences does not start a measurement."""


class FastestEngine:
    """Translates with the fastest of several engines; see ``Engine``.

    Until speeds are known, from the cache or from a search of many sentences, the first candidate
    translates. Candidates of one data type give the same translations (ties and rounding aside), so
    the engine may change between two searches. Among several types the first search decides.

    Args:
        candidates: The engines, the usually fastest first.
        build: Builds one of them; raises ``InputError`` if it cannot.
        max_tokens: ``Engine.max_tokens`` of all.
        conditions: Returns what speeds depend on, as JSON values.
        report: Called with each message for the user.
    """

    def __init__(
        self,
        candidates: Sequence[EngineChoice],
        build: Callable[[EngineChoice], Engine],
        *,
        max_tokens: int | None,
        conditions: Callable[[], Mapping[str, Any]],
        report: Callable[[str], None],
    ):
        self.candidates, self.max_tokens = list(candidates), max_tokens
        """Candidates that have not failed to load; the first one translates."""
        self._build, self._conditions, self._report = build, cache(conditions), report
        self._engines: dict[EngineChoice, Engine] = {}
        self._has_chosen = False

    @property
    def choice(self) -> EngineChoice:
        """The candidate that translates at present."""
        return self.candidates[0]

    def search(
        self,
        sources: Sequence[list[int]],
        nbest: int,
        prefixes: Sequence[list[int]] | None = None,
        *,
        token_scores: bool = True,
    ) -> list[list[Hypothesis]]:
        """See ``Engine``."""
        self.choose(sources)
        return self._engine().search(sources, nbest, prefixes, token_scores=token_scores)

    def benchmark(self, sources: Sequence[list[int]], max_length: int) -> None:
        """See ``Engine``."""
        self._engine().benchmark(sources, max_length)

    def score(
        self, sources: Sequence[list[int]], targets: Sequence[list[int]]
    ) -> list[list[float]]:
        """See ``Engine``."""
        return self._engine().score(sources, targets)

    def align(self, pairs: Sequence[TokenPair], words: Sequence[WordIds]) -> list[list[Link]]:
        """See ``Engine``."""
        return self._engine().align(pairs, words)

    def choose(self, sources: Sequence[list[int]]) -> None:
        """Chooses an engine if speeds are known, or these sentences are enough to measure them."""
        if self._has_chosen:
            return
        conditions = self._conditions()
        speeds = engine_speeds.read(conditions)
        if not speeds and len(sources) >= MIN_SENTENCES:
            speeds = self._measure(conditions, sources)
        if possible := [candidate for candidate in self.candidates if candidate in speeds]:
            self.use(max(possible, key=lambda candidate: speeds[candidate]))
        elif self._types_differ:
            self.use(self.choice)

    def use(self, choice: EngineChoice) -> None:
        """Chooses a candidate, or another one if it cannot be built."""
        if self._has_chosen and choice == self.choice:
            return
        if self._types_differ:
            differs = ": some translations and all scores differ from float32's"
            effect = "" if choice.compute_type == "float32" else differs
            self._report(f"compute_type=fast is {choice}{effect}")
        self.candidates.sort(key=lambda candidate: candidate != choice)
        self._engines = {each: e for each, e in self._engines.items() if each == choice}
        self._has_chosen = True
        self._engine()

    @property
    def _types_differ(self) -> bool:
        return len({candidate.compute_type for candidate in self.candidates}) > 1

    def _engine(self) -> Engine:
        while self.choice not in self._engines:
            self._open(self.choice)
        return self._engines[self.choice]

    def _open(self, candidate: EngineChoice) -> None:
        """Builds a candidate; one that cannot be built is dropped."""
        if candidate in self._engines:
            return
        try:
            self._engines[candidate] = self._build(candidate)
        except InputError as error:
            if len(self.candidates) == 1:
                raise
            self.candidates.remove(candidate)
            self._report(f"{error}; using {self.choice}")

    def _measure(self, conditions: Mapping[str, Any], sources: Sequence[list[int]]) -> Speeds:
        """Times all candidates and stores their speeds; empty if there was too little time."""
        for candidate in list(self.candidates):
            self._open(candidate)
        start = time.perf_counter()
        speeds = engine_speeds.measure(self._engines, sources, torch.get_num_threads())
        seconds = time.perf_counter() - start
        if not speeds:
            return {}
        try:
            kept = f"kept in {engine_speeds.write(conditions, speeds)}"
        except OSError as error:
            kept = f"not kept ({format_os_error(error)})"
        ordered = sorted(speeds.items(), key=lambda item: -item[1])
        listed = ", ".join(f"{candidate} {speed:,.0f} tokens/s" for candidate, speed in ordered)
        self._report(f"timed in {seconds:.1f} s, {kept}: {listed}")
        return speeds
