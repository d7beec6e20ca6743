"""Data preparation: sources → cleaned pairs → vocabulary → encoded corpus, cached on disk.

Processes and runs that start together build each cache entry once. Preparation takes place before
any process group exists.
"""

import logging
from collections import defaultdict
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from itertools import chain, islice
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from transformer_mt import files, run_layout
from transformer_mt.config import DataConfig, SourceConfig, TrainJob
from transformer_mt.config.checks import require
from transformer_mt.data import held_out
from transformer_mt.data.cleaning.cleaner import clean_text
from transformer_mt.data.cleaning.filters import FILTERS
from transformer_mt.data.store.encode import (
    CHUNK_PAIRS,
    REPORT,
    EncodeChunk,
    encode_corpus,
    read_chunks,
)
from transformer_mt.data.store.token_store import FORMAT, Corpus, Side, TokenStore
from transformer_mt.data.store.workers import map_ordered, run_in_process
from transformer_mt.data.subwords.tokenizer import (
    EOS,
    Tokenizer,
    add_tags,
    one_line,
    vocabulary_files,
)
from transformer_mt.data.subwords.vocabulary_training import (
    reservoir_sample,
    train_tokenizer_on_file,
)
from transformer_mt.data.text.normalization import Normalizer
from transformer_mt.data.text.sources import fingerprint, read_pairs
from transformer_mt.data.text.tags import check_tag, missing_tags
from transformer_mt.errors import InputError
from transformer_mt.protocols import Pair
from transformer_mt.registries import PHRASE_PAIRS

log = logging.getLogger(__name__)

_HELD_OUT = "held_out.json"
"""Name of the held-out pairs in the folder of the vocabulary."""

_TEXT_VERSION = 7
"""Version of the reading and cleaning of text; it is part of the cache keys."""
_NOISE_VERSION = 5
"""Version of ``data.augment``; it is part of the cache keys of what has noise."""

_VOCABULARY_PAIRS = 1_000_000
"""Maximum number of pairs that a vocabulary is learned from: SentencePiece's trainer holds their
text and, for BPE, the places of all pairs of symbols in memory."""
_VOCABULARY_SEED = 1
"""Seed of their sample and noise: runs with different ``train.seed`` share a vocabulary."""
_PHRASE_SENTENCES = 100_000
"""Maximum number of pairs with each tag, the first ones, that phrases are looked for in."""


@dataclass(frozen=True)
class Prepared:
    """The prepared data of a training job."""

    tokenizer_model: Path
    """The vocabulary: a SentencePiece model, or a folder with one for each language."""
    tokenizer: Tokenizer
    """The vocabulary, loaded."""
    normalizer: Normalizer
    """Normalisation of the text."""
    corpus: Path
    """Folder of the encoded training data."""
    train: Corpus
    """The training pairs, memory-mapped."""
    report: dict[str, Any]
    """What cleaning dropped: ``CleaningReport.to_json``."""
    valid: list[Pair]
    """The validation set."""
    test: list[Pair]
    """The test set; may be empty."""
    fingerprints: dict[str, str]
    """Checksums of the training data (``corpus``), ``valid`` and ``test``, which a resumed run
    compares."""

    @cached_property
    def valid_store(self) -> TokenStore:
        """The validation set, normalised and encoded, without cleaning; in memory once used."""
        pairs = self.tokenizer.encode_pairs(self.valid, self.normalizer)
        src, tgt = zip(*(([*src, EOS], [*tgt, EOS]) for src, tgt in pairs), strict=True)
        return TokenStore(Side.from_lists(src), Side.from_lists(tgt))


