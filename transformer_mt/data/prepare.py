"""Data preparation: sources → cleaned pairs → vocabulary → encoded corpus, cached on disk.

Processes and runs that start together build each cache entry once. Preparation takes place before
any process group exists.
"""

import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from transformer_mt import run_layout
from transformer_mt.config import DataConfig, SourceConfig, TrainJob
from transformer_mt.config.checks import require
from transformer_mt.data import held_out
from transformer_mt.data.batching.pair_sampling import PairSampler
from transformer_mt.data.cleaning.cleaner import clean_text
from transformer_mt.data.cleaning.filters import FILTERS
from transformer_mt.data.store import cache, token_store
from transformer_mt.data.store.encode import (
    CHUNK_PAIRS,
    EncodeChunk,
    EncodedChunk,
    encode_all,
    held_out_hashes,
    read_chunks,
)
from transformer_mt.data.store.token_store import (
    Corpus,
    Side,
    TokenStore,
    damaged,
    write_corpus,
)
from transformer_mt.data.store.workers import map_ordered, num_workers, run_in_process
from transformer_mt.data.subwords.tokenizer import (
    EOS,
    Tokenizer,
    add_tags,
    one_line,
    vocabulary_checksum,
    vocabulary_files,
)
from transformer_mt.data.subwords.vocabulary_training import (
    reservoir_sample,
    train_tokenizer_on_file,
)
from transformer_mt.data.text.normalization import Normalizer
from transformer_mt.data.text.sources import Pair, fingerprint, read_pairs
from transformer_mt.data.text.tags import check_tag, missing_tags
from transformer_mt.errors import InputError, first_line
from transformer_mt.files import cache_path, expand_user, read_json
from transformer_mt.progress_reporter import ProgressReporter
from transformer_mt.protocols import Download
from transformer_mt.registries import SOURCE_DOWNLOADS, SOURCE_NOISES

log = logging.getLogger(__name__)

REPORT = "cleaning.json"
"""Name of the cleaning report in the folder of the corpus."""

_TEXT_VERSION = 3
"""Version of the reading and cleaning of text; it is part of the cache keys."""

_VOCABULARY_PAIRS = 1_000_000
"""Maximum number of pairs that a vocabulary is learned from: SentencePiece's trainer holds their
text and, for BPE, the places of all pairs of symbols in memory."""
_VOCABULARY_SEED = 1
"""Seed of their sample: runs with different ``train.seed`` share a vocabulary."""


@dataclass(frozen=True)
class Prepared:
    """The prepared data of a training job: paths and text, which other processes can receive."""

    config: DataConfig
    """The configuration of the data."""
    tokenizer_model: Path
    """The vocabulary: a SentencePiece model, or a folder with one for each language."""
    corpus: Path
    """Folder of the encoded training data."""
    valid: list[Pair]
    """The validation set."""
    test: list[Pair]
    """The test set; may be empty."""
    fingerprints: dict[str, str]
    """Checksums of the training data (``corpus``), ``valid`` and ``test``, which a resumed run
    compares; with weighted sources, also the number of pairs of each (``sources``)."""
    sampler: PairSampler | None = None
    """Samples the training pairs, with ``data.augment`` or ``tokenizer.sampling``."""

    @property
    def train(self) -> Corpus:
        """The training pairs, memory-mapped."""
        return Corpus.load(self.corpus)

    @cached_property
    def valid_store(self) -> TokenStore:
        """The validation pairs, normalised and encoded in memory, without cleaning."""
        tokenizer, normalizer = Tokenizer.load(self.tokenizer_model), Normalizer.of(self.config)
        sources, targets = list[list[int]](), list[list[int]]()
        for pair in self.valid:
            (src,) = tokenizer.encode_sources([pair.src], normalizer)
            (tgt,) = tokenizer.tgt.encode([normalizer.of_line(pair.src).tgt(pair.tgt)])
            sources.append([*src, EOS])
            targets.append([*tgt, EOS])
        return TokenStore(Side.from_lists(sources), Side.from_lists(targets))

    @property
    def report(self) -> dict[str, Any]:
        """Report of what cleaning dropped: ``CleaningReport.to_json``."""
        types = {"total": int, "kept": int, "dropped": dict, "examples": dict}
        try:
            return dict(read_json(self.corpus / REPORT, types))
        except (FileNotFoundError, ValueError) as error:
            raise damaged(self.corpus, f"{REPORT}: {first_line(error)}") from None


