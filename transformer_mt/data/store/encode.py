"""Cleaning and encoding of the training text chunk by chunk; duplicates over all chunks.

An encoded chunk is one file, written atomically by a worker process, so an interrupted run resumes
from the files it finds. The order of the files is that of the corpus, whoever wrote them.
"""

import io
import json
import logging
import sys
import time
import zipfile
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
from tqdm import tqdm

from transformer_mt import files
from transformer_mt.config import CleaningConfig, DataConfig
from transformer_mt.data.cleaning.cleaner import Cleaner, CleaningReport
from transformer_mt.data.cleaning.filters import DUPLICATE_KEYS, fold, hash_text
from transformer_mt.data.store.corpus import EncodedPairs
from transformer_mt.data.store.token_store import Side, token_type
from transformer_mt.data.subwords.tokenizer import EOS, Tokenizer
from transformer_mt.data.text.normalization import Normalizer
from transformer_mt.data.text.sources import Pair, read_pairs

T = TypeVar("T")

log = logging.getLogger(__name__)

Mask = npt.NDArray[np.bool_]

CHUNK_PAIRS = 10_000
CHUNK_CHARACTERS = 4_000_000
"""A chunk ends with the pair that reaches either limit, which bounds the memory of a worker."""

_HASHES_PER_PASS = 2**24
"""Approximate number of hashes sorted at a time, whatever the size of the corpus."""

_LOG_INTERVAL = 30.0
"""Seconds between two log lines."""


class Chunk(NamedTuple):
    """Consecutive pairs of one data source."""

    source: int
    """Index of the data source in ``data.train``."""
    number: int
    """Index of the chunk in its data source."""
    first_row: int
    """Number of the first pair in its data source, from 1."""
    pairs: list[Pair]


def read_chunks(data: DataConfig) -> Iterator[Chunk]:
    """Streams the training text; the chunk boundaries depend only on the text."""
    for source, config in enumerate(data.train):
        number, first_row, characters, pairs = 0, 1, 0, list[Pair]()
        for pair in read_pairs([config], src_lang=data.src_lang, tgt_lang=data.tgt_lang):
            pairs.append(pair)
            characters += len(pair.src) + len(pair.tgt)
            if len(pairs) >= CHUNK_PAIRS or characters >= CHUNK_CHARACTERS:
                yield Chunk(source, number, first_row, pairs)
                number, first_row = number + 1, first_row + len(pairs)
                characters, pairs = 0, []
        if pairs:
            yield Chunk(source, number, first_row, pairs)


@dataclass(frozen=True)
class CleanText:
    """Worker task: normalises pairs and removes those that a text filter drops."""

    data: DataConfig

    def __call__(self, pairs: list[Pair]) -> list[Pair]:
        """The remaining pairs, normalised."""
        normalized = map(self.normalize, pairs)
        return [pair for pair in normalized if self.cleaner.check_text(*pair) is None]

    def normalize(self, pair: Pair) -> Pair:
        """Normalises both sides."""
        normalizer = Normalizer.of(self.data)
        return Pair(normalizer.src(pair.src), normalizer.tgt(pair.tgt))

    @cached_property
    def cleaner(self) -> Cleaner:
        """The filters, constructed in each process."""
        return Cleaner(self.data.cleaning, self.data.src_lang, self.data.tgt_lang)


class EncodedChunk(NamedTuple):
    """A chunk whose tokens are in a file."""

    path: Path
    chunk: Chunk
    """The chunk, without its pairs."""
    kept: int
    """Number of pairs in the file."""

    def hashes(self, name: str) -> npt.NDArray[Any]:
        """[kept] uint64 hashes for a filter of ``DUPLICATE_KEYS``."""
        with np.load(self.path, allow_pickle=False) as arrays:
            return np.asarray(arrays[name])

    def read(self) -> EncodedPairs:
        """Reads the encoded pairs."""
        with np.load(self.path, allow_pickle=False) as arrays:
            src, tgt = (
                Side.from_lengths(arrays[f"{name}_tokens"], arrays[f"{name}_lengths"])
                for name in ("src", "tgt")
            )
            line_numbers = (self.chunk.first_row + arrays["rows"]).astype(np.uint32)
            return EncodedPairs(self.chunk.source, src, tgt, line_numbers)


