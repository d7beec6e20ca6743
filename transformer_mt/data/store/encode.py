"""Chunks of the training text, each cleaned and encoded into a shard: the work of many processes.

A shard is one file, whole or not there at all, so a run that was interrupted goes on from those
there are. Who wrote them, and when, shows nowhere: their order is the corpus's.
"""

import io
import json
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from transformer_mt import files
from transformer_mt.config import CleaningConfig, DataConfig
from transformer_mt.data.cleaning.cleaner import Cleaner, CleaningReport
from transformer_mt.data.cleaning.filters import fold, hash_text
from transformer_mt.data.cleaning.registry import DUPLICATE_KEYS
from transformer_mt.data.store.token_store import Part, Side, token_type
from transformer_mt.data.subwords.tokenizer import EOS, Tokenizer
from transformer_mt.data.text.normalization import Normalizer
from transformer_mt.data.text.sources import Pair, read_pairs

CHUNK_PAIRS = 10_000
CHUNK_CHARACTERS = 4_000_000
"""A chunk ends with the pair that reaches either: its memory is bounded, whatever the text."""


class Chunk(NamedTuple):
    """Consecutive pairs of one source."""

    number: int
    """Its place in the corpus."""
    source: int
    """Which of ``data.train``."""
    first: int
    """Number of its first pair in that source, from 1."""
    pairs: list[Pair]


def read_chunks(data: DataConfig) -> Iterator[Chunk]:
    """The training text, as a stream; its cut depends on nothing but the text."""
    number = 0
    for source, config in enumerate(data.train):
        first, characters, pairs = 1, 0, list[Pair]()
        for pair in read_pairs([config], src_lang=data.src_lang, tgt_lang=data.tgt_lang):
            pairs.append(pair)
            characters += len(pair.src) + len(pair.tgt)
            if len(pairs) >= CHUNK_PAIRS or characters >= CHUNK_CHARACTERS:
                yield Chunk(number, source, first, pairs)
                number, first = number + 1, first + len(pairs)
                characters, pairs = 0, []
        if pairs:
            yield Chunk(number, source, first, pairs)
            number += 1


@dataclass(frozen=True)
class CleanText:
    """Work: normalises pairs, and leaves out those that a filter of text drops."""

    data: DataConfig

    def __call__(self, pairs: list[Pair]) -> list[Pair]:
        """The pairs that are left."""
        normalized = map(self.normalize, pairs)
        return [pair for pair in normalized if self.cleaner.check_text(*pair) is None]

    def normalize(self, pair: Pair) -> Pair:
        """Both sides normalised."""
        normalizer = Normalizer.of(self.data)
        return Pair(normalizer.src(pair.src), normalizer.tgt(pair.tgt))

    @cached_property
    def cleaner(self) -> Cleaner:
        """The filters; each process makes its own."""
        return Cleaner(self.data.cleaning, self.data.src_lang, self.data.tgt_lang)


class Shard(NamedTuple):
    """What is known of an encoded chunk; the tokens are in its file."""

    path: Path
    chunk: Chunk
    """Without its pairs."""
    kept: int
    """Pairs in the file."""

    def column(self, name: str) -> npt.NDArray[Any]:
        """[kept] The hashes of a filter of ``DUPLICATE_KEYS``."""
        with np.load(self.path, allow_pickle=False) as arrays:
            return np.asarray(arrays[name])

    def part(self) -> Part:
        """The encoded pairs."""
        with np.load(self.path, allow_pickle=False) as arrays:
            src, tgt = (
                Side.from_lengths(arrays[f"{name}_tokens"], arrays[f"{name}_lengths"])
                for name in ("src", "tgt")
            )
            return Part(src, tgt, (self.chunk.first + arrays["rows"]).astype(np.uint32))


