"""Cleaning of the training data: the filters a pair meets, and a report of what each dropped.

Only training data passes here: validation and test sets stay as they are.
A pair meets the filters of ``Cleaner.text`` first, those of ``Cleaner.tokens`` once it is encoded,
and then those that compare it with other pairs by their hashes, which see only what is left.
"""

import hashlib
import json
from collections.abc import Callable
from functools import partial
from typing import Self

import numpy as np
import numpy.typing as npt

from transformer_mt.config import CleaningConfig
from transformer_mt.data.cleaning import filters

EXAMPLES = 5
"""Dropped pairs that a report shows for each filter: the first ones."""

_EXAMPLE_CHARACTERS = 200


def active_filters(config: CleaningConfig) -> dict[str, str]:
    """Name of every filter that is on, in the order in which pairs meet them → what it drops."""
    c = config
    words = f"mean word under {c.min_word_length or 0:g} or over {c.max_word_length or np.inf:g}"
    slack = f" + {c.ratio_slack}" if c.ratio_slack else ""
    rows: list[tuple[str, object, str]] = [
        ("empty", True, "a side has no text"),
        ("garbled", c.drop_garbled, "control characters, broken encoding"),
        ("markup", c.drop_markup, "HTML tags or entities"),
        (
            "repeated_characters",
            c.max_character_repeats,
            f"over {c.max_character_repeats} in a row",
        ),
        ("repeated_words", c.max_word_repeats, f"over {c.max_word_repeats} times in a row"),
        ("word_length", c.min_word_length or c.max_word_length, words),
        ("script", c.min_script_share, f"under {c.min_script_share or 0:.0%} of its letters"),
        ("identical", c.drop_identical, "both sides are the same"),
        ("language", c.min_language_probability, "a side in another language"),
        ("length", True, f"a side over {c.max_tokens} subwords"),
        ("length_ratio", c.max_ratio, f"a side over {c.max_ratio or 0:g} × the other{slack}"),
        ("held_out", c.drop_held_out, "in the validation or test set"),
        ("duplicate_pair", c.deduplicate, "repeats an earlier pair"),
        ("duplicate_source", c.deduplicate_sources, "repeats an earlier source"),
        ("duplicate_target", c.deduplicate_targets, "repeats an earlier target"),
    ]
    return {name: drops for name, on, drops in rows if on}


class Cleaner:
    """The filters that need nothing but the pair: on its normalised text, and on its tokens.

    Raises:
        InputError: The language identifier is asked for but missing, or does not know a language.
    """

    def __init__(self, config: CleaningConfig, src_lang: str, tgt_lang: str):
        self._config = config
        on = active_filters(config)
        langs = (src_lang, tgt_lang)
        build: dict[str, Callable[[], filters.TextFilter]] = {
            "empty": lambda: filters.empty,
            "garbled": lambda: filters.garbled,
            "markup": lambda: filters.markup,
            "repeated_characters": partial(
                filters.repeated_characters, config.max_character_repeats or 0
            ),
            "repeated_words": partial(filters.repeated_words, config.max_word_repeats or 0),
            "word_length": partial(
                filters.word_length, config.min_word_length, config.max_word_length, *langs
            ),
            "script": partial(filters.wrong_script, config.min_script_share or 0.0, *langs),
            "identical": lambda: filters.identical,
            "language": partial(
                filters.wrong_language, config.min_language_probability or 0.0, *langs
            ),
        }
        self._filters = [(name, make()) for name, make in build.items() if name in on]

    def text(self, src: str, tgt: str) -> str | None:
        """The first filter that drops this pair, or None."""
        for name, drops in self._filters:
            if drops(src, tgt):
                return name
        return None

    def tokens(self, num_src: int, num_tgt: int) -> str | None:
        """The first filter that drops a pair of so many subwords, end symbols included, or None."""
        shorter, longer = sorted((num_src, num_tgt))
        config = self._config
        if longer > config.max_tokens:
            return "length"
        ratio = config.max_ratio
        if ratio is not None and longer > ratio * shorter + config.ratio_slack:
            return "length_ratio"
        return None


class Report:
    """How many pairs were read, and how many each filter dropped, with the first few of them.

    Attributes:
        total: Pairs read; the reader adds to it.
        dropped: Pairs that each filter dropped; a pair counts for the first filter that did.
    """

    def __init__(self, config: CleaningConfig):
        self._drops = active_filters(config)
        self.total = 0
        self.dropped = dict.fromkeys(self._drops, 0)
        self.examples: dict[str, list[dict[str, str]]] = {name: [] for name in self._drops}

    @classmethod
    def from_json(cls, config: CleaningConfig, text: str) -> Self:
        """The report that ``to_json`` wrote."""
        report, content = cls(config), json.loads(text)
        report.total = content["total"]
        report.dropped.update(content["dropped"])
        report.examples.update(content["examples"])
        return report

    @property
    def kept(self) -> int:
        """Pairs that passed every filter."""
        return self.total - sum(self.dropped.values())

    def add(self, name: str, where: str, src: str, tgt: str) -> None:
        """Counts a pair that a filter dropped.

        Args:
            name: The filter.
            where: File and line of the pair.
            src: Its source.
            tgt: Its target.
        """
        self.dropped[name] += 1
        if len(self.examples[name]) < EXAMPLES:
            pair = {"src": _excerpt(src), "tgt": _excerpt(tgt)}
            self.examples[name].append({"where": where, **pair})

    def merge(self, other: "Report") -> None:
        """Adds the report of a later part of the corpus."""
        self.total += other.total
        for name, count in other.dropped.items():
            self.dropped[name] += count
            self.examples[name] = (self.examples[name] + other.examples[name])[:EXAMPLES]

    def to_json(self) -> str:
        """The report with its examples, for ``data/cleaning.json`` of the run."""
        content = {
            "total": self.total,
            "kept": self.kept,
            "dropped": self.dropped,
            "examples": {name: pairs for name, pairs in self.examples.items() if pairs},
        }
        return json.dumps(content, indent=2, ensure_ascii=False)

    def to_table(self) -> str:
        """The counts, for a terminal: a line for each filter that is on, in their order."""
        rows = [(name, self.dropped[name], drops) for name, drops in self._drops.items()]
        rows.append(("kept", self.kept, f"of {self.total:,} pairs"))
        return "\n".join(
            f"{name:<19} {count:>13,} {count / max(self.total, 1):>8.3%}  {what}"
            for name, count, what in rows
        )


def _excerpt(text: str) -> str:
    """The beginning of a text, what a terminal would not show written as its code."""
    start = text[:_EXAMPLE_CHARACTERS]
    shown = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in start)
    return shown if len(start) == len(text) else shown + "…"


def hash_text(text: str) -> int:
    r"""64 bits of a text, the same in every process and on every machine.

    To find duplicates, hash the text as it is, ``src + "\n" + tgt`` for a pair: "Come!" and
    "Come?" are two things to learn. To find leaks, hash ``filters.fold`` of it: a test sentence
    is known to the model also with another comma.
    """
    # 100 million texts meet a false duplicate with probability 0.03%.
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def first_occurrences(hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
    """For each hash, whether it is the first of its value; takes 2.5 times the array on the way."""
    order = np.argsort(hashes, kind="stable")
    ordered = hashes[order]
    new = np.ones(len(hashes), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=new[1:])
    first = np.empty_like(new)
    first[order] = new
    return first