def prepare(job: TrainJob) -> Prepared:
    """Reads, cleans and encodes the corpora of a job, or finds the results in the cache.

    Raises:
        InputError: A source cannot be read; cleaning drops all pairs; the vocabulary does not suit
            the model; or the cache cannot be written.
    """
    data, cache_dir = job.data, files.cache_path(job.cache_dir).resolve()
    # The small sets first, so that an error in them is reported before an hour of encoding.
    sets = {"valid": list(read_pairs(data.valid, *data.languages()))}
    sets["test"] = list(read_pairs(data.test, *data.languages()))
    vocabulary, held_out_sets = _vocabulary(job, cache_dir)
    tokenizer = Tokenizer(vocabulary)
    require(
        tokenizer.is_joint or job.model.tied_embeddings != "all",
        f"{vocabulary} has one vocabulary for each language: set model.tied_embeddings=decoder or "
        "none",
    )
    for tag in data.tags:
        check_tag(tag, tokenizer.tags)
    sets |= held_out_sets
    excluded = frozenset[int]()
    if data.cleaning.drop_held_out:
        excluded = held_out.side_hashes(chain(*sets.values()), data, tokenizer.tags)
    corpus = _corpus(job, cache_dir, vocabulary, tokenizer.checksum, excluded)
    train = Corpus.load(corpus)
    return Prepared(
        tokenizer_model=vocabulary,
        tokenizer=tokenizer,
        normalizer=Normalizer(data),
        corpus=corpus,
        train=train,
        report=files.read_json(corpus / REPORT, remedy=files.how_to_rebuild(corpus)),
        valid=sets["valid"],
        test=sets["test"],
        fingerprints={
            "corpus": train.fingerprint,
            "valid": files.cache_key(sets["valid"]),
            "test": files.cache_key(sets["test"]),
        },
    )


def _text(data: DataConfig) -> list[object]:
    """What the text of the training sources depends on, as JSON values."""
    sources = [*map(fingerprint, data.train)]
    noise = [] if data.augment == "none" else [data.augment, _NOISE_VERSION]
    return [_TEXT_VERSION, sources, data.src_lang, data.tgt_lang, data.normalization, *noise]


def _vocabulary(job: TrainJob, cache_dir: Path) -> tuple[Path, held_out.Sets]:
    """The vocabulary, and the pairs that are taken out of the training sources.

    It is the given one, with the tags that it lacks, or is learned without these pairs.
    """
    data, config, sizes = job.data, job.tokenizer, held_out.sizes(job.data)
    given, missing = None, list[str]()
    if config.path is None:
        settings: object = asdict(config)
    else:
        given = existing_vocabulary(config.path, job.run_dir)
        tokenizer = Tokenizer(given)
        log.info("the vocabulary is %s: %s, %d pieces", given, config.type, config.vocab_size)
        missing = missing_tags(data, tokenizer.tags)
        if not (missing or sizes):
            return given, {}
        settings = [tokenizer.checksum, missing]
    filters = {
        f.setting: getattr(data.cleaning, f.setting)
        for f in FILTERS
        if f.setting and (f.side or f.both)
    }
    if sizes:
        filters |= {"max_tokens": data.cleaning.max_tokens, "max_ratio": data.cleaning.max_ratio}
    entry = cache_dir / f"tokenizer-{files.cache_key(_text(data), filters, settings, sizes)}"

    def build(to: Path) -> None:
        candidates = held_out.find_candidates(data) if sizes else {}
        if given is not None:
            add_tags(given, missing, to)
        else:
            excluded = held_out.side_hashes(chain(*candidates.values()), data, data.tags)
            _learn_vocabulary(job, excluded, to)
        files.write_json(to / _HELD_OUT, held_out.choose(data, candidates, Tokenizer(to)))

    files.build_once(entry, build)
    content = files.read_json(entry / _HELD_OUT, remedy=files.how_to_rebuild(entry))
    sets = {part: [Pair(*pair) for pair in pairs] for part, pairs in content.items()}
    paths = [given] if given and not missing else vocabulary_files(entry)
    return (paths[0] if len(paths) == 1 else entry), sets


def _corpus(
    job: TrainJob, cache_dir: Path, vocabulary: Path, checksum: str, excluded: frozenset[int]
) -> Path:
    """The encoded training data, without pairs of which a side has a hash in ``excluded``."""
    data, seed, cleaning = job.data, job.train.seed, asdict(job.data.cleaning)
    phrases = _phrases(data, cache_dir, excluded) if data.phrase_pairs else []
    settings = [cleaning, data.shard_pairs, [*map(str, phrases)], checksum, sorted(excluded)]
    if data.augment != "none":
        settings.append(seed)
    entry = cache_dir / f"corpus-{files.cache_key(_text(data), FORMAT, settings)}"

    def build(to: Path) -> None:
        log.info("encoding the training data")
        encode_corpus(EncodeChunk(data, vocabulary, excluded, seed, phrases), to)

    files.build_once(entry, build)
    return entry


