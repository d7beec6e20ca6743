"""Cleaned text: filters of one side and of pairs, duplicates, and interrupted runs."""

import random
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from clean_text import write_clean_text
from support.tokenizers import small_tokenizer

from transformer_mt.config import (
    CleaningConfig,
    DataConfig,
    SourceConfig,
    TokenizerConfig,
    TrainJob,
)
from transformer_mt.data.prepare import prepare
from transformer_mt.data.store import encode
from transformer_mt.data.subwords.tokenizer import Tokenizer
from transformer_mt.errors import InputError

WORDS = ["Haus", "Füchse", "springt", "rot", "über"]
STRICT = CleaningConfig(
    max_tokens=30, drop_garbled=True, drop_markup=True, deduplicate="pairs", drop_held_out=True
)


def lines(count: int, seed: int) -> list[str]:
    """Random lines, some of which repeat, are blank, too long, garbled or markup."""
    rng = random.Random(seed)
    odd = ["", "\u200b ", "Haus " * 40, "Haus\x07", "<b>rot</b>", "Ã¼ber"]
    return [
        rng.choice(odd) if rng.random() < 0.2 else " ".join(rng.choices(WORDS, k=rng.randint(1, 4)))
        for _ in range(count)
    ]


@pytest.fixture
def vocabulary(tmp_path: Path) -> Path:
    small_tokenizer(tmp_path / "vocabulary.model")
    return tmp_path / "vocabulary.model"


def data_of(text: Path, **changes: object) -> DataConfig:
    valid = text.with_name("valid.tsv")
    valid.write_text("house\tRot, über Haus!\n", encoding="utf-8")
    config = DataConfig(
        src_lang="en",
        tgt_lang="de",
        train=[SourceConfig(src=str(text), tgt=str(text))],
        valid=[SourceConfig(tsv=str(valid))],
        cleaning=STRICT,
        workers=0,
    )
    return replace(config, **changes)


def test_monolingual_text_against_a_plain_loop(
    tmp_path: Path, vocabulary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encode, "CHUNK_PAIRS", 17)
    text = tmp_path / "mono.de"
    given = [*lines(400, seed=1), "rot über haus", "rot über Haus rot"]
    text.write_text("".join(f"{line}\n" for line in given), encoding="utf-8")
    report = write_clean_text(data_of(text), [tmp_path / "out.de"], vocabulary)

    tokenizer, expected = Tokenizer(vocabulary), dict[str, None]()
    for line in given:
        bad = not line.strip("\u200b ") or any(c in line for c in "\x07<Ã")
        held_out = line.lower() == "rot über haus"
        if not bad and not held_out and len(tokenizer.encode(line)) < 30:
            expected[line] = None
    assert (tmp_path / "out.de").read_text("utf-8").splitlines() == list(expected)
    assert (report.total, report.kept) == (len(given), len(expected))
    assert report.dropped["set_aside"] == sum(line.lower() == "rot über haus" for line in given)
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == set()


def test_pairs_are_those_that_training_reads(
    tmp_path: Path, vocabulary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encode, "CHUNK_PAIRS", 17)
    sources, targets = lines(300, seed=2), lines(300, seed=3)
    for name, side in (("a.en", sources), ("a.de", targets)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in side), encoding="utf-8")
    train = [SourceConfig(src=str(tmp_path / "a.en"), tgt=str(tmp_path / "a.de"))]
    cleaning = replace(STRICT, max_ratio=1, drop_identical=True)
    data = data_of(tmp_path / "a.de", train=train, cleaning=cleaning)
    outputs = [tmp_path / "out.en", tmp_path / "out.de"]
    report = write_clean_text(data, outputs, vocabulary)

    job = TrainJob(
        cache_dir=str(tmp_path / "cache"),
        data=data,
        tokenizer=TokenizerConfig(path=str(vocabulary)),
    )
    prepared = prepare(job)
    store = prepared.train.sample
    for side, path in ((store.src, outputs[0]), (store.tgt, outputs[1])):
        text = path.read_text("utf-8").splitlines()
        stored = [side.tokens[a : b - 1].tolist() for a, b in pairwise(side.offsets)]
        assert list(map(Tokenizer(vocabulary).encode, text)) == stored
    assert report.to_json() == prepared.report


def test_nothing_is_left_after_an_error(tmp_path: Path, vocabulary: Path) -> None:
    text = tmp_path / "mono.de"
    text.write_text("".join(f"{line}\n" for line in lines(60, seed=4)), encoding="utf-8")
    data = replace(data_of(text), tgt_lang="ru", cleaning=replace(STRICT, min_script_share=1))
    before = sorted(tmp_path.iterdir())
    with pytest.raises(InputError, match="nothing is left"):
        write_clean_text(data, [tmp_path / "out"], vocabulary)
    assert sorted(tmp_path.iterdir()) == before
