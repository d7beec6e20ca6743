"""Cleaning of the training data: applies the filters, and reports what each dropped.

A pair meets the filters of text first (``Cleaner.clean``), those of length once it is encoded
(``check_lengths``), and then the one that finds duplicates by their hashes.
"""

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from math import inf
from pkgutil import resolve_name
from typing import Any, NamedTuple

import numpy as np

from transformer_mt.config import CleaningConfig, DataConfig
from transformer_mt.data.cleaning.filters import (
    SET_ASIDE,
    PairFilter,
    SideFilter,
    active_filters,
    overlaps,
)
from transformer_mt.data.text.normalization import normalize
from transformer_mt.data.text.tags import split_tag
from transformer_mt.errors import printable
from transformer_mt.protocols import Pair, PairNoise
from transformer_mt.registries import PAIR_NOISE

EXAMPLES = 5
"""Number of dropped pairs that a report shows for each filter: the first ones."""

_EXAMPLE_CHARACTERS = 200

_RATIO_SLACK = 5
"""Subwords that the longer side may have beyond ``max_ratio``. The length of a translation varies
with the square root of the source's length (Gale & Church 1993), so a ratio alone is too strict for
short pairs or too lax for long ones."""

_NOISE_SEED = 4
"""Last number of the seeds of noise; those of other generators differ."""


class CleanedPair(NamedTuple):
    """A training pair after normalisation and the filters of text."""

    tag: str
    """The tag of its source, or ""."""
    line: Pair
    """The lines as they were read, without the tag."""
    text: Pair
    """The normalised lines."""
    dropped_by: str | None
    """Name of the first filter that drops the pair, or None."""


class Cleaner:
    """Noise on training pairs, their normalisation, and the filters that need nothing but the pair.

    Args:
        data: The configuration.
        languages: Source and target language; default: those of the model.
        tags: Tags that a source line may start with.
        held_out: Hashes of sentences that no pair may contain.
    """

    def __init__(
        self,
        data: DataConfig,
        languages: tuple[str, str] | None = None,
        tags: Collection[str] = (),
        held_out: Container[int] = frozenset(),
    ):
        config = data.cleaning
        self._normalization, self._languages = data.normalization, languages or data.languages()
        src_lang, tgt_lang = self._languages
        self._tags = tags
        noise = PAIR_NOISE.get(data.augment)
        self.noise: PairNoise | None = resolve_name(noise) if noise else None
        self._filters: list[tuple[str, PairFilter]] = []
        for f in active_filters(config):
            if f.side:
                tests = f.side(config, src_lang), f.side(config, tgt_lang)
                self._filters.append((f.name, _either_side(*tests)))
            elif f.both:
                self._filters.append((f.name, f.both))
        if held_out:
            self._filters.append((SET_ASIDE, lambda *pair: overlaps(pair, held_out)))

    def clean(self, pair: Pair) -> CleanedPair:
        """Takes the tag off, normalises both sides, and applies the filters of text."""
        tag, src = split_tag(pair.src, self._tags)
        line = Pair(src, pair.tgt)
        text = self._normalize(line)
        name = next((name for name, drops in self._filters if drops(*text)), None)
        return CleanedPair(tag, line, text, name)

    def add_noise(self, pair: CleanedPair, seed: Sequence[int]) -> Pair | None:
        """The text of a pair after noise was added to it; None if none is.

        Normalisation follows, which may undo the noise.
        """
        if self.noise is None:
            return None
        noisy = self.noise(pair.line, np.random.default_rng([*seed, _NOISE_SEED]))
        return None if noisy == pair.line else self._normalize(noisy)

    def _normalize(self, pair: Pair) -> Pair:
        name, (src_lang, tgt_lang) = self._normalization, self._languages
        return Pair(normalize(pair.src, name, src_lang), normalize(pair.tgt, name, tgt_lang))


