"""Cleaning and encoding of the training text in one pass; duplicates are found at its end.

Worker processes clean and encode chunks of the text. This process appends what they return to flat
files, in the order of the corpus, and then finds the pairs to keep by sorting their hashes.
"""

import logging
import shutil
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from operator import add
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from transformer_mt.config import CleaningConfig, DataConfig, SourceConfig
from transformer_mt.console import progress_bar
from transformer_mt.data.cleaning.cleaner import (
    CleanedPair,
    Cleaner,
    CleaningReport,
    check_lengths,
    cleaners,
)
from transformer_mt.data.cleaning.filters import DUPLICATE, hash_text
from transformer_mt.data.store.token_store import Side, TokenStore, token_type, write_corpus
from transformer_mt.data.store.workers import map_ordered
from transformer_mt.data.subwords.tokenizer import EOS, Tokenizer
from transformer_mt.data.text.sources import read_pairs
from transformer_mt.data.text.tags import add_tag
from transformer_mt.errors import InputError
from transformer_mt.files import write_json
from transformer_mt.protocols import Pair

log = logging.getLogger(__name__)

Mask = npt.NDArray[np.bool_]
Arrays = dict[str, npt.NDArray[Any]]
"""Arrays by the names of the files that they are appended to."""

CHUNK_PAIRS = 10_000
CHUNK_CHARACTERS = 4_000_000
"""A chunk ends with the pair that reaches either limit, which bounds the memory of a worker."""

REPORT = "cleaning.json"
"""Name of the cleaning report in the folder of the corpus."""

HASHES = "hashes"
"""Name of the array of hashes by which duplicates are found."""

LOOK_UP = 100_000
"""Hashes that are looked up at a time."""


class Chunk(NamedTuple):
    """Consecutive pairs of one data source."""

    source: int
    """Index of the data source: those of ``data.train``, then the added ones."""
    first_row: int
    """Number of the first pair in its data source, from 1."""
    pairs: list[Pair]


def read_chunks(
    data: DataConfig, action: str, added: Sequence[SourceConfig] = ()
) -> Generator[Chunk, None, None]:
    """Streams the training text, and then that of ``added`` sources.

    The chunk boundaries depend only on the text. The progress bar says that it is ``action``, such
    as ``encoded``.
    """
    with progress_bar("pairs", action) as progress:
        for source, config in enumerate([*data.train, *added]):
            first_row, characters, pairs = 1, 0, list[Pair]()
            for pair in read_pairs([config], *data.languages()):
                pairs.append(pair)
                characters += len(pair.src) + len(pair.tgt)
                if len(pairs) >= CHUNK_PAIRS or characters >= CHUNK_CHARACTERS:
                    yield Chunk(source, first_row, pairs)
                    progress.update(len(pairs))
                    first_row, characters, pairs = first_row + len(pairs), 0, []
            if pairs:
                yield Chunk(source, first_row, pairs)
                progress.update(len(pairs))


class KeptPair(NamedTuple):
    """A training pair that the filters of single pairs kept."""

    row: int
    """Number of the pair in its data source, from 1."""
    cleaned: CleanedPair
    src: list[int]
    """Token ids of the source side, with its tag and the end symbol."""
    tgt: list[int]
    """Token ids of the target side, with the end symbol."""


class EncodedChunk(NamedTuple):
    """The kept pairs of a chunk."""

    source: int
    """Index of the data source."""
    arrays: Arrays
    """The pairs, and the hashes by which duplicates are found."""
    report: CleaningReport
    """Counts of the kept and the dropped pairs."""


