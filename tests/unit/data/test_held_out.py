"""Validation and test pairs out of the training sources, against a search through all pairs."""

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from support.data_jobs import prepare_job, training_text, write_pairs
from support.errors import input_error

from transformer_mt.config import CleaningConfig, DataConfig, SourceConfig
from transformer_mt.data.held_out import with_written_sets, write_sets
from transformer_mt.data.prepare import Prepared, prepare
from transformer_mt.data.store import encode
from transformer_mt.data.text.sources import read_pairs
from transformer_mt.protocols import Pair

WORDS = ["red", "blue", "green", "cat", "dog", "sees", "no", "two"]


@pytest.fixture(scope="module")
def corpus() -> list[Pair]:
    """Pairs with repetitions, several translations, other marks and case; and what filters drop."""
    rng = random.Random(5)
    lines = [" ".join(rng.choices(WORDS, k=4)) for _ in range(900)]
    pairs = [Pair(line, f"{line.upper()} {rng.choice('ab')}") for line in lines]
    pairs += [Pair(f"{src.capitalize()}!", tgt) for src, tgt in pairs[:200]]
    pairs += [Pair(tgt, tgt) for _, tgt in pairs[300:400]]
    pairs += [*pairs[:50], Pair("", "leer"), Pair("...", "?"), Pair("cat " * 40, "KATZE"), pairs[3]]
    rng.shuffle(pairs)
    return pairs


def prepared(
    folder: Path, sources: Sequence[Sequence[Pair]], workers: int = 0, **settings: int
) -> Prepared:
    """The prepared data of a job whose training sources are files of these pairs."""
    folder.mkdir()
    train = [write_pairs(folder / f"{n}.tsv", pairs) for n, pairs in enumerate(sources)]
    cleaning = CleaningConfig(max_tokens=40)
    return prepare(prepare_job(folder, train, 330, cleaning=cleaning, workers=workers, **settings))


def folded(text: str) -> str:
    return "".join(filter(str.isalnum, text.casefold()))


def test_no_side_of_a_held_out_pair_stays_in_the_training_data(
    tmp_path: Path, corpus: list[Pair]
) -> None:
    data = prepared(tmp_path / "a", [corpus], valid_pairs=40, test_pairs=30)
    assert (len(data.valid), len(data.test)) == (40, 30)
    assert {*data.valid, *data.test} <= {pair for pair in corpus if pair.src != pair.tgt}
    sides = [folded(side) for pair in (*data.valid, *data.test) for side in pair]
    assert len(sides) == len(set(sides))  # nor in the other set
    expected = [
        pair
        for pair in corpus
        if pair.src and len(pair.src) < 100 and not {*map(folded, pair)} & {*sides}
    ]
    assert training_text(data) == expected
    assert data.report["dropped"]["set_aside"] >= 70


def test_the_choice_depends_on_the_text_alone(
    tmp_path: Path, corpus: list[Pair], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = prepared(tmp_path / "a", [corpus], valid_pairs=40, test_pairs=30)
    parts = [corpus[700:], corpus[:300], corpus[300:700][::-1]]
    monkeypatch.setattr(encode, "CHUNK_PAIRS", 100)
    three = prepared(tmp_path / "b", parts, workers=2, valid_pairs=40, test_pairs=30)
    assert (one.valid, one.test) == (three.valid, three.test)
    assert sorted(training_text(one)) == sorted(training_text(three))
    more = prepared(tmp_path / "c", [corpus], valid_pairs=40, test_pairs=20)
    assert more.test == one.test[:20]
    assert one.fingerprints["corpus"] != more.fingerprints["corpus"]


def test_the_files_of_a_run_are_read_again_as_they_were(tmp_path: Path, corpus: list[Pair]) -> None:
    data = prepared(tmp_path / "a", [corpus], valid_pairs=40, test_pairs=45)
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    config = DataConfig(src_lang="en", tgt_lang="de", valid_pairs=40, test_pairs=45)
    write_sets(run_dir, config, {"valid": data.valid, "test": data.test})
    assert sorted(path.name for path in (run_dir / "data").iterdir()) == [
        "test.de", "test.en", "valid.de", "valid.en",
    ]  # fmt: skip
    given = with_written_sets(config, run_dir)
    assert (given.valid_pairs, given.test_pairs) == (None, None)
    assert list(read_pairs(given.valid, "en", "de")) == data.valid
    assert list(read_pairs(given.test, "en", "de")) == data.test
    assert with_written_sets(config, tmp_path / "exported").test == []


def test_too_few_pairs_are_an_error(tmp_path: Path) -> None:
    pairs = [Pair(f"cat {i}", f"KATZE {i}") for i in range(100)]
    with input_error(r"data\.valid_pairs=26 would hold out more than 25% of the 100 pairs"):
        prepared(tmp_path / "a", [pairs], valid_pairs=26)
    pairs = [Pair(f"cat {i}", f"KATZE {i}" * (1 if i % 4 == 0 else 30)) for i in range(100)]
    with input_error(r"data\.valid_pairs=25: only \d+ of the \d+ pairs drawn"):
        prepared(tmp_path / "b", [pairs], valid_pairs=25)  # most are too long


def test_wrong_settings() -> None:
    data = DataConfig(src_lang="en", tgt_lang="de")
    with input_error(r"data\.test_pairs=0 must be ≥ 1"):
        replace(data, test_pairs=0)
    with input_error(r"leave out data\.valid_pairs, or"):
        replace(data, valid_pairs=5, valid=[SourceConfig(tsv="a")])
