"""Sources → cleaned pairs → vocabulary → encoded corpus, each found in the cache or made.

Ranks and runs that start together prepare once, and before any process group exists.
"""

import json
import logging
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from transformer_mt import run_layout
from transformer_mt.config import DataConfig, TrainJob
from transformer_mt.data.cleaning.cleaner import CleaningReport
from transformer_mt.data.cleaning.registry import TEXT_SETTINGS
from transformer_mt.data.store import cache
from transformer_mt.data.store import token_store as store
from transformer_mt.data.store.deduplication import Mask, drop_repetitions
from transformer_mt.data.store.encode import (
    CHUNK_PAIRS,
    Chunk,
    CleanText,
    Encode,
    Shard,
    held_out_hashes,
    read_chunks,
)
from transformer_mt.data.store.epoch_stores import SampledCorpus
from transformer_mt.data.store.progress import Progress
from transformer_mt.data.store.token_store import Part, Side, TokenStore
from transformer_mt.data.store.workers import available_cores, map_ordered
from transformer_mt.data.subwords.tokenizer import EOS, Tokenizer, reservoir_sample, train_tokenizer
from transformer_mt.data.text.normalization import Normalizer
from transformer_mt.data.text.sources import Pair, fingerprint, read_pairs
from transformer_mt.errors import InputError
from transformer_mt.files import expand_user, sha256

log = logging.getLogger(__name__)

REPORT = "cleaning.json"
"""In the folder of the corpus: what cleaning dropped."""

Identities = list[dict[str, Any]]
"""What tells the sources from others, or from themselves at another time."""


@dataclass(frozen=True)
class Prepared:
    """What training needs of the data."""

    tokenizer_model: Path
    corpus: Path
    """Folder of the encoded corpus, which is ``train``."""
    train: TokenStore
    report: CleaningReport
    """What cleaning dropped."""
    valid: list[Pair]
    test: list[Pair]
    sampled: SampledCorpus | None = None
    """The corpus drawn anew in every epoch, if ``tokenizer.sampling`` asks for it."""

    @property
    def cleaning(self) -> dict[str, Any]:
        """The report as JSON values."""
        content: dict[str, Any] = json.loads(self.report.to_json())
        return content


def prepare(job: TrainJob) -> Prepared:
    """Reads, cleans and encodes the corpora of a job, or finds them in the cache.

    Raises:
        InputError: A source cannot be read, or changes meanwhile; nothing is left of it; or the
            cache cannot be written.
    """
    data = job.data
    # The small sets first: a mistake in them should not wait for an hour of encoding.
    valid, test = (
        list(read_pairs(part, src_lang=data.src_lang, tgt_lang=data.tgt_lang))
        for part in (data.valid, data.test)
    )
    if not valid:
        raise InputError("the validation set (data.valid) has no pairs")
    if data.test and not test:
        raise InputError("the test set (data.test) has no pairs: data.test=[] does without one")
    folder = expand_user(job.cache_dir).resolve()
    sources = _identities(data)
    text = [store.FORMAT, sources, data.src_lang, data.tgt_lang, data.normalization]
    if (given := given_vocabulary(job)) is not None:
        vocabulary = given
    else:
        filters = {k: v for k, v in asdict(data.cleaning).items() if k in TEXT_SETTINGS}
        learning = {k: v for k, v in asdict(job.tokenizer).items() if k != "sampling"}
        key = cache.key(text, filters, learning)
        vocabulary = folder / f"tokenizer-{key}" / run_layout.TOKENIZER
        cache.make(vocabulary.parent, lambda to: _learn(job, sources, to))
    Tokenizer(vocabulary)  # a wrong one should not wait either
    held_out = [*valid, *test] if data.cleaning.drop_held_out else []
    learned = sha256(vocabulary)
    corpus = folder / f"corpus-{cache.key(text, asdict(data.cleaning), learned, held_out)}"
    work = Encode(data, vocabulary, cache.half_done(corpus), held_out_hashes(held_out))
    cache.make(corpus, lambda to: _encode(work, sources, to))
    sampled = None
    if strength := job.tokenizer.sampling:
        processes = _processes(data)
        sampled = SampledCorpus(
            corpus, vocabulary, strength, job.train.seed, job.run_dir, processes
        )
        sampled.open(0)
    return Prepared(
        tokenizer_model=vocabulary,
        corpus=corpus,
        train=TokenStore.load(corpus),
        report=CleaningReport.from_json(data.cleaning, (corpus / REPORT).read_text("utf-8")),
        valid=valid,
        test=test,
        sampled=sampled,
    )


