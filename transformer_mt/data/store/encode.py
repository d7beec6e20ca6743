"""Cleaning and encoding of the training text chunk by chunk; duplicates over all chunks.

An encoded chunk is one file, written atomically by a worker process, so an interrupted run resumes
from the files it finds. The order of the files is that of the corpus, whoever wrote them.
"""

import io
import json
import logging
import shutil
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from transformer_mt import files
from transformer_mt.config import CleaningConfig, DataConfig
from transformer_mt.data.cleaning.cleaner import Cleaner, CleaningReport, cleaners
from transformer_mt.data.cleaning.filters import DUPLICATE_KEYS, hash_text, overlaps
from transformer_mt.data.store.token_store import Side, TokenStore, token_type
from transformer_mt.data.store.workers import map_ordered, num_workers
from transformer_mt.data.subwords.tokenizer import EOS, Tokenizer
from transformer_mt.data.text.sources import Pair, read_pairs
from transformer_mt.data.text.tags import add_tag, split_tag
from transformer_mt.errors import InputError
from transformer_mt.progress_reporter import ProgressReporter

log = logging.getLogger(__name__)

Mask = npt.NDArray[np.bool_]

CHUNK_PAIRS = 10_000
CHUNK_CHARACTERS = 4_000_000
"""A chunk ends with the pair that reaches either limit, which bounds the memory of a worker."""

_HASHES_PER_PASS = 2**24
"""Approximate number of hashes sorted at a time, whatever the size of the corpus."""


class Chunk(NamedTuple):
    """Consecutive pairs of one data source."""

    source: int
    """Index of the data source in ``data.train``."""
    first_row: int
    """Number of the first pair in its data source, from 1."""
    pairs: list[Pair]


def read_chunks(data: DataConfig) -> Iterator[Chunk]:
    """Streams the training text; the chunk boundaries depend only on the text."""
    for source, config in enumerate(data.train):
        first_row, characters, pairs = 1, 0, list[Pair]()
        for pair in read_pairs([config], src_lang=data.src_lang, tgt_lang=data.tgt_lang):
            pairs.append(pair)
            characters += len(pair.src) + len(pair.tgt)
            if len(pairs) >= CHUNK_PAIRS or characters >= CHUNK_CHARACTERS:
                yield Chunk(source, first_row, pairs)
                first_row, characters, pairs = first_row + len(pairs), 0, []
        if pairs:
            yield Chunk(source, first_row, pairs)


class EncodedChunk(NamedTuple):
    """A chunk whose tokens are in a file."""

    source: int
    path: Path
    kept: int
    """Number of pairs in the file."""

    def hashes(self, name: str) -> npt.NDArray[Any]:
        """[kept] uint64 hashes for a filter of ``DUPLICATE_KEYS``."""
        with np.load(self.path) as arrays:
            return np.asarray(arrays[name])

    def read(self, mask: Mask) -> tuple[int, TokenStore]:
        """The data source, and the pairs for which a [kept] mask is True."""
        with np.load(self.path) as arrays:
            src, tgt = (
                Side.from_lengths(arrays[f"{name}_tokens"], arrays[f"{name}_lengths"])
                for name in ("src", "tgt")
            )
        return self.source, TokenStore(src, tgt).select(np.flatnonzero(mask))


