"""Preparation and its cache: reuse, invalidation by settings, and concurrent builds."""

import dataclasses
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from support.data_jobs import changed, prepare_job, write_pairs
from support.errors import input_error

from transformer_mt.config import CleaningConfig, TrainConfig, TrainJob
from transformer_mt.data import prepare as prepare_module
from transformer_mt.data.prepare import prepare
from transformer_mt.data.store import encode
from transformer_mt.data.subwords.tokenizer import EOS, Tokenizer
from transformer_mt.protocols import Pair

WORDS = ["red", "blue", "green", "cat", "dog", "sees"]
ODD = [Pair("", "leer"), Pair("twice", "doppelt"), Pair("twice", "doppelt"), Pair("x" * 3000, "y")]


def sentences(count: int, seed: int) -> list[Pair]:
    rng = random.Random(seed)
    lines = [" ".join(rng.choices(WORDS, k=5)) for _ in range(count)]
    return [Pair(line, line.upper()) for line in lines]


@pytest.fixture
def job(tmp_path: Path) -> TrainJob:
    texts = {
        "train": [*sentences(80, seed=1), *ODD],
        "valid": [*sentences(5, seed=2), *ODD],
        "test": [*ODD, *sentences(5, seed=3)],
    }
    sets = {name: [write_pairs(tmp_path / f"{name}.tsv", texts[name])] for name in texts}
    cleaning = CleaningConfig(max_tokens=64, deduplicate="pairs")
    job = prepare_job(tmp_path, sets.pop("train"), 305, cleaning=cleaning, workers=None, **sets)
    return dataclasses.replace(job, train=TrainConfig(max_tokens_per_device=64))


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the steps that run instead of finding their result in the cache, in order."""
    names: list[str] = []
    for name in ("_learn_vocabulary", "encode_corpus"):
        real = getattr(prepare_module, name)

        def spy(*args: Any, _real: Any = real, _name: str = name) -> None:
            names.append(_name)
            _real(*args)

        monkeypatch.setattr(prepare_module, name, spy)
    return names


def test_validation_and_test_sets_are_never_cleaned(job: TrainJob) -> None:
    prepared = prepare(job)
    assert prepared.valid == [*sentences(5, seed=2), *ODD]
    assert prepared.test == [*ODD, *sentences(5, seed=3)]
    tokenizer = Tokenizer(prepared.tokenizer_model)
    encoded = prepared.valid_store
    assert len(encoded) == 9
    assert encoded.src[5].tolist() == [EOS]  # an empty line is an empty sequence
    assert len(encoded.src[8]) > 64
    assert tokenizer.decode(encoded.tgt[6][:-1].tolist()) == "doppelt"


def test_fingerprints_identify_the_data(job: TrainJob, tmp_path: Path) -> None:
    before = prepare(job).fingerprints
    assert set(before) == {"corpus", "valid", "test"}
    write_pairs(tmp_path / "valid.tsv", sentences(4, seed=2))
    after = prepare(job).fingerprints
    assert {key for key in before if before[key] != after[key]} == {"valid"}


BOTH = ["_learn_vocabulary", "encode_corpus"]
CHANGES: dict[str, tuple[str, dict[str, Any], list[str]]] = {
    "the model": ("model", {"d_model": 64}, []),
    "the number of updates": ("train", {"max_steps": 7}, []),
    "the training seed": ("train", {"seed": 2}, []),
    "the number of processes": ("data", {"workers": 1}, []),
    "the maximum length": ("data.cleaning", {"max_tokens": 32}, ["encode_corpus"]),
    "the maximum ratio": ("data.cleaning", {"max_ratio": 3.0}, ["encode_corpus"]),
    "de-duplication": ("data.cleaning", {"deduplicate": None}, ["encode_corpus"]),
    "held-out filtering": ("data.cleaning", {"drop_held_out": True}, ["encode_corpus"]),
    "a text filter": ("data.cleaning", {"drop_repetitive": True}, BOTH),
    "noise": ("data", {"augment": "standard"}, BOTH),
    "the normalisation": ("data", {"normalization": "nfc"}, BOTH),
    "the size of the vocabulary": ("tokenizer", {"vocab_size": 300}, BOTH),
    "the kind of vocabulary": ("tokenizer", {"type": "unigram"}, BOTH),
    "the languages": ("data", {"src_lang": "nl"}, BOTH),
}


def test_a_changed_setting_rebuilds_only_what_depends_on_it(
    job: TrainJob, built: list[str]
) -> None:
    prepare(job)
    assert built == BOTH
    for setting, (part, change, expected) in CHANGES.items():
        built.clear()
        prepare(changed(job, part, **change))
        assert built == expected, setting
    built.clear()
    corpus = prepare(job).corpus  # the first entries are still cached
    assert built == []
    (corpus / encode.REPORT).write_text("{")
    with input_error(f"is damaged: .*; delete {corpus}, and it will be built again"):
        prepare(job)


def test_noise_depends_on_the_seed(job: TrainJob, built: list[str]) -> None:
    job = changed(job, "data", augment="standard")
    first = prepare(job)
    built.clear()
    assert prepare(changed(job, "train", seed=2)).corpus != first.corpus
    assert built == ["encode_corpus"]
    built.clear()
    assert prepare(job).corpus == first.corpus
    assert built == []


def test_an_existing_vocabulary_is_used_unchanged(
    job: TrainJob, built: list[str], tmp_path: Path
) -> None:
    given = tmp_path / "given.model"
    given.write_bytes(prepare(job).tokenizer_model.read_bytes())
    built.clear()
    prepared = prepare(changed(job, "tokenizer", path=str(given), vocab_size=999))
    assert prepared.tokenizer_model == given
    assert built == []  # same vocabulary content, so the encoded corpus is the same


def test_runs_that_start_together_build_once(job: TrainJob, built: list[str]) -> None:
    """Each opens the locks, which processes exclude each other with, for itself."""
    with ThreadPoolExecutor(2) as threads:
        one, two = threads.map(prepare, [job, job])
    assert (one.corpus, one.fingerprints) == (two.corpus, two.fingerprints)
    assert one.train.source_sizes.sum() == 81
    assert built == BOTH


def test_a_large_corpus_is_divided_into_shards(
    job: TrainJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encode, "CHUNK_PAIRS", 10)
    job = changed(job, "data", workers=0)
    whole = prepare(job)
    pairs = int(whole.train.source_sizes.sum())
    for shard_pairs, shards in ((pairs // 2 + 1, 1), (pairs // 2, 2), (pairs // 4, 4)):
        prepared = prepare(changed(job, "data", shard_pairs=shard_pairs))
        assert len(prepared.train.shards) == shards
        assert prepared.train.source_sizes.sum() == pairs
        assert (prepared.fingerprints == whole.fingerprints) == (shards == 1)


def test_nothing_left_is_an_error(job: TrainJob, tmp_path: Path) -> None:
    with input_error(r"nothing is left .*: 84 pairs read; .* 83 length"):
        prepare(changed(job, "data.cleaning", max_tokens=2))
    assert not [p for p in (tmp_path / "cache").glob("corpus-*") if p.suffix == ""]
    write_pairs(tmp_path / "train.tsv", [Pair("", ""), Pair(" ", "x")])
    with input_error(r"too little text is left .* remove 2 of 2 pairs"):
        prepare(job)


@pytest.mark.parametrize("part", ["train", "test"])
def test_an_empty_file_is_an_error(job: TrainJob, part: str, tmp_path: Path) -> None:
    """Even beside others: a download has failed."""
    sources = [*getattr(job.data, part), write_pairs(tmp_path / "none.tsv", [])]
    with input_error(r"none\.tsv} has no pairs: leave it out, or download"):
        prepare(changed(job, "data", **{part: sources}))


def test_a_source_of_which_nothing_is_left_is_reported(
    job: TrainJob, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    again = write_pairs(tmp_path / "again.tsv", sentences(80, seed=1)[:9])  # duplicates
    prepare(changed(job, "data", train=[*job.data.train, again], workers=0))
    warnings = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert warnings == [f"warning: cleaning drops all pairs of {again}"]


def test_an_error_in_the_small_sets_is_reported_before_encoding(
    job: TrainJob, built: list[str], tmp_path: Path
) -> None:
    (tmp_path / "test.tsv").write_text("no tab\n")
    with input_error(r"test.tsv, line 1"):
        prepare(job)
    assert built == []
