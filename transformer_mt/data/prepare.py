"""Sources → cleaned pairs → vocabulary → encoded corpus, each kept in the cache.

A cache entry is named by a fingerprint of all that it depends on, written under a temporary name
and renamed when whole. A lock makes a second process wait and then find the entry: ranks and runs
that start together prepare once, and before any process group exists.
"""

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from filelock import FileLock

from transformer_mt.config import TrainJob
from transformer_mt.data import store
from transformer_mt.data.cleaning import Cleaner
from transformer_mt.data.corpus import Pair, fingerprint, read_pairs
from transformer_mt.data.store import Side, TokenStore
from transformer_mt.data.tokenizer import EOS, Tokenizer, train_tokenizer
from transformer_mt.errors import InputError

log = logging.getLogger(__name__)

_LINES_AT_A_TIME = 20_000


@dataclass(frozen=True)
class Prepared:
    """What training needs of the data."""

    tokenizer_model: Path
    train: TokenStore
    cleaning: dict[str, Any]
    """The cleaning report."""
    valid: list[Pair]
    test: list[Pair]


def prepare(job: TrainJob) -> Prepared:
    """Reads, cleans and encodes the corpora of a job, or finds them in the cache.

    Raises:
        InputError: A source cannot be read, or nothing is left of it.
    """
    data = job.data
    # The small sets first: a mistake in them should not wait for an hour of encoding.
    valid, test = (
        list(read_pairs(part, src_lang=data.src_lang, tgt_lang=data.tgt_lang))
        for part in (data.valid, data.test)
    )
    if not valid:
        raise InputError("the validation set (data.valid) has no pairs")
    cache = Path(job.cache_dir).expanduser().resolve()
    sources = {
        "sources": [fingerprint(source) for source in data.train],
        "langs": [data.src_lang, data.tgt_lang],
    }
    if job.tokenizer.path is not None:
        vocabulary = Path(job.tokenizer.path).expanduser().resolve()
    else:
        key = _key(sources, asdict(job.tokenizer), data.cleaning.deduplicate, job.train.seed)
        vocabulary = _entry(cache / f"tokenizer-{key}", lambda to: _learn(job, to))
        vocabulary /= "tokenizer.model"
    tokenizer = Tokenizer(vocabulary)
    key = _key(sources, asdict(data.cleaning), hashlib.sha256(vocabulary.read_bytes()).hexdigest())
    corpus = _entry(cache / f"corpus-{key}", lambda to: _encode(job, tokenizer, to))
    return Prepared(
        tokenizer_model=vocabulary,
        train=TokenStore.load(corpus),
        cleaning=json.loads((corpus / "cleaning.json").read_text()),
        valid=valid,
        test=test,
    )


def encode_pairs(pairs: Iterable[Pair], tokenizer: Tokenizer) -> TokenStore:
    """Encodes pairs in memory, every one of them, as validation needs it."""
    pairs = list(pairs)
    src, tgt = (
        Side.from_lists([[*ids, EOS] for ids in tokenizer.encode(lines)])
        for lines in ([pair.src for pair in pairs], [pair.tgt for pair in pairs])
    )
    return TokenStore(src, tgt)


def _key(*parts: object) -> str:
    text = json.dumps([store.FORMAT, *parts], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _entry(path: Path, build: Callable[[Path], None]) -> Path:
    """The cache entry ``path``, built under a temporary name if it is not there yet."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_suffix(".lock")):
        if not path.exists():
            unfinished = path.with_suffix(".unfinished")
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir()
            build(unfinished)
            for file in unfinished.iterdir():
                with file.open("rb") as handle:
                    os.fsync(handle.fileno())
            unfinished.rename(path)
    return path


def _training_pairs(job: TrainJob, cleaner: Cleaner) -> Iterator[Pair]:
    data = job.data
    return cleaner.clean_text(
        read_pairs(data.train, src_lang=data.src_lang, tgt_lang=data.tgt_lang)
    )


def _learn(job: TrainJob, folder: Path) -> None:
    log.info("learning a vocabulary of %d pieces", job.tokenizer.vocab_size)
    pairs = _training_pairs(job, Cleaner(job.data.cleaning))
    lines = (side for pair in pairs for side in pair)
    model = train_tokenizer(lines, job.tokenizer, seed=job.train.seed)
    (folder / "tokenizer.model").write_bytes(model)


def _encode(job: TrainJob, tokenizer: Tokenizer, folder: Path) -> None:
    log.info("encoding the training data")
    cleaner = Cleaner(job.data.cleaning)
    threads = os.cpu_count() or 1

    def batches() -> Iterator[list[tuple[list[int], list[int]]]]:
        for pairs in _batched(_training_pairs(job, cleaner), _LINES_AT_A_TIME):
            src = tokenizer.encode([pair.src for pair in pairs], threads)
            tgt = tokenizer.encode([pair.tgt for pair in pairs], threads)
            encoded = (([*s, EOS], [*t, EOS]) for s, t in zip(src, tgt, strict=True))
            yield [(s, t) for s, t in encoded if cleaner.keep_tokens(len(s), len(t))]
            if cleaner.report.read % (50 * _LINES_AT_A_TIME) < _LINES_AT_A_TIME:
                log.info("  %s pairs read", f"{cleaner.report.read:,}")

    store.write(folder, batches(), tokenizer.vocab_size)
    report = cleaner.report
    if not report.kept:
        raise InputError(f"no training pair is left after cleaning: {report.summary()}")
    log.info("%s", report.summary())
    (folder / "cleaning.json").write_text(json.dumps(report.to_dict(), indent=2))


def _batched(pairs: Iterator[Pair], size: int) -> Iterator[list[Pair]]:
    # itertools.batched is Python 3.12's.
    while batch := list(islice(pairs, size)):
        yield batch