class KeptPair(NamedTuple):
    """A training pair that no filter dropped."""

    line: Pair
    """The lines as they were read."""
    text: Pair
    """The normalised text, with its tag."""
    src: list[int]
    """Token ids of the source side, with its tag and the end symbol."""
    tgt: list[int]
    """Token ids of the target side, with the end symbol."""


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
        source, first_row, pairs = chunk
        path = self.folder / f"{source:04}-{first_row:010}-{len(pairs)}.npz"
        report = _read_report(path, self.data.cleaning)
        if report is None:
            report = CleaningReport(self.data.cleaning)
            arrays = self._encode(chunk, report)
            arrays["report"] = np.frombuffer(json.dumps(report.to_json()).encode(), np.uint8)
            content = io.BytesIO()  # one write, so that a full disk is one error
            np.savez(content, **arrays)
            with files.atomic(path) as temporary:
                temporary.write_bytes(content.getbuffer())
        return EncodedChunk(source, path, report.kept), report

    def _encode(self, chunk: Chunk, report: CleaningReport) -> dict[str, Any]:
        """The arrays of the file; adds the dropped pairs to the report."""
        report.total += len(chunk.pairs)
        kept = self.kept_pairs(chunk, report)
        return _duplicate_hashes([pair.text for pair in kept], report) | self.content(kept)

    def kept_pairs(self, chunk: Chunk, report: CleaningReport) -> list[KeptPair]:
        """The pairs that pass the filters; adds the others to the report."""
        name, kept = self.data.train[chunk.source].name, list[KeptPair]()
        cleaner, max_tokens = self._cleaners[chunk.source], self.data.cleaning.max_tokens
        for row, line in enumerate(chunk.pairs, chunk.first_row):
            tag, text = split_tag(line.src, self.tokenizer.tags)
            pair = cleaner.normalize(Pair(text, line.tgt))
            reason = cleaner.check_text(*pair)
            if reason is None:
                (src,), (tgt,) = (
                    self.tokenizer.encode([pair.src]),
                    self.tokenizer.tgt.encode([pair.tgt]),
                )
                src, tgt = [*src, EOS], [*tgt, EOS]
                reason = cleaner.check_lengths(len(src), len(tgt)) or self.check_held_out(pair)
                src = [self.tokenizer.tags[tag], *src] if tag else src
                if len(src) > max_tokens:  # with its tag
                    reason = reason or "length"
            if reason is None:
                kept.append(KeptPair(line, Pair(add_tag(tag, pair.src), pair.tgt), src, tgt))
            else:
                report.add(reason, f"{name}:{row}", *pair)
        return kept

    def content(self, kept: list[KeptPair]) -> dict[str, npt.NDArray[Any]]:
        """The arrays of the file, by name: tokens and lengths of the kept pairs, on each side."""
        arrays, dtype = {}, token_type(self.tokenizer.num_ids)
        for name in ("src", "tgt"):
            side = Side.from_lists([getattr(pair, name) for pair in kept])
            arrays[f"{name}_tokens"] = side.tokens.astype(dtype)
            arrays[f"{name}_lengths"] = side.lengths
        return arrays

    def check_held_out(self, pair: Pair) -> str | None:
        """``set_aside`` if the validation or test set has one of the sides, else None."""
        return "set_aside" if self.held_out and overlaps(pair, self.held_out) else None

    @cached_property
    def _cleaners(self) -> list[Cleaner]:
        return cleaners(self.data)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The vocabulary, loaded in each worker."""
        return Tokenizer.load(self.vocabulary)


def encode_all(task: EncodeChunk) -> tuple[list[EncodedChunk], list[Mask], CleaningReport]:
    """Performs a task on all of the training text in worker processes, and finds its duplicates.

    Returns:
        The chunks; for each, a [kept] mask, False for duplicates; and the report.

    Raises:
        InputError: A source cannot be read, or nothing is left.
    """
    data, chunks, report = task.data, list[EncodedChunk](), CleaningReport(task.data.cleaning)
    task.folder.mkdir(exist_ok=True)
    if finished := len(list(task.folder.glob("*.npz"))):
        log.info("resuming: %d chunks are encoded already", finished)
    with (
        closing(map_ordered(task, read_chunks(data), num_workers(data.workers))) as encoded,
        ProgressReporter("pairs", "encoded") as progress,
    ):
        for chunk, part in encoded:
            chunks.append(chunk)
            report.merge(part)
            progress.update(report.total)
    if not report.kept:
        shutil.rmtree(task.folder)
        dropped = ", ".join(f"{count:,} {name}" for name, count in report.dropped.items() if count)
        raise InputError(
            f"nothing is left after cleaning: {report.total:,} pairs read; dropped: "
            f"{dropped or 'none'}; check src and tgt, or relax data.cleaning"
        )
    return chunks, _find_duplicates(chunks, report), report


def _duplicate_hashes(pairs: list[Pair], report: CleaningReport) -> dict[str, npt.NDArray[Any]]:
    """[pairs] uint64 hashes for each filter of ``DUPLICATE_KEYS`` that is active in a report."""
    return {
        name: np.fromiter((hash_text(unique_text(pair)) for pair in pairs), np.uint64, len(pairs))
        for name, unique_text in DUPLICATE_KEYS.items()
        if name in report.dropped
    }


def _read_report(path: Path, config: CleaningConfig) -> CleaningReport | None:
    """The report in the file of a chunk, if the file exists and is intact."""
    try:
        with np.load(path) as file:
            arrays = dict(file)  # reading checks the checksum of each
        return CleaningReport(config, json.loads(arrays["report"].tobytes()))
    except (OSError, EOFError, ValueError, KeyError, RuntimeError, zipfile.BadZipFile, zlib.error):
        return None


def _find_duplicates(chunks: list[EncodedChunk], report: CleaningReport) -> list[Mask]:
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
    passes = 1 + int(boundaries[-1]) // _HASHES_PER_PASS
    active = [name for name in DUPLICATE_KEYS if name in report.dropped]
    for name, remainder in product(active, range(passes)):  # equal hashes meet in the same pass
        indices, hashes = [], []
        for chunk, mask, start in zip(chunks, masks, boundaries, strict=False):
            column = chunk.hashes(name)
            selected = np.flatnonzero(mask & (column % np.uint64(passes) == remainder))
            indices.append(start + selected)
            hashes.append(column[selected])
        _, first = np.unique(np.concatenate(hashes), return_index=True)
        duplicates = np.delete(np.concatenate(indices), first)
        kept[duplicates] = False
        report.dropped[name] += len(duplicates)
    return masks