def _phrases(data: DataConfig, cache_dir: Path, excluded: frozenset[int]) -> list[SourceConfig]:
    """Text files of the pairs of phrases in the training text (``data.phrase_pairs``).

    Sources with the same tag and languages share a pair of files, unless they have no phrases.
    """
    without_noise = replace(data, augment="none", weights=[])
    alike = defaultdict[Any, list[SourceConfig]](list)
    for source in data.train:
        alike[source.tag, source.src_lang, source.tgt_lang].append(source)
    settings = asdict(data.cleaning), _PHRASE_SENTENCES, sorted(excluded)
    entry = cache_dir / f"phrases-{files.cache_key(_text(without_noise), *settings)}"

    def build(to: Path) -> None:
        for number, sources in enumerate(alike.values()):
            pairs = read_pairs(sources, *data.languages())
            first = ((0, row, pair) for row, pair in enumerate(islice(pairs, _PHRASE_SENTENCES)))
            clean = clean_text(replace(without_noise, train=sources), excluded, 0, first)
            # Sentences that are their own translations mislead the aligner.
            translated = [pair for pair in clean if pair.src != pair.tgt]
            phrases = resolve_name(PHRASE_PAIRS)(translated)
            log.info("found %s pairs of phrases", f"{len(phrases):,}")
            for index, side in enumerate(("src", "tgt")):
                content = "".join(f"{one_line(pair[index])}\n" for pair in phrases)
                (to / f"{number}.{side}").write_text(content, encoding="utf-8", newline="\n")

    files.build_once(entry, build)
    sources = [
        SourceConfig(
            src=f"{entry}/{i}.src", tgt=f"{entry}/{i}.tgt", tag=tag, src_lang=src, tgt_lang=tgt
        )
        for i, (tag, src, tgt) in enumerate(alike)
    ]
    return [source for source in sources if source.paths["src"].stat().st_size]


def existing_vocabulary(path: str, run_dir: str) -> Path:
    """The given vocabulary, ``tokenizer.path``; if it no longer exists, the run folder's copy."""
    given, copy = files.expand_user(path).resolve(), Path(run_dir)
    return copy if vocabulary_files(copy)[0].exists() and not given.exists() else given


def _learn_vocabulary(job: TrainJob, excluded: frozenset[int], folder: Path) -> None:
    """Learns a vocabulary from the pairs of which no side has a hash in ``excluded``."""
    log.info("learning a vocabulary of %d pieces", job.tokenizer.vocab_size)
    data = job.data
    pairs = (
        (chunk.source, row, pair)
        for chunk in read_chunks(data, "read")
        for row, pair in enumerate(chunk.pairs, chunk.first_row)
    )
    sample = reservoir_sample(pairs, _VOCABULARY_PAIRS, _VOCABULARY_SEED)
    parts = [sample[i : i + CHUNK_PAIRS] for i in range(0, len(sample), CHUNK_PAIRS)]
    clean = partial(clean_text, data, excluded, _VOCABULARY_SEED)
    names = [run_layout.TOKENIZER] if job.tokenizer.joint else run_layout.SIDE_TOKENIZERS
    texts = [folder / f"{name}.text" for name in names]
    with ExitStack() as stack:
        opened = [
            stack.enter_context(text.open("w", encoding="utf-8", newline="\n")) for text in texts
        ]
        cleaned = stack.enter_context(closing(map_ordered(clean, parts, data.workers)))
        kept = 0
        for pair in chain.from_iterable(cleaned):
            kept += 1
            for side, file in zip(pair, (opened[0], opened[-1]), strict=True):
                file.write(f"{one_line(side)}\n")
    if kept < len(sample) / 100:
        raise InputError(
            "too little text is left for the vocabulary: data.cleaning and held-out pairs remove "
            f"{len(sample) - kept:,} of {len(sample):,} pairs; are src and tgt the right way "
            "round, and the filters right for these languages?"
        )
    tags = missing_tags(data)
    for name, text in zip(names, texts, strict=True):
        train = partial(train_tokenizer_on_file, config=job.tokenizer, tags=tags)
        tags = []  # only source lines have them
        # SentencePiece ignores Ctrl-C, so only short trainings run in this process.
        model = run_in_process(train, text) if len(parts) > 1 else train(text)
        text.unlink()
        (folder / name).write_bytes(model)
