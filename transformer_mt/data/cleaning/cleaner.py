"""Cleaning of the training data: applies the filters, and reports what each dropped.

A pair meets the filters of text first (``Cleaner.check_text``), those of length once it is encoded
(``Cleaner.check_lengths``), and then those that compare it with other pairs by their hashes.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from pkgutil import resolve_name
from typing import Any

import numpy as np

from transformer_mt.config import CleaningConfig, DataConfig
from transformer_mt.data.cleaning.filters import SideFilter, active_filters, overlaps
from transformer_mt.data.text.normalization import Normalizer
from transformer_mt.data.text.sources import Pair
from transformer_mt.data.text.tags import split_tag
from transformer_mt.errors import printable
from transformer_mt.protocols import PairNoise
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


class Cleaner:
    """Noise on training pairs, their normalisation, and the filters that need nothing but the pair.

    Args:
        data: The configuration.
        languages: Source and target language; default: those of the model.
    """

    def __init__(self, data: DataConfig, languages: tuple[str, str] | None = None):
        self._config = config = data.cleaning
        src_lang, tgt_lang = languages or data.languages(None)
        self._normalizer = Normalizer(data.normalization, src_lang, tgt_lang)
        self.noise: PairNoise | None = None
        if data.augment != "none":
            self.noise = resolve_name(PAIR_NOISE)
        self._text: list[tuple[str, Callable[[str, str], bool]]] = []
        for f in active_filters(config):
            if f.side:
                tests = f.side(config, src_lang), f.side(config, tgt_lang)
                self._text.append((f.name, _either_side(*tests)))
            elif f.both:
                self._text.append((f.name, f.both(config, src_lang, tgt_lang)))

    def normalize(self, pair: Pair) -> Pair:
        """Normalises both sides."""
        return Pair(self._normalizer.src(pair.src), self._normalizer.tgt(pair.tgt))

    def add_noise(self, line: Pair, seed: Sequence[int]) -> Pair | None:
        """The normalised text of a pair after noise was added to it; None if none is.

        Args:
            line: The pair before it is normalised, which may undo noise, without its tag.
            seed: Seed of the noise.
        """
        if self.noise is None:
            return None
        noisy = self.noise(line, np.random.default_rng([*seed, _NOISE_SEED]))
        return None if noisy == line else self.normalize(noisy)

    def check_text(self, src: str, tgt: str) -> str | None:
        """Name of the first filter that drops a pair by its normalised text, or None."""
        return next((name for name, drops in self._text if drops(src, tgt)), None)

    def check_lengths(self, num_src: int, num_tgt: int) -> str | None:
        """Name of the first filter that drops a pair by its numbers of subwords, or None.

        Both numbers include the end symbol.
        """
        shorter, longer = sorted((num_src, num_tgt))
        if longer > self._config.max_tokens:
            return "length"
        limit = (self._config.max_ratio or inf) * shorter + _RATIO_SLACK
        return "length_ratio" if longer > limit else None


def _either_side(src_test: SideFilter, tgt_test: SideFilter) -> Callable[[str, str], bool]:
    return lambda src, tgt: src_test(src) or tgt_test(tgt)


def cleaners(data: DataConfig) -> list[Cleaner]:
    """The cleaner of each training source."""
    languages = [data.languages(source) for source in data.train]
    made = {pair: Cleaner(data, pair) for pair in set(languages)}
    return [made[pair] for pair in languages]


def clean_text(
    data: DataConfig,
    held_out: frozenset[int],
    seed: int,
    pairs: Iterable[tuple[int, int, Pair]],
) -> list[Pair]:
    """Normalises pairs, removes their tags, and drops those that a filter of text drops.

    Args:
        data: The configuration; with ``data.augment``, some of the returned pairs have noise.
        held_out: Hashes of sentences that no pair may contain.
        seed: Seed of the noise.
        pairs: Each is preceded by the index of its data source, and by its number in it.
    """
    of_source, tags = cleaners(data), data.tags
    kept = []
    for source, row, pair in pairs:
        cleaner = of_source[source]
        line = Pair(split_tag(pair.src, tags)[1], pair.tgt)
        text = cleaner.normalize(line)
        if cleaner.check_text(*text) is None and not (held_out and overlaps(text, held_out)):
            kept.append(cleaner.add_noise(line, [seed, source, row]) or text)
    return kept


class CleaningReport:
    """Number of pairs read, and number that each filter dropped, with the first few of them.

    Args:
        config: Names the active filters.
        content: A report as ``to_json`` returned it; None: an empty one.

    Attributes:
        total: Number of pairs read; the reader adds to it.
        dropped: Number of pairs that each filter dropped; a pair counts for the first that did.
        examples: The first dropped pairs of each filter.
    """

    def __init__(self, config: CleaningConfig, content: Mapping[str, Any] | None = None):
        self._descriptions = {f.name: f.describe(config) for f in active_filters(config)}
        content = content or {"total": 0, "dropped": {}, "examples": {}}
        self.total: int = content["total"]
        self.dropped: dict[str, int] = dict.fromkeys(self._descriptions, 0) | content["dropped"]
        self.examples: dict[str, list[dict[str, str]]] = {name: [] for name in self.dropped}
        self.examples |= content["examples"]

    @property
    def kept(self) -> int:
        """Number of pairs that passed every filter."""
        return self.total - sum(self.dropped.values())

    def add(self, name: str, where: str, src: str, tgt: str) -> None:
        """Adds a pair that the filter ``name`` dropped; ``where`` is its file and line."""
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

    def to_table(self) -> str:
        """The counts for a terminal: a title, and one line per active filter, in order."""
        rows = [(name, self.dropped[name], text) for name, text in self._descriptions.items()]
        rows.append(("kept", self.kept, f"of {self.total:,} pairs"))
        lines = (
            f"{name:<19} {count:>11,} {count / max(self.total, 1):>7.2%} {description}".rstrip()
            for name, count, description in rows
        )
        return "\n".join(["cleaning: pairs that each filter dropped", *lines])


def _excerpt(text: str) -> str:
    """The beginning of a text, with unprintable characters escaped."""
    start = text[:_EXAMPLE_CHARACTERS]
    return printable(start) + ("" if len(start) == len(text) else "…")