@dataclass(frozen=True)
class EncodeChunk:
    """Worker task: cleans and encodes a chunk into a file, unless the file exists.

    Args:
        data: The configuration.
        vocabulary: A SentencePiece model, or a folder with those of both languages.
        folder: Folder of the files.
        held_out: Hashes of sentences that no training pair may contain.
    """

    data: DataConfig
    vocabulary: Path
    folder: Path
    held_out: frozenset[int] = frozenset()

    def __call__(self, chunk: Chunk) -> tuple[EncodedChunk, CleaningReport]:
        """The encoded chunk, and the report of the pairs that the filters dropped."""
        path = self.folder / f"{chunk.source:04}-{chunk.number:08}.npz"
        identity = [chunk.source, chunk.first_row, len(chunk.pairs)]
        report = _read_report(path, identity, self.data.cleaning)
        if report is None:
            report = CleaningReport(self.data.cleaning)
            arrays = self._encode(chunk, report)
            header = json.dumps([identity, report.to_json()]).encode()
            _write_chunk(path, arrays | {"header": np.frombuffer(header, np.uint8)})
        return EncodedChunk(path, chunk._replace(pairs=[]), report.kept), report

    def _encode(self, chunk: Chunk, report: CleaningReport) -> dict[str, Any]:
        """The arrays of the file; adds the dropped pairs to the report."""
        text, cleaner = self._text, self._text.cleaner
        report.total += len(chunk.pairs)
        source = self.data.train[chunk.source].name

        def dropped(reason: str | None, row: int, pair: Pair) -> bool:
            if reason is not None:
                report.add(reason, f"{source}:{chunk.first_row + row}", *pair)
            return reason is not None

        normalized = enumerate(map(text.normalize, chunk.pairs))
        rows = [
            (i, pair) for i, pair in normalized if not dropped(cleaner.check_text(*pair), i, pair)
        ]
        src = [[*ids, EOS] for ids in self._tokenizer.encode([pair.src for _, pair in rows])]
        tgt = [[*ids, EOS] for ids in self._tokenizer.tgt.encode([pair.tgt for _, pair in rows])]
        kept = [
            i
            for i, (row, pair) in enumerate(rows)
            if not dropped(
                cleaner.check_lengths(len(src[i]), len(tgt[i])) or self._held_out(pair), row, pair
            )
        ]
        dtype = token_type(self._tokenizer.num_ids)
        arrays: dict[str, Any] = {"rows": np.array([rows[i][0] for i in kept], np.int32)}
        for side, ids in (("src", src), ("tgt", tgt)):
            sequences = [ids[i] for i in kept]
            arrays[f"{side}_tokens"] = np.fromiter(chain.from_iterable(sequences), dtype)
            arrays[f"{side}_lengths"] = np.array([len(s) for s in sequences], np.int32)
        for name, unique_text in DUPLICATE_KEYS.items():
            if name in report.dropped:  # the filter is active
                hashes = (hash_text(unique_text(rows[i][1])) for i in kept)
                arrays[name] = np.fromiter(hashes, np.uint64, len(kept))
        return arrays

    def _held_out(self, pair: Pair) -> str | None:
        overlaps = self.held_out and any(hash_text(fold(side)) in self.held_out for side in pair)
        return "held_out" if overlaps else None

    @cached_property
    def _text(self) -> CleanText:
        return CleanText(self.data)

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        return Tokenizer.load(self.vocabulary)


def held_out_hashes(pairs: Iterable[Pair]) -> frozenset[int]:
    """Hashes of both sides for ``EncodeChunk``, except of text without letters or digits."""
    folded = (fold(side) for pair in pairs for side in pair)
    return frozenset(hash_text(text) for text in folded if text)


def _read_report(path: Path, identity: list[int], config: CleaningConfig) -> CleaningReport | None:
    """The report of an intact file of that chunk, if there is one."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            recorded, report = json.loads(arrays["header"].tobytes())
            for name in arrays:  # reading checks the checksum of each
                arrays[name]
        return CleaningReport.from_json(config, report) if recorded == identity else None
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile):
        return None


def _write_chunk(path: Path, arrays: dict[str, Any]) -> None:
    content = io.BytesIO()  # one write, so that a full disk is one error
    np.savez(content, **arrays)
    with files.atomic(path) as temporary:
        temporary.write_bytes(content.getbuffer())


def deduplicate(chunks: list[EncodedChunk], report: CleaningReport) -> list[Mask]:
    """Finds the pairs to keep: the first of each set of duplicates, in corpus order.

    Args:
        chunks: All encoded chunks, in order.
        report: Names the active filters; receives the numbers of dropped pairs, without examples.

    Returns:
        For each chunk, a [pairs] bool mask, True for pairs to keep.
    """
    boundaries = np.cumsum([0, *(chunk.kept for chunk in chunks)])
    kept = np.ones(boundaries[-1], np.bool_)
    masks = [kept[start:end] for start, end in pairwise(boundaries)]  # views
    for name in (name for name in DUPLICATE_KEYS if name in report.dropped):  # active filters
        for duplicates in _find_duplicates(chunks, masks, boundaries, name):
            kept[duplicates] = False
            report.dropped[name] += len(duplicates)
    return masks


def _find_duplicates(
    chunks: list[EncodedChunk], masks: list[Mask], boundaries: npt.NDArray[np.int64], name: str
) -> Iterator[npt.NDArray[np.int64]]:
    """Corpus indices of the kept pairs whose hash occurred before, in parts, each in order."""
    passes = 1 + int(boundaries[-1]) // _HASHES_PER_PASS
    for remainder in range(passes):  # equal hashes meet in the same pass
        indices, hashes = [], []
        for chunk, mask, start in zip(chunks, masks, boundaries, strict=False):
            column = chunk.hashes(name)
            selected = np.flatnonzero(mask & (column % np.uint64(passes) == remainder))
            indices.append(start + selected)
            hashes.append(column[selected])
        _, first = np.unique(np.concatenate(hashes), return_index=True)
        yield np.delete(np.concatenate(indices), first)


def track_progress(
    items: Iterable[T], action: str, count: Callable[[T], int]
) -> Generator[T, None, None]:
    """Yields the items and reports how many pairs they hold.

    The log lines are not tqdm's, which would write bars to log files.

    Args:
        items: Parts of the corpus.
        action: Past participle of what is done with the pairs, for the messages.
        count: Returns the number of pairs of an item.
    """
    started = reported = time.perf_counter()
    pairs = 0
    no_bar = not sys.stderr.isatty()
    with tqdm(
        desc=action, unit=" pairs", unit_scale=True, dynamic_ncols=True, disable=no_bar
    ) as bar:
        for item in items:
            yield item
            pairs += count(item)
            bar.update(count(item))
            now = time.perf_counter()
            if no_bar and now - reported >= _LOG_INTERVAL:
                reported, rate = now, pairs / (now - started)
                log.info("  %s: %s pairs, %s pairs/s", action, f"{pairs:,}", f"{rate:,.0f}")