def prepare(job: TrainJob) -> Prepared:
    """Reads, cleans and encodes the corpora of a job, or finds the results in the cache.

    Raises:
        InputError: A source cannot be read; cleaning drops all pairs; the vocabulary does not suit
            the model; or the cache cannot be written.
    """
    data = job.data
    cache_dir = cache_path(job.cache_dir).resolve()
    # The small sets first, so that an error in them is reported before an hour of encoding.
    valid = read_all(data.valid, data, cache_dir)
    test = read_all(data.test, data, cache_dir)
    identities = list(map(fingerprint, data.train))
    text = [_TEXT_VERSION, identities, data.src_lang, data.tgt_lang, data.normalization]

    def local_data() -> DataConfig:
        return replace(data, train=local_sources(data.train, data, cache_dir))

    of_text = chain.from_iterable(f.settings for f in FILTERS if f.side or f.text)
    filters = {name: getattr(data.cleaning, name) for name in of_text}
    candidates, drawn = dict[str, list[Pair]](), list(held_out.sizes(data).items())
    if drawn:
        entry = cache_dir / f"held-out-{cache.key(text, filters, drawn)}"
        cache.build_once(entry, lambda to: held_out.find_candidates(local_data(), to))
        candidates = held_out.read_candidates(data, entry)
    vocabulary = existing_vocabulary(job)
    if vocabulary is None:
        irrelevant = ("sampling", "joint") if job.tokenizer.joint else ("sampling",)
        sizes = {k: v for k, v in asdict(job.tokenizer).items() if k not in irrelevant}
        entry = cache_dir / f"tokenizer-{cache.key(text, filters, sizes, *drawn)}"
        excluded = held_out_hashes(chain.from_iterable(candidates.values()), data, data.tags)

        def learn(to: Path) -> None:
            _learn_vocabulary(replace(job, data=local_data()), excluded, to)

        cache.build_once(entry, learn)
        vocabulary = entry / run_layout.TOKENIZER if job.tokenizer.joint else entry
    elif missing := missing_tags(data, Tokenizer.load(vocabulary).tags):
        entry = cache_dir / f"tokenizer-{cache.key(vocabulary_checksum(vocabulary), missing)}"
        cache.build_once(entry, partial(add_tags, vocabulary, missing))
        vocabulary = entry
    try:
        tokenizer = Tokenizer.load(vocabulary)  # an invalid one, too, is reported before encoding
    except InputError as error:
        if not vocabulary.is_relative_to(cache_dir):
            raise
        folder = vocabulary if vocabulary.is_dir() else vocabulary.parent
        raise InputError(f"{error}: delete the folder {folder}; it will be built again") from None
    require(
        tokenizer.is_joint or job.model.tied_embeddings != "all",
        f"{vocabulary} has one vocabulary for each language: set model.tied_embeddings=decoder "
        "or none",
    )
    for tag in data.tags:
        check_tag(tag, tokenizer.tags)
    chosen = held_out.choose(data, candidates, tokenizer) if drawn else {}
    valid, test = chosen.get("valid", valid), chosen.get("test", test)
    excluded = frozenset[int]()
    if data.cleaning.drop_held_out:
        excluded = held_out_hashes([*valid, *test], data, tokenizer.tags)
    checksum = vocabulary_checksum(vocabulary)
    settings = [asdict(data.cleaning), data.window_pairs, checksum, sorted(excluded)]
    corpus = cache_dir / f"corpus-{cache.key(text, token_store.FORMAT, settings)}"

    def encode(to: Path) -> None:
        unfinished = cache.intermediate_dir(corpus)
        _encode_corpus(EncodeChunk(local_data(), vocabulary, unfinished, excluded), to)

    cache.build_once(corpus, encode)
    train, sampler = Corpus.load(corpus), None
    if (strength := job.tokenizer.sampling) or data.augment != "none":
        noise = None if data.augment == "none" else resolve_name(SOURCE_NOISES[data.augment])
        normalizer, seed = Normalizer.of(data), job.train.seed
        longest = train.sample.max_length  # of all shards
        sampler = PairSampler(vocabulary, normalizer, noise, strength, seed, longest)
    checksums = {
        "corpus": train.fingerprint,
        "valid": cache.key(valid),
        "test": cache.key(test),
    }
    if data.weights:  # otherwise the division into sources has no effect
        checksums["sources"] = " ".join(map(str, train.source_sizes.sum(axis=0)))
    return Prepared(data, vocabulary, corpus, valid, test, checksums, sampler)