def given_vocabulary(job: TrainJob) -> Path | None:
    """The file of ``tokenizer.path``, or the copy that a run has which was begun with it."""
    if job.tokenizer.path is None:
        return None
    vocabulary, own = (
        expand_user(job.tokenizer.path).resolve(),
        Path(job.run_dir) / run_layout.TOKENIZER,
    )
    return own if own.exists() and not vocabulary.exists() else vocabulary


def encode_pairs(pairs: Iterable[Pair], tokenizer: Tokenizer, normalizer: Normalizer) -> TokenStore:
    """Encodes pairs in memory, every one of them, as validation needs it."""
    pairs = list(pairs)
    src, tgt = (
        Side.from_lists([[*ids, EOS] for ids in tokenizer.encode(lines)])
        for lines in (
            [normalizer.src(pair.src) for pair in pairs],
            [normalizer.tgt(pair.tgt) for pair in pairs],
        )
    )
    return TokenStore(src, tgt)


def _identities(data: DataConfig) -> Identities:
    return [fingerprint(source) for source in data.train]


@contextmanager
def _unchanged(data: DataConfig, sources: Identities) -> Iterator[None]:
    """Whatever is read within is of the sources as they were, or an error.

    Raises:
        InputError: A source changed.
    """

    def compare() -> None:
        for source, then, now in zip(data.train, sources, _identities(data), strict=True):
            if then != now:
                raise InputError(
                    f"{source} changed while it was read: wait until it is complete, and say the "
                    "same command again"
                )

    try:
        yield
    except InputError:
        compare()  # it says more than an error that comes of it
        raise
    compare()


def _learn(job: TrainJob, sources: Identities, folder: Path) -> None:
    log.info("learning a vocabulary of %d pieces", job.tokenizer.vocab_size)
    data = job.data
    size = max(1, job.tokenizer.max_sentences // 2)
    with _unchanged(data, sources), closing(Progress("read")) as progress:
        pairs = _counted(read_chunks(data), progress)
        drawn = reservoir_sample(pairs, size, job.tokenizer.seed)
    parts = (drawn[i : i + CHUNK_PAIRS] for i in range(0, len(drawn), CHUNK_PAIRS))
    with closing(map_ordered(CleanText(data), parts, _processes(data))) as cleaned:
        lines = (side for pairs in cleaned for pair in pairs for side in pair)
        model = train_tokenizer(lines, job.tokenizer)
    (folder / run_layout.TOKENIZER).write_bytes(model)


def _counted(chunks: Iterable[Chunk], progress: Progress) -> Iterator[Pair]:
    for chunk in chunks:
        yield from chunk.pairs
        progress.add(len(chunk.pairs))


def _encode(work: Encode, sources: Identities, folder: Path) -> None:
    log.info("encoding the training data")
    data = work.data
    work.folder.mkdir(exist_ok=True)
    if found := len(list(work.folder.glob("*.npz"))):
        log.info("  going on from %d parts that are there already", found)
    shards: list[Shard] = []
    report = CleaningReport(data.cleaning)
    with (
        _unchanged(data, sources),
        closing(Progress("encoded")) as progress,
        closing(map_ordered(work, read_chunks(data), _processes(data))) as results,
    ):
        for shard, part in results:
            shards.append(shard)
            report.merge(part)
            progress.add(part.total)
    if not report.kept:
        raise InputError(f"no training pair is left after cleaning: {_summary(report)}")
    tokenizer = Tokenizer(work.vocabulary)
    kept = drop_repetitions(shards, data, tokenizer, report)
    sizes = np.zeros(len(data.train), np.int64)
    for shard, mask in zip(shards, kept, strict=True):
        sizes[shard.chunk.source] += mask.sum()
    parts = (_select(shard, mask) for shard, mask in zip(shards, kept, strict=True))
    names = [source.name for source in data.train]
    store.write(folder, parts, tokenizer.vocab_size, sources=sizes.tolist(), names=names)
    (folder / REPORT).write_text(report.to_json(), encoding="utf-8")


def _select(shard: Shard, kept: Mask) -> Part:
    part = shard.part()
    if kept.all():
        return part
    places = np.flatnonzero(kept)
    src, tgt = (Side.from_lengths(*side.gather(places)) for side in (part.src, part.tgt))
    return Part(src, tgt, part.lines[places])


def _processes(data: DataConfig) -> int:
    return available_cores() if data.workers is None else data.workers


def _summary(report: CleaningReport) -> str:
    dropped = ", ".join(f"{count:,} {name}" for name, count in report.dropped.items() if count)
    return f"{report.total:,} read; dropped: {dropped or 'none'}"