@dataclass(frozen=True)
class Encode:
    """Work: writes the shard of a chunk, or finds it.

    Args:
        data: The configuration.
        vocabulary: A SentencePiece model.
        folder: Where shards are.
        held_out: Hashes of sentences that no training pair may have.
    """

    data: DataConfig
    vocabulary: Path
    folder: Path
    held_out: frozenset[int] = frozenset()

    def __call__(self, chunk: Chunk) -> tuple[Shard, CleaningReport]:
        """The shard, and what was dropped on the way."""
        path = self.folder / f"{chunk.number:08}.npz"
        identity = [chunk.source, chunk.first, len(chunk.pairs)]
        report = _find(path, identity, self.data.cleaning)
        if report is None:
            report = CleaningReport(self.data.cleaning)
            arrays = self._encode(chunk, report)
            header = json.dumps([identity, report.to_json()]).encode()
            _write(path, arrays | {"header": np.frombuffer(header, np.uint8)})
        return Shard(path, chunk._replace(pairs=[]), report.kept), report

    def _encode(self, chunk: Chunk, report: CleaningReport) -> dict[str, Any]:
        """Also reports what is dropped on the way."""
        text, cleaner = self._text, self._text.cleaner
        report.total += len(chunk.pairs)

        name = self.data.train[chunk.source].name

        def dropped(reason: str | None, row: int, pair: Pair) -> bool:
            if reason is not None:
                report.add(reason, f"{name}:{chunk.first + row}", *pair)
            return reason is not None

        normalized = enumerate(map(text.normalize, chunk.pairs))
        rows = [
            (i, pair) for i, pair in normalized if not dropped(cleaner.check_text(*pair), i, pair)
        ]
        src, tgt = (
            [[*ids, EOS] for ids in self._tokenizer.encode(lines)]
            for lines in ([pair.src for _, pair in rows], [pair.tgt for _, pair in rows])
        )
        kept = [
            i
            for i, (row, pair) in enumerate(rows)
            if not dropped(
                cleaner.check_lengths(len(src[i]), len(tgt[i])) or self._leak(pair), row, pair
            )
        ]
        dtype = token_type(self._tokenizer.vocab_size)
        arrays: dict[str, Any] = {"rows": np.array([rows[i][0] for i in kept], np.int32)}
        for name, ids in (("src", src), ("tgt", tgt)):
            sequences = [ids[i] for i in kept]
            arrays[f"{name}_tokens"] = np.fromiter(chain.from_iterable(sequences), dtype)
            arrays[f"{name}_lengths"] = np.array([len(s) for s in sequences], np.int32)
        for name, compared in DUPLICATE_KEYS.items():
            if name in report.dropped:  # the filter is on
                hashes = (hash_text(compared(rows[i][1])) for i in kept)
                arrays[name] = np.fromiter(hashes, np.uint64, len(kept))
        return arrays

    def _leak(self, pair: Pair) -> str | None:
        known = self.held_out and any(hash_text(fold(side)) in self.held_out for side in pair)
        return "held_out" if known else None

    @cached_property
    def _text(self) -> CleanText:
        return CleanText(self.data)

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        return Tokenizer(self.vocabulary)


def held_out_hashes(pairs: Iterable[Pair]) -> frozenset[int]:
    """For ``Encode``: the sentences of both sides, but those without letters or digits."""
    folded = (fold(side) for pair in pairs for side in pair)
    return frozenset(hash_text(text) for text in folded if text)


def _find(path: Path, identity: list[int], config: CleaningConfig) -> CleaningReport | None:
    """The report of a whole shard of that chunk, if there is one."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            found, report = json.loads(arrays["header"].tobytes())
            for name in arrays:  # each has a checksum
                arrays[name]
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile):
        return None
    return CleaningReport.from_json(config, report) if found == identity else None


def _write(path: Path, arrays: dict[str, Any]) -> None:
    content = io.BytesIO()  # in one piece, so that a full disk is one error
    np.savez(content, **arrays)
    with files.atomic(path) as temporary:
        temporary.write_bytes(content.getbuffer())