def read_all(sources: Sequence[SourceConfig], data: DataConfig, cache_dir: Path) -> list[Pair]:
    """All pairs of a validation or test set.

    Raises:
        InputError: See ``read_pairs``; or a corpus cannot be downloaded.
    """
    local = local_sources(sources, data, cache_dir)
    return list(read_pairs(local, src_lang=data.src_lang, tgt_lang=data.tgt_lang))


def local_sources(
    sources: Sequence[SourceConfig], data: DataConfig, cache_dir: Path
) -> list[SourceConfig]:
    """The sources by absolute paths; what is to be downloaded as files in the cache, once.

    Raises:
        InputError: A corpus cannot be downloaded, or is in other languages.
    """
    local = []
    for source in map(SourceConfig.with_absolute_paths, sources):
        if (path := SOURCE_DOWNLOADS.get(source.kind)) is not None:
            download: Download = resolve_name(path)(source, *data.languages(source))
            entry = cache_dir / source.kind / source.name
            cache.build_once(entry, download.fetch)
            source = download.files(entry)
        local.append(source)
    return local


def existing_vocabulary(job: TrainJob) -> Path | None:
    """``tokenizer.path``, or the run folder's copy if that file no longer exists; None if unset."""
    if job.tokenizer.path is None:
        return None
    given = expand_user(job.tokenizer.path).resolve()
    copy = Path(job.run_dir)
    return copy if vocabulary_files(copy)[0].exists() and not given.exists() else given


def _learn_vocabulary(job: TrainJob, excluded: frozenset[int], folder: Path) -> None:
    """Learns a vocabulary from the pairs of which no side has a hash in ``excluded``."""
    log.info("learning a vocabulary of %d pieces", job.tokenizer.vocab_size)
    data = job.data
    sample = reservoir_sample(_read_reported(data), _VOCABULARY_PAIRS, _VOCABULARY_SEED)
    parts = [sample[i : i + CHUNK_PAIRS] for i in range(0, len(sample), CHUNK_PAIRS)]
    clean = partial(clean_text, data, excluded)
    names = [run_layout.TOKENIZER] if job.tokenizer.joint else run_layout.SIDE_TOKENIZERS
    texts = [folder / f"{name}.text" for name in names]
    with ExitStack() as stack:
        opened = [
            stack.enter_context(text.open("w", encoding="utf-8", newline="\n")) for text in texts
        ]
        cleaned = stack.enter_context(closing(map_ordered(clean, parts, num_workers(data.workers))))
        for pair in chain.from_iterable(cleaned):
            for side, file in zip(pair, (opened[0], opened[-1]), strict=True):
                file.write(f"{one_line(side)}\n")
    if sample and not any(text.stat().st_size for text in texts):
        raise InputError(
            f"nothing is left after cleaning: data.cleaning drops all of {len(sample):,} pairs; "
            "are src and tgt the right way round, and the filters right for these languages?"
        )
    tags = missing_tags(data)
    for name, text in zip(names, texts, strict=True):
        train = partial(train_tokenizer_on_file, config=job.tokenizer, tags=tags)
        tags = []  # only source lines have them
        # SentencePiece does not notice Ctrl-C, unless it takes but a moment.
        model = run_in_process(train, text) if len(parts) > 1 else train(text)
        text.unlink()
        (folder / name).write_bytes(model)


def _read_reported(data: DataConfig) -> Iterator[tuple[int, Pair]]:
    done = 0
    with ProgressReporter("pairs", "read") as progress:
        for chunk in read_chunks(data):
            yield from ((chunk.source, pair) for pair in chunk.pairs)
            done += len(chunk.pairs)
            progress.update(done)


def _encode_corpus(task: EncodeChunk, folder: Path) -> None:
    data = task.data
    log.info("encoding the training data")
    chunks, masks, report = encode_all(task)
    used = {chunk.source for chunk, mask in zip(chunks, masks, strict=True) if mask.any()}
    for number, source in enumerate(data.train):
        if number not in used:
            log.warning("warning: cleaning drops all pairs of %s", source)
    write_corpus(
        folder,
        map(EncodedChunk.read, chunks, masks),
        num_shards=max(1, report.kept // data.window_pairs),
        vocab_size=Tokenizer.load(task.vocabulary).num_ids,
        num_sources=len(data.train),
    )
    text = json.dumps(report.to_json(), indent=2, ensure_ascii=False)
    (folder / REPORT).write_text(text, encoding="utf-8")