@dataclass(frozen=True)
class EncodeChunk:
    """Worker task: cleans and encodes a chunk. Noise (``data.augment``) follows the cleaning.

    Args:
        data: The configuration.
        vocabulary: A SentencePiece model, or a folder with those of both languages.
        held_out: Hashes of sentences that no training pair may contain.
        seed: Seed of the noise.
        phrases: Sources of pairs of phrases. Of the filters of text, they meet only the one that
            drops held-out sentences.
    """

    data: DataConfig
    vocabulary: Path
    held_out: frozenset[int] = frozenset()
    seed: int = 1
    phrases: Sequence[SourceConfig] = ()

    def __call__(self, chunk: Chunk) -> EncodedChunk:
        """The pairs that the filters of single pairs keep."""
        report = CleaningReport(self.data.cleaning)
        report.total += len(chunk.pairs)
        kept = self.kept_pairs(chunk, report)
        arrays = self.content(chunk.source, kept)
        if by := self.data.cleaning.deduplicate:
            sources = (add_tag(pair.cleaned.tag, pair.cleaned.text.src) for pair in kept)
            targets = (f"\n{pair.cleaned.text.tgt}" if by == "pairs" else "" for pair in kept)
            arrays[HASHES] = np.fromiter(map(hash_text, map(add, sources, targets)), np.uint64)
        return EncodedChunk(chunk.source, arrays, report)

    def kept_pairs(self, chunk: Chunk, report: CleaningReport) -> list[KeptPair]:
        """The pairs that pass the filters; adds the others to the report."""
        name = [*self.data.train, *self.phrases][chunk.source].name
        kept = list[KeptPair]()
        cleaner = self._cleaners[chunk.source]
        for row, line in enumerate(chunk.pairs, chunk.first_row):
            pair, src, tgt = cleaner.clean(line), list[int](), list[int]()
            if (reason := pair.dropped_by) is None:
                src, tgt = self._encode(pair.tag, pair.text)
                reason = check_lengths(self.data.cleaning, len(src), len(tgt), bool(pair.tag))
            if reason is None:
                kept.append(KeptPair(row, pair, src, tgt))
            else:
                report.add(reason, f"{name}:{row}", *pair.text)
        return kept

    def content(self, source: int, kept: list[KeptPair]) -> Arrays:
        """Tokens and lengths of the kept pairs, some of which have noise."""
        pairs = [self._with_noise(source, pair) for pair in kept]
        arrays, dtype = Arrays(), token_type(self.tokenizer.num_ids)
        for number, name in enumerate(("src", "tgt")):
            side = Side.from_lists([pair[number] for pair in pairs])
            arrays[f"{name}.tokens"] = side.tokens.astype(dtype)
            arrays[f"{name}.lengths"] = side.lengths
        return arrays

    def _encode(self, tag: str, text: Pair) -> tuple[list[int], list[int]]:
        """Ids of both sides, with end symbols and the tag."""
        source = self.tokenizer.without_unknown_marks(text.src)  # as when it is translated
        src, tgt = self.tokenizer.encode(source), self.tokenizer.tgt.encode(text.tgt)
        return [*([self.tokenizer.tags[tag]] if tag else []), *src, EOS], [*tgt, EOS]

    def _with_noise(self, source: int, pair: KeptPair) -> tuple[list[int], list[int]]:
        """Ids of a pair with noise, or of the clean pair if noise makes a side too long."""
        noisy = self._cleaners[source].add_noise(pair.cleaned, [self.seed, source, pair.row])
        if noisy is None:
            return pair.src, pair.tgt
        src, tgt = self._encode(pair.cleaned.tag, noisy)
        fits = max(len(src), len(tgt)) <= self.data.cleaning.max_tokens
        return (src, tgt) if fits else (pair.src, pair.tgt)

    @cached_property
    def _cleaners(self) -> list[Cleaner]:
        train = list(self.phrases)
        phrases = replace(self.data, train=train, weights=[], cleaning=CleaningConfig())
        return [
            cleaner
            for data in (self.data, phrases)
            for cleaner in cleaners(data, self.tokenizer.tags, self.held_out)
        ]

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The vocabulary, loaded in each worker."""
        return Tokenizer(self.vocabulary)


def encode_all(task: EncodeChunk, folder: Path) -> tuple[list[tuple[int, Mask]], CleaningReport]:
    """Performs a task on all of the training text in worker processes, and finds its duplicates.

    Writes a file for each name of ``EncodedChunk.arrays`` into the folder.

    Returns:
        For each chunk, in order, the index of its data source, and [kept pairs of the chunk], False
        for duplicates; the counts of the kept and the dropped pairs, without those of phrases.

    Raises:
        InputError: A source cannot be read, or nothing is left.
    """
    data, report = task.data, CleaningReport(task.data.cleaning)
    sources, sizes = list[int](), list[int]()
    with (
        ExitStack() as stack,
        closing(read_chunks(data, "encoded", task.phrases)) as chunks,
        closing(map_ordered(task, chunks, data.workers)) as encoded,
    ):
        opened = dict[str, Any]()
        for chunk in encoded:
            for name, array in chunk.arrays.items():
                if name not in opened:
                    opened[name] = stack.enter_context((folder / name).open("wb"))
                opened[name].write(array)
            sources.append(chunk.source)
            sizes.append(chunk.report.kept)
            if chunk.source < len(data.train):
                report.merge(chunk.report)
    if not report.kept:
        dropped = ", ".join(f"{count:,} {name}" for name, count in report.dropped.items() if count)
        raise InputError(
            f"nothing is left after cleaning: {report.total:,} pairs read; dropped: "
            f"{dropped or 'none'}; check src and tgt, or relax data.cleaning"
        )
    kept = np.ones(sum(sizes), np.bool_)
    if data.cleaning.deduplicate:
        kept = find_first(folder / HASHES)
        own = kept[: report.kept]  # phrases follow
        report.dropped[DUPLICATE] = int(np.count_nonzero(~own))
    masks = [kept[start:end] for start, end in pairwise(np.cumsum([0, *sizes]))]
    return list(zip(sources, masks, strict=True)), report


def encode_corpus(task: EncodeChunk, folder: Path) -> None:
    """Writes a corpus and its cleaning report into an existing folder.

    Raises:
        InputError: See ``encode_all``.
    """
    data, unsorted = task.data, folder / "unsorted"
    unsorted.mkdir()
    chunks, report = encode_all(task, unsorted)
    used = {source for source, mask in chunks if mask.any()}
    for number, source in enumerate(data.train):
        if number not in used:
            log.warning("warning: cleaning drops all pairs of %s", source)
    vocab_size = task.tokenizer.num_ids  # loaded here only now: tasks are copied to the workers
    write_corpus(
        folder,
        _read_encoded(unsorted, chunks, token_type(vocab_size)),
        num_shards=max(1, report.kept // data.shard_pairs),
        vocab_size=vocab_size,
        num_sources=len(data.train) + len(task.phrases),
    )
    shutil.rmtree(unsorted)
    write_json(folder / REPORT, report.to_json())


def _read_encoded(
    folder: Path, chunks: Sequence[tuple[int, Mask]], dtype: np.dtype[Any]
) -> Iterator[tuple[int, TokenStore]]:
    """The number of the data source, and the encoded pairs, of each chunk."""
    sizes = [len(mask) for _, mask in chunks]
    sources, targets = (_read_sides(folder / name, sizes, dtype) for name in ("src", "tgt"))
    for (source, mask), src, tgt in zip(chunks, sources, targets, strict=True):
        yield source, TokenStore(src, tgt).select(np.flatnonzero(mask))


def _read_sides(path: Path, sizes: Sequence[int], dtype: np.dtype[Any]) -> Iterator[Side]:
    """One side of chunks of these sizes, from the files of its tokens and their lengths."""
    with Path(f"{path}.tokens").open("rb") as tokens, Path(f"{path}.lengths").open("rb") as lengths:
        for size in sizes:
            read = np.fromfile(lengths, np.int32, size)
            yield Side.from_lengths(np.fromfile(tokens, dtype, int(read.sum())), read)


def find_first(path: Path) -> Mask:
    """Whether each of the uint64 hashes in a file is the first of its value.

    Sorting the hashes in memory finds those that occur more than once; a pass over them in the
    order of the corpus finds the first of each. This takes 9 bytes of memory for each hash, and up
    to 16 for each that occurs more than once.
    """
    hashes = np.fromfile(path, np.uint64)
    is_first, repeated = np.ones(len(hashes), np.bool_), _repeated(hashes)
    del hashes
    seen = np.zeros(len(repeated), np.bool_)
    with path.open("rb") as file:
        for start in range(0, len(is_first), LOOK_UP):
            part = np.fromfile(file, np.uint64, LOOK_UP)
            place = np.searchsorted(repeated, part)
            pairs = np.flatnonzero(repeated[place] == part)
            values, first = np.unique(place[pairs], return_index=True)
            is_first[start + np.delete(pairs, first[~seen[values]])] = False
            seen[values] = True
    return is_first


def _repeated(hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The hashes that occur more than once, and the largest, sorted; sorts ``hashes`` in place."""
    hashes.sort()
    found = []
    for start in range(0, len(hashes), LOOK_UP):
        part = hashes[start : start + LOOK_UP + 1]
        found.append(np.unique(part[1:][part[1:] == part[:-1]]))
    return np.concatenate([*found, hashes[-1:]])
