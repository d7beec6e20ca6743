"""Estimate of the disk space that preparing a large corpus takes, logged before it starts."""

import logging
import shutil
import zlib
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from transformer_mt.config import DataConfig, SourceConfig
from transformer_mt.data.cleaning.registry import DUPLICATE_KEYS, active_filters
from transformer_mt.data.store.token_store import token_type
from transformer_mt.data.subwords.tokenizer import Tokenizer
from transformer_mt.data.text.lines import COMPRESSED
from transformer_mt.data.text.sources import Pair, read_pairs

log = logging.getLogger(__name__)

_SMALL_CORPUS = 10**8
"""Bytes of text, compressed or not, that need not be mentioned."""

_SAMPLE_PAIRS = 10_000
"""Pairs at the beginning of a source, from which its number of pairs is estimated."""

_TOKENIZED_PAIRS = 1_000

_COMPRESSION = 3
"""Size of text compared with that of its compressed file."""

_STORE_BYTES = 8 + 8 + 4
"""Of a pair besides its tokens: two offsets and a line number."""

_SHARD_BYTES = 4 + 4 + 4
"""Of a pair in a shard besides its tokens and hashes: two lengths and a row."""


def log_disk_space(data: DataConfig, tokenizer: Tokenizer, folder: Path) -> None:
    """Logs the disk space that encoding a large corpus will take, and warns if there is less."""
    if sum(_file_bytes(source) for source in data.train) < _SMALL_CORPUS:
        return
    itemsize = token_type(tokenizer.vocab_size).itemsize
    hashes = sum(8 for f in active_filters(data.cleaning) if f.name in DUPLICATE_KEYS)
    pairs = store = shards = 0.0
    for source in data.train:
        text = read_pairs([source], src_lang=data.src_lang, tgt_lang=data.tgt_lang)
        sample = list(islice(text, _SAMPLE_PAIRS))
        if not sample:
            continue
        count = _estimate_pairs(source, sample)
        lines = [side for pair in sample[:: _SAMPLE_PAIRS // _TOKENIZED_PAIRS] for side in pair]
        tokens = 2 * (1 + sum(map(len, tokenizer.encode(lines))) / len(lines))
        pairs += count
        store += count * (tokens * itemsize + _STORE_BYTES)
        shards += count * (tokens * itemsize + _SHARD_BYTES + hashes)
    free = shutil.disk_usage(folder).free
    numbers = (pairs / 1e6, (store + shards) / 1e9, store / 1e9, free / 1e9)
    log.info(
        "  about %s million pairs: %s GB of disk until they are encoded, then %s GB; %s GB are free"
        " in %s",
        *(f"{number:.2g}" if number < 100 else f"{number:,.0f}" for number in numbers),
        folder,
    )
    if store + shards > free:
        log.warning("warning: the disk may be too small: set cache_dir to another folder")


def text_bytes(source: SourceConfig) -> int:
    """Rough size of the text of a source, if compressed when decompressed; 0 if unknown."""
    if source.hub is not None:  # a folder may hold more than the one split
        return 0
    return _file_bytes(source) * (1 if _is_plain(source) else _COMPRESSION)


def _estimate_pairs(source: SourceConfig, sample: Sequence[Pair]) -> float:
    """Number of pairs of a source, from the size of its files and its first pairs."""
    if len(sample) < _SAMPLE_PAIRS:
        return len(sample)
    text = "".join(f"{src}\t{tgt}\n" for src, tgt in sample).encode()
    sample_bytes = len(text) if _is_plain(source) else len(zlib.compress(text))
    return _file_bytes(source) / sample_bytes * len(sample)


def _is_plain(source: SourceConfig) -> bool:
    """Whether the files hold text that is not compressed."""
    compressed = (*COMPRESSED, ".parquet")
    return not any(path.is_dir() or path.suffix in compressed for path in source.paths.values())


def _file_bytes(source: SourceConfig) -> int:
    """Size of the files of a source; 0 if it has none, as a dataset that is to be downloaded."""
    return sum(
        file.stat().st_size
        for path in source.paths.values()
        for file in (path.rglob("*") if path.is_dir() else (path,))
        if file.is_file()
    )
