"""Validation and test pairs taken out of the training sources, ``data.valid_pairs=2000``.

Each set orders all pairs by a hash of its own, so that the choice depends on the text alone, not on
the order of the pairs or the number of workers. One pass over the text finds the first pairs of
each order, the candidates. The vocabulary is learned without them, so they are drawn before it; the
filters of length need it, so the choice among them follows. Those that are chosen are held out: no
training pair has one of their sides (``EncodeChunk``).
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from transformer_mt import files, run_layout
from transformer_mt.config import DataConfig, SourceConfig
from transformer_mt.data.cleaning.cleaner import Cleaner, check_lengths, cleaners
from transformer_mt.data.cleaning.filters import fold, hash_text
from transformer_mt.data.store.encode import read_chunks
from transformer_mt.data.subwords.tokenizer import Tokenizer
from transformer_mt.data.text.normalization import Normalizer
from transformer_mt.data.text.tags import split_tag
from transformer_mt.errors import InputError
from transformer_mt.protocols import Pair

_CANDIDATES_PER_PAIR = 2
"""Candidates for each pair of a set, because some are too long or share a side with another one."""
_LARGEST_SHARE = 0.25
"""Maximum share of the pairs that are held out; the candidates are up to twice as many, and the
vocabulary is learned without them."""

Sets = Mapping[str, list[Pair]]
"""Pairs of the sets to be held out, ``test`` before ``valid``."""


def sizes(data: DataConfig) -> dict[str, int]:
    """Number of pairs of each set that is taken out of the training sources."""
    given = {"test": data.test_pairs, "valid": data.valid_pairs}
    return {part: size for part, size in given.items() if size is not None}


def find_candidates(data: DataConfig) -> Sets:
    """Reads the training sources; returns the candidates of each set.

    Candidates pass the filters of text, have different sides, and letters or digits on both: a side
    without has no hash, by which to find it in the training text.
    """
    of_source, done = cleaners(data, data.tags), 0
    first: dict[str, dict[int, Pair]] = {part: {} for part in sizes(data)}
    ends = dict.fromkeys(first, 2**64)  # the hashes are below this
    for chunk in read_chunks(data, "read"):
        cleaner = of_source[chunk.source]
        for part, size in sizes(data).items():
            pairs, number = first[part], _CANDIDATES_PER_PAIR * size
            places = ((hash_text("\n".join((part, *pair))), pair) for pair in chunk.pairs)
            limit = len(pairs) + number
            for place, pair in sorted(item for item in places if item[0] < ends[part]):
                if len(pairs) < limit and place not in pairs and _is_suitable(pair, cleaner):
                    pairs[place] = pair
            first[part] = dict(sorted(pairs.items())[:number])
            if len(pairs) >= number:
                ends[part] = max(first[part])
        done += len(chunk.pairs)
    if sum(sizes(data).values()) > _LARGEST_SHARE * done:
        given = " and ".join(f"data.{part}_pairs={size}" for part, size in sizes(data).items())
        raise InputError(
            f"{given} would hold out more than {_LARGEST_SHARE:.0%} of the {done:,} pairs of "
            "data.train: set fewer"
        )
    return {part: list(pairs.values()) for part, pairs in first.items()}


def _is_suitable(pair: Pair, cleaner: Cleaner) -> bool:
    cleaned = cleaner.clean(pair)
    src, tgt = map(fold, cleaned.text)
    return src != tgt and "" not in (src, tgt) and cleaned.dropped_by is None


def choose(data: DataConfig, candidates: Sets, tokenizer: Tokenizer) -> Sets:
    """The pairs of each set: the first candidates that pass the filters of length.

    No two of them share a side.
    """
    normalizer, taken = Normalizer(data), set[int]()
    chosen: dict[str, list[Pair]] = {}
    for part, size in sizes(data).items():
        chosen[part] = []
        encoded = tokenizer.encode_pairs(candidates[part], normalizer)
        for pair, (src, tgt) in zip(candidates[part], encoded, strict=True):
            hashes = side_hashes([pair], data, tokenizer.tags)
            lengths = len(src) + 1, len(tgt) + 1  # with end symbols
            too_long = check_lengths(data.cleaning, *lengths, tokenizer.num_tags(src))
            if hashes.isdisjoint(taken) and not too_long:
                chosen[part].append(pair)
                taken |= hashes
            if len(chosen[part]) == size:
                break
        if len(chosen[part]) < size:
            raise InputError(
                f"data.{part}_pairs={size}: only {len(chosen[part]):,} of the "
                f"{len(candidates[part]):,} pairs drawn from data.train are suitable (no copies, "
                "kept by data.cleaning, no side in common): set fewer, or relax data.cleaning"
            )
    return chosen


def side_hashes(pairs: Iterable[Pair], data: DataConfig, tags: Collection[str]) -> frozenset[int]:
    """Hashes for ``EncodeChunk`` of both sides, normalised as training text is, without tags.

    Text without letters or digits has none.
    """
    normalizer, folded = Normalizer(data), set[str]()
    for pair in pairs:
        tag, src = split_tag(pair.src, tags)
        folded |= {fold(normalizer.src(src, tag)), fold(normalizer.tgt(pair.tgt, tag))}
    return frozenset(map(hash_text, folded - {""}))


def write_sets(run_dir: Path, data: DataConfig, sets: Sets) -> None:
    """Writes the held-out pairs as text files of a run folder, a line for each side."""
    for part in sizes(data):
        for side, name in enumerate(_side_files(data, part)):
            path = run_dir / name
            path.parent.mkdir(exist_ok=True)
            files.write_text(path, "".join(f"{pair[side]}\n" for pair in sets[part]))


def with_written_sets(data: DataConfig, run_dir: Path) -> DataConfig:
    """The data of a run with the files of its held-out pairs as ``valid`` and ``test``.

    A set whose files are missing, as in an exported folder, is left empty.
    """
    changed: dict[str, Any] = {}
    for part in sizes(data):
        src, tgt = (run_dir / name for name in _side_files(data, part))
        files_exist = src.exists() and tgt.exists()
        changed[f"{part}_pairs"] = None
        changed[part] = [SourceConfig(src=str(src), tgt=str(tgt))] if files_exist else []
    return replace(data, **changed)


def file_names(data: DataConfig) -> list[str]:
    """Names, in the run folder, of all files that ``write_sets`` writes."""
    return [name for part in sizes(data) for name in _side_files(data, part)]


def _side_files(data: DataConfig, part: str) -> list[str]:
    return [run_layout.HELD_OUT.format(part, language) for language in data.languages()]
