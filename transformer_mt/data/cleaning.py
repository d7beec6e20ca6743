"""Filters of the training data, and the count of what each removed.

Only training data passes here (DESIGN, invariant 8): validation and test sets stay as they are.
"""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from transformer_mt.config import CleaningConfig
from transformer_mt.data.corpus import Pair


@dataclass
class CleaningReport:
    """How many pairs were read, and how many each filter dropped; a pair is counted once."""

    read: int = 0
    dropped: dict[str, int] = field(default_factory=dict)

    @property
    def kept(self) -> int:
        """Pairs that passed every filter."""
        return self.read - sum(self.dropped.values())

    def drop(self, reason: str) -> None:
        """Counts one dropped pair."""
        self.dropped[reason] = self.dropped.get(reason, 0) + 1

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON."""
        return {"read": self.read, "kept": self.kept, "dropped": self.dropped}

    def summary(self) -> str:
        """One line for the log."""
        dropped = ", ".join(f"{count:,} {reason}" for reason, count in self.dropped.items())
        return f"{self.kept:,} of {self.read:,} pairs kept; dropped: {dropped or 'none'}"


class Cleaner:
    """The filters, in the order in which a pair meets them: on its text, then on its tokens."""

    def __init__(self, config: CleaningConfig):
        self._config = config
        self._seen: set[bytes] = set()
        self.report = CleaningReport()

    def clean_text(self, pairs: Iterable[Pair]) -> Iterator[Pair]:
        """Yields the pairs that have text on both sides and, if asked for, are no repetition."""
        for pair in pairs:
            self.report.read += 1
            if not pair.src.strip() or not pair.tgt.strip():
                self.report.drop("with an empty side")
            elif self._config.deduplicate and self._repeats(pair):
                self.report.drop("repeated")
            else:
                yield pair

    def keep_tokens(self, src_length: int, tgt_length: int) -> bool:
        """Whether a pair of these lengths, in subwords with the end symbol, is short and even."""
        shorter, longer = sorted((src_length, tgt_length))
        if longer > self._config.max_tokens:
            self.report.drop(f"longer than {self._config.max_tokens} tokens")
            return False
        if self._config.max_ratio is not None and longer > self._config.max_ratio * shorter:
            self.report.drop(f"of uneven length (ratio over {self._config.max_ratio:g})")
            return False
        return True

    def _repeats(self, pair: Pair) -> bool:
        # 8-byte digests: 100 million pairs meet a false repetition with probability 0.03%.
        text = f"{pair.src}\n{pair.tgt}".encode()
        digest = hashlib.blake2b(text, digest_size=8).digest()
        if digest in self._seen:
            return True
        self._seen.add(digest)
        return False