def check_lengths(
    config: CleaningConfig, num_src: int, num_tgt: int, num_tags: int = 0
) -> str | None:
    """Name of the first filter that drops a pair by its numbers of subwords, or None.

    Both numbers include the end symbol, and that of the source its tags, which do not count for the
    ratio.
    """
    if max(num_src, num_tgt) > config.max_tokens:
        return "length"
    shorter, longer = sorted((num_src - num_tags, num_tgt))
    limit = (config.max_ratio or inf) * shorter + _RATIO_SLACK
    return "length_ratio" if longer > limit else None


def _either_side(src_test: SideFilter, tgt_test: SideFilter) -> PairFilter:
    return lambda src, tgt: src_test(src) or tgt_test(tgt)


def cleaners(
    data: DataConfig, tags: Collection[str], held_out: Container[int] = frozenset()
) -> list[Cleaner]:
    """The cleaner of each training source."""
    languages = [data.languages(source) for source in data.train]
    made = {pair: Cleaner(data, pair, tags, held_out) for pair in set(languages)}
    return [made[pair] for pair in languages]


def clean_text(
    data: DataConfig, held_out: Container[int], seed: int, pairs: Iterable[tuple[int, int, Pair]]
) -> list[Pair]:
    """The text of the pairs that no filter of text drops; some have noise, with ``data.augment``.

    Args:
        data: The configuration.
        held_out: Hashes of sentences that no pair may contain.
        seed: Seed of the noise.
        pairs: Each is preceded by the index of its data source, and by its number in it.
    """
    of_source, kept = cleaners(data, data.tags, held_out), []
    for source, row, pair in pairs:
        cleaner = of_source[source]
        cleaned = cleaner.clean(pair)
        if cleaned.dropped_by is None:
            kept.append(cleaner.add_noise(cleaned, [seed, source, row]) or cleaned.text)
    return kept


class CleaningReport:
    """Number of pairs read, and number that each filter dropped, with the first few of them.

    Args:
        config: Names the active filters.

    Attributes:
        total: Number of pairs read; the reader adds to it.
        dropped: Number of pairs that each filter dropped; a pair counts for the first that did.
        examples: The first dropped pairs of each filter.
    """

    def __init__(self, config: CleaningConfig):
        self.total = 0
        self.dropped = {f.name: 0 for f in active_filters(config)}
        self.examples: dict[str, list[dict[str, str]]] = {name: [] for name in self.dropped}

    @property
    def kept(self) -> int:
        """Number of pairs that passed every filter."""
        return self.total - sum(self.dropped.values())

    def add(self, name: str, where: str, src: str, tgt: str) -> None:
        """Adds a pair that a filter dropped; ``where`` is its file and its number in it."""
        self.dropped[name] += 1
        if len(self.examples[name]) < EXAMPLES:
            pair = {"src": _excerpt(src), "tgt": _excerpt(tgt)}
            self.examples[name].append({"where": where, **pair})

    def merge(self, other: "CleaningReport") -> None:
        """Adds the report of a later part of the corpus."""
        self.total += other.total
        for name, count in other.dropped.items():
            self.dropped[name] += count
            self.examples[name] = (self.examples[name] + other.examples[name])[:EXAMPLES]

    def to_json(self) -> dict[str, Any]:
        """The report with its examples as JSON values, as in ``data/cleaning.json`` of a run."""
        return {
            "total": self.total,
            "kept": self.kept,
            "dropped": self.dropped,
            "examples": {name: pairs for name, pairs in self.examples.items() if pairs},
        }


def report_table(config: CleaningConfig, report: Mapping[str, Any]) -> str:
    """The counts of a report in JSON: a title, and one line per active filter, in order."""
    total, dropped = report["total"], report["dropped"]
    rows = [(f.name, dropped[f.name], f.describe(config)) for f in active_filters(config)]
    rows.append(("kept", report["kept"], f"of {total:,} pairs"))
    lines = (
        f"{name:<19} {count:>11,} {count / max(total, 1):>7.2%} {description}".rstrip()
        for name, count, description in rows
    )
    return "\n".join(["cleaning: pairs that each filter dropped", *lines])


def _excerpt(text: str) -> str:
    """The beginning of a text, with unprintable characters escaped."""
    start = text[:_EXAMPLE_CHARACTERS]
    return printable(start) + ("" if len(start) == len(text) else "…")
