"""The preparation pipeline: deterministic over processes, and clean after kills and errors."""

import dataclasses
import pickle
import random
import signal
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.data_jobs import changed, prepare_job, training_text, write_pairs
from support.errors import input_error
from support.fake_hub import read_files
from support.polling import wait_until
from support.stores import rows
from support.tokenizers import random_lines, small_tokenizer

from transformer_mt.config import CleaningConfig, TrainJob
from transformer_mt.data.prepare import prepare
from transformer_mt.data.store import encode
from transformer_mt.data.store.encode import find_first
from transformer_mt.data.subwords.tokenizer import EOS
from transformer_mt.data.text.normalization import Normalizer
from transformer_mt.protocols import Pair

CHUNK = 7
"""Pairs in a chunk."""


def corpus(count: int, seed: int) -> list[Pair]:
    """Pairs with many duplicates, also of one side; some are empty, some long."""
    rng = random.Random(seed)
    sides = [" ".join(rng.choices(["red", "blue", "cat", "dog"], k=3)) for _ in range(count // 3)]
    pairs = [Pair(rng.choice(sides), rng.choice(sides).upper()) for _ in range(count)]
    for place in range(0, count, 10):
        pairs[place] = rng.choice([Pair("", "x"), Pair("a " * 120 + "a", "y"), *pairs[:3]])
    return pairs


FIRST, SECOND, HELD_OUT = corpus(150, seed=1), corpus(60, seed=2), corpus(9, seed=3)


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TrainJob:
    monkeypatch.setattr(encode, "CHUNK_PAIRS", CHUNK)
    sources = [write_pairs(tmp_path / "a.tsv", FIRST), write_pairs(tmp_path / "b.tsv.gz", SECOND)]
    valid = [write_pairs(tmp_path / "valid.tsv", HELD_OUT)]
    cleaning = CleaningConfig(max_tokens=100, deduplicate="pairs")
    return prepare_job(tmp_path, sources, 295, valid=valid, cleaning=cleaning)


def elsewhere(job: TrainJob) -> TrainJob:
    """The job with an empty cache."""
    return dataclasses.replace(job, cache_dir=f"{job.cache_dir}-other")


def left_in_cache(job: TrainJob) -> set[str]:
    """Kinds of files in the cache, except complete vocabularies and locks."""
    paths = Path(job.cache_dir).glob("*")
    return {path.suffix or path.name.partition("-")[0] for path in paths} - {".lock", "tokenizer"}


def usable() -> list[Pair]:
    """The pairs that the filters of single pairs keep, in order, computed independently."""
    return [p for p in FIRST + SECOND if p.src.strip() and len(p.src) < 100]


def first_of_each(pairs: list[Pair], *keys: Any) -> list[Pair]:
    for key in keys:
        seen: dict[Any, Pair] = {}
        for pair in pairs:
            seen.setdefault(key(pair), pair)
        pairs = list(seen.values())
    return pairs


def test_training_reads_sources_as_translation_does(tmp_path: Path) -> None:
    """Also with a vocabulary that lacks their marks, here a byte order mark and a joiner."""
    tokenizer = small_tokenizer(tmp_path / "given.model")
    pairs = [Pair(f"\ufeff{line} a\u200db", f"{line}\ufeff") for line in random_lines(40)]
    job = prepare_job(tmp_path, [write_pairs(tmp_path / "a.tsv", pairs)], 290)
    job = changed(job, "tokenizer", path=str(tmp_path / "given.model"))
    train = prepare(job).train.sample
    expected = [tokenizer.encode_source(src, Normalizer(job.data)) for src, _ in pairs]
    assert [[*ids, EOS] for ids in expected] == rows(train.src)
    assert rows(train.src)[0] == [*tokenizer.encode(f"{random_lines()[0]} ab"), EOS]
    assert list(map(tokenizer.decode, rows(train.tgt))) == [tgt for _, tgt in pairs]


@pytest.mark.parametrize(
    ("deduplicate", "key"),
    [(None, None), ("pairs", lambda pair: pair), ("sources", lambda pair: pair.src)],
)
def test_duplicates_are_found_across_chunks(
    job: TrainJob, deduplicate: str | None, key: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encode, "LOOK_UP", 10)
    prepared = prepare(changed(job, "data.cleaning", deduplicate=deduplicate))
    kept = first_of_each(usable(), key) if key else usable()
    assert training_text(prepared) == kept
    report = prepared.report
    assert report["total"] == len(FIRST) + len(SECOND)
    assert report["kept"] == len(kept) == report["total"] - sum(report["dropped"].values())
    assert report["dropped"].get("duplicate", 0) == len(usable()) - len(kept)


def test_duplicates_take_little_memory(tmp_path: Path) -> None:
    pairs = 2_000_000
    np.random.default_rng(1).integers(0, 2**63, pairs, np.uint64).tofile(tmp_path / "hashes")
    tracemalloc.start()
    try:
        assert find_first(tmp_path / "hashes").all()
        assert tracemalloc.get_traced_memory()[1] < 12 * pairs
    finally:
        tracemalloc.stop()


def test_examples_have_location_and_text(job: TrainJob) -> None:
    report = prepare(job).report
    assert set(report["examples"]) == {"empty", "length"}
    lines = {"a.tsv": FIRST, "b.tsv.gz": SECOND}
    for name, examples in report["examples"].items():
        assert len(examples) == min(5, report["dropped"][name])
        for example in examples:
            assert len(example["src"]) < 210
            file, _, line = example["where"].rpartition(":")
            pair = lines[Path(file).name][int(line) - 1]
            assert pair.src.startswith(example["src"].removesuffix("…"))
            assert example["tgt"] == pair.tgt


def test_held_out_pairs_are_dropped(job: TrainJob, tmp_path: Path) -> None:
    parts = {"valid": HELD_OUT[::2], "test": HELD_OUT[1::2]}
    sources = {name: [write_pairs(tmp_path / name, part)] for name, part in parts.items()}
    prepared = prepare(
        changed(changed(job, "data", **sources), "data.cleaning", drop_held_out=True)
    )
    # Case-insensitive: the target sides are the source sides in capitals.
    known = {side.lower() for pair in HELD_OUT for side in pair if side.strip()}
    seen = [p for p in usable() if known & {p.src.lower(), p.tgt.lower()}]
    kept = [p for p in first_of_each(usable(), lambda p: p) if p not in seen]
    assert training_text(prepared) == kept
    assert prepared.report["dropped"]["set_aside"] == len(seen) > 5


def test_neither_processes_nor_chunks_change_the_result(
    job: TrainJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = changed(job, "data.cleaning", deduplicate="sources", drop_held_out=True)
    job = changed(job, "data", shard_pairs=9)
    alone = prepare(job)
    assert len(alone.train.shards) > 3
    for workers, chunk in ((2, CHUNK), (0, 1), (0, 10_000)):
        monkeypatch.setattr(encode, "CHUNK_PAIRS", chunk)
        job = elsewhere(changed(job, "data", workers=workers))
        other = prepare(job)
        assert other.corpus != alone.corpus
        assert read_files(other.corpus) == read_files(alone.corpus)
        assert other.tokenizer_model.read_bytes() == alone.tokenizer_model.read_bytes()


def test_long_lines_make_small_chunks(job: TrainJob, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encode, "CHUNK_CHARACTERS", 40)
    chunks = list(encode.read_chunks(job.data, "read"))
    assert [pair for chunk in chunks for pair in chunk.pairs] == FIRST + SECOND
    for chunk in chunks:
        text = (FIRST, SECOND)[chunk.source]
        assert chunk.pairs == text[chunk.first_row - 1 : chunk.first_row - 1 + len(chunk.pairs)]
        assert sum(len(side) for pair in chunk.pairs[:-1] for side in pair) < 40


def test_text_is_normalised_before_it_is_compared_and_encoded(
    job: TrainJob, tmp_path: Path
) -> None:
    pair = next(pair for pair in FIRST if "a" in pair.src)
    write_pairs(tmp_path / "valid.tsv", [Pair(pair.src.replace("a", "&#97;"), "x")])
    last = [Pair("&amp; so", "“so”"), Pair("& so", '"so"')]
    train = [*job.data.train, write_pairs(tmp_path / "c.tsv", last)]
    job = changed(job, "data.cleaning", drop_held_out=True)
    prepared = prepare(changed(job, "data", train=train, normalization="standard"))
    left = [p for p in usable() if pair.src not in (p.src, p.tgt.lower())]
    assert training_text(prepared) == [*first_of_each(left, lambda p: p), last[1]]
    assert prepared.train.sample.source_sizes[-1] == 1


SLOW = f"""
import pickle, sys, time
from transformer_mt.data.prepare import prepare
from transformer_mt.data.store import encode
encode.CHUNK_PAIRS = {CHUNK}
def slowly(*arguments, read=encode.read_chunks):
    for chunk in read(*arguments):
        time.sleep(0.1 * (chunk.first_row > 1))
        yield chunk
encode.read_chunks = slowly
prepare(pickle.loads(bytes.fromhex(sys.argv[1])))
"""


def test_a_killed_preparation_starts_again_and_leaves_nothing(job: TrainJob) -> None:
    argument = pickle.dumps(changed(job, "data", workers=2)).hex()
    command = [sys.executable, "-c", SLOW, argument]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    cache = Path(job.cache_dir)
    wait_until(lambda: [*cache.glob(".corpus-*/*/src.tokens")] or process.poll() is not None)
    process.kill()
    _, errors = process.communicate(timeout=30)  # of its workers, too, which end by themselves
    assert process.returncode == -signal.SIGKILL, errors
    assert "corpus" not in left_in_cache(job)
    assert list(cache.glob(".corpus-*"))
    prepared = prepare(job)
    assert left_in_cache(job) == {"corpus"}
    assert read_files(prepared.corpus) == read_files(prepare(elsewhere(job)).corpus)


def test_a_cache_that_cannot_be_written(job: TrainJob, tmp_path: Path) -> None:
    message = r"cannot write the cache \(Not a directory: .*cache.*\): set XDG_CACHE_HOME"
    with input_error(message):
        prepare(dataclasses.replace(job, cache_dir=str(tmp_path / "a.tsv" / "cache")))
