"""Registry of the cleaning filters, in the order in which pairs meet them.

To add a filter: its settings in ``CleaningConfig``, its function in ``filters.py``, and its entry
in ``FILTERS``.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

from transformer_mt.config import CleaningConfig
from transformer_mt.data.cleaning import filters
from transformer_mt.data.cleaning.filters import LengthFilter, SideFilter
from transformer_mt.data.text.lines import is_blank
from transformer_mt.data.text.sources import Pair


@dataclass(frozen=True)
class Filter:
    """Registration of a filter.

    A filter tests one ``side``, the ``text`` of both, or their ``lengths``, or has a
    ``duplicate_key``; ``held_out`` compares hashes with those of the validation and test set.
    """

    name: str
    """Name in reports and in ``cleaning.json``."""
    drops: str | Callable[[CleaningConfig], str]
    """Description of the dropped pairs, for the report."""
    switches: tuple[str, ...] = ()
    """Settings any of which turns the filter on; without any it is always on."""
    parameters: tuple[str, ...] = ()
    """Further settings of ``CleaningConfig`` that it uses."""
    side: Callable[[CleaningConfig, str], SideFilter] | None = None
    """Makes the test of the normalised text of a side, given its language."""
    text: Callable[[str, str], bool] | None = None
    """Test of the normalised text of both sides."""
    lengths: Callable[[CleaningConfig], LengthFilter] | None = None
    """Makes the test of the encoded lengths."""
    duplicate_key: Callable[[Pair], str] | None = None
    """Text by which two pairs are duplicates; the first of them is kept."""

    def is_on(self, config: CleaningConfig) -> bool:
        """Whether a configuration turns the filter on."""
        return not self.switches or any(getattr(config, name) for name in self.switches)

    def describe(self, config: CleaningConfig) -> str:
        """Description of the dropped pairs, with the configuration's thresholds."""
        return self.drops if isinstance(self.drops, str) else self.drops(config)


FILTERS = (
    Filter("empty", "a side has no text", side=lambda *_: is_blank),
    Filter(
        "garbled",
        "control characters, broken encoding",
        ("drop_garbled",),
        side=lambda *_: filters.garbled,
    ),
    Filter("markup", "HTML tags or entities", ("drop_markup",), side=lambda *_: filters.markup),
    Filter(
        "repeated_characters",
        lambda c: f"over {c.max_character_repeats} in a row",
        ("max_character_repeats",),
        side=lambda c, _: filters.repeated_characters(c.max_character_repeats or 0),
    ),
    Filter(
        "repeated_words",
        lambda c: f"over {c.max_word_repeats} times in a row",
        ("max_word_repeats",),
        side=lambda c, _: filters.repeated_words(c.max_word_repeats or 0),
    ),
    Filter(
        "word_length",
        lambda c: (
            f"mean word under {c.min_word_length or 0:g} or over {c.max_word_length or inf:g}"
        ),
        ("min_word_length", "max_word_length"),
        side=lambda c, lang: filters.word_length(c.min_word_length, c.max_word_length, lang),
    ),
    Filter(
        "script",
        lambda c: f"under {c.min_script_share:.0%} of its letters",
        ("min_script_share",),
        side=lambda c, lang: filters.wrong_script(c.min_script_share or 0.0, lang),
    ),
    Filter("identical", "both sides are the same", ("drop_identical",), text=filters.identical),
    Filter(
        "language",
        "a side in another language",
        ("min_language_probability",),
        side=lambda c, lang: filters.wrong_language(c.min_language_probability or 0.0, lang),
    ),
    Filter(
        "length",
        lambda c: f"a side over {c.max_tokens} subwords",
        ("max_tokens",),
        lengths=filters.too_long,
    ),
    Filter(
        "length_ratio",
        lambda c: (
            f"a side over {c.max_ratio:g} × the other"
            + (f" + {c.ratio_slack}" if c.ratio_slack else "")
        ),
        ("max_ratio",),
        ("ratio_slack",),
        lengths=filters.unequal_lengths,
    ),
    Filter("held_out", "in the validation or test set", ("drop_held_out",)),
    Filter("duplicate_pair", "repeats an earlier pair", ("deduplicate",), duplicate_key="\n".join),
    Filter(
        "duplicate_source",
        "repeats an earlier source",
        ("deduplicate_sources",),
        duplicate_key=lambda pair: pair.src,
    ),
    Filter(
        "duplicate_target",
        "repeats an earlier target",
        ("deduplicate_targets",),
        duplicate_key=lambda pair: pair.tgt,
    ),
)
"""All filters, in the order in which pairs meet them. A pair counts for the first that drops it."""

TEXT_SETTINGS = {name for f in FILTERS if f.side or f.text for name in (*f.switches, *f.parameters)}
"""Settings of the filters of text, on which the vocabulary depends."""

DUPLICATE_KEYS = {f.name: f.duplicate_key for f in FILTERS if f.duplicate_key}
"""Filters that compare pairs with each other → the text that they compare, by its hash."""


def active_filters(config: CleaningConfig) -> list[Filter]:
    """The filters that a configuration turns on, in order."""
    return [f for f in FILTERS if f.is_on(config)]
