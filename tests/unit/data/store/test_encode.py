"""Copies of the training data, with noise."""

from functools import partial
from pathlib import Path

import pytest
from support.data_jobs import prepare_job, write_pairs
from support.stores import rows
from support.tokenizers import random_lines, small_tokenizer

from transformer_mt.config import CleaningConfig, DataConfig, SourceConfig
from transformer_mt.contrib.robustness.noise import RATES, some_noise
from transformer_mt.data.prepare import Prepared, prepare
from transformer_mt.data.store.encode import Chunk, EncodeChunk
from transformer_mt.data.store.token_store import Side, TokenStore
from transformer_mt.data.subwords.tokenizer import EOS, Tokenizer
from transformer_mt.protocols import Pair, PairNoise

LINES = [f"{line.lower()}." for line in random_lines(400)]
EVERY = partial(some_noise, rates=dict.fromkeys(RATES, 0.2))


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A vocabulary of texts in both cases, with one tag."""
    path = tmp_path_factory.mktemp("vocabulary") / "m"
    text = [*LINES, *map(str.upper, LINES), "'\"“”„«»’ , ."]
    small_tokenizer(path, text, ["<2de>"], vocab_size=400)
    return path


def encoder(
    vocabulary: Path,
    noise: PairNoise | None,
    *,
    seed: int = 1,
    max_tokens: int = 200,
    normalization: str = "none",
) -> EncodeChunk:
    """A worker task with any mix of noise."""
    data = DataConfig(
        src_lang="en",
        tgt_lang="de",
        train=[SourceConfig(src="a", tgt="b")],
        cleaning=CleaningConfig(max_tokens=max_tokens),
        normalization=normalization,
        augment="none" if noise is None else "standard",
    )
    task = EncodeChunk(data, vocabulary, seed=seed)
    for cleaner in task._cleaners:
        cleaner.noise = noise
    return task


def encode(task: EncodeChunk, lines: list[str], first_row: int = 1) -> TokenStore:
    """The pairs of each line with itself."""
    arrays = task(Chunk(0, first_row, [Pair(line, line) for line in lines])).arrays
    src, tgt = (
        Side.from_lengths(arrays[f"{side}.tokens"], arrays[f"{side}.lengths"])
        for side in ("src", "tgt")
    )
    return TokenStore(src, tgt)


def texts(vocabulary: Path, side: Side) -> list[str]:
    assert {row[-1] for row in rows(side)} == {EOS}
    tokenizer = Tokenizer(vocabulary)
    return [tokenizer.decode(row[:-1]) for row in rows(side)]


def test_noise_is_a_function_of_seed_and_pair(vocabulary: Path) -> None:
    task = encoder(vocabulary, EVERY)
    sources = rows(encode(task, LINES).src)
    for start in (0, 100, 399):  # whatever the chunks
        alone = rows(encode(task, LINES[start : start + 7], first_row=start + 1).src)
        assert alone == sources[start : start + 7]
    other = rows(encode(encoder(vocabulary, EVERY, seed=2), LINES).src)
    assert sum(x != y for x, y in zip(sources, other, strict=True)) > len(LINES) / 3


def test_tags_are_not_changed(vocabulary: Path) -> None:
    task = encoder(vocabulary, partial(some_noise, rates={"upper_case": 1.0}))
    encoded = encode(task, [f"<2de> {line}" for line in LINES])
    source = encoded.src
    (tag,) = task.tokenizer.tags.values()
    assert [row[0] for row in rows(source)] == [tag] * len(LINES)
    assert (source.tokens == tag).sum() == len(LINES)
    assert texts(vocabulary, source) == [line.upper() for line in LINES]
    assert texts(vocabulary, encoded.tgt) == [f"<2DE> {line}".upper() for line in LINES]


def test_noise_is_added_before_normalisation(vocabulary: Path) -> None:
    """What normalisation removes in translation has no effect in training."""
    for noise, normalization, expected in (
        ("typographic_quotes", "none", "rote’s Haus."),
        ("typographic_quotes", "standard", "rote's Haus."),
        ("upper_case", "standard", "ROTE'S HAUS."),
    ):
        always = partial(some_noise, rates={noise: 1.0})
        task = encoder(vocabulary, always, normalization=normalization)
        assert texts(vocabulary, encode(task, ["rote's Haus."]).src) == [expected]


def test_a_pair_that_would_be_too_long_stays_as_it_is(tmp_path: Path) -> None:
    vocabulary = tmp_path / "m"
    small_tokenizer(vocabulary, LINES)  # which spells capitals in bytes
    clean = encode(encoder(vocabulary, None), LINES)
    longest = int(clean.src.lengths.max())
    noise = partial(some_noise, rates={"upper_case": 0.9})
    noisy = encode(encoder(vocabulary, noise, max_tokens=longest), LINES)
    assert max(noisy.src.lengths.max(), noisy.tgt.lengths.max()) <= longest
    sides = [
        [a == b for a, b in zip(rows(found), rows(given), strict=True)]
        for found, given in ((noisy.src, clean.src), (noisy.tgt, clean.tgt))
    ]
    assert sides[0] == sides[1]
    assert 0 < sum(sides[0]) < len(sides[0])


def prepared_with(folder: Path, **data: object) -> Prepared:
    lines = [*LINES, "", LINES[0], "a " * 300]
    sets = {"train": lines, "valid": LINES[:20], "test": LINES[20:40]}
    sources = {
        name: [write_pairs(folder / f"{name}.tsv", zip(part, part, strict=True))]
        for name, part in sets.items()
    }
    cleaning = CleaningConfig(max_tokens=200, deduplicate="pairs", drop_held_out=True)
    return prepare(
        prepare_job(folder, sources.pop("train"), 340, cleaning=cleaning, **sources, **data)
    )


def test_cleaning_is_done_once_on_clean_text_and_other_sets_have_no_noise(tmp_path: Path) -> None:
    clean = prepared_with(tmp_path)
    noisy = prepared_with(tmp_path, augment="standard")
    assert noisy.report == clean.report
    assert len(noisy.train.sample) == len(clean.train.sample) == clean.report["kept"]
    targets = [texts(data.tokenizer_model, data.train.sample.tgt) for data in (clean, noisy)]
    assert len(set(targets[0])) == len(targets[0])  # the duplicates are gone
    plain = [[text.casefold().rstrip(".") for text in side] for side in targets]
    assert targets[0] != targets[1]
    assert plain[0] == plain[1]
    assert (noisy.valid, noisy.test) == (clean.valid, clean.test)
    for data in (clean, noisy):
        for side in (data.valid_store.src, data.valid_store.tgt):
            assert texts(data.tokenizer_model, side) == LINES[:20]


def test_the_vocabulary_is_learned_from_text_with_noise(tmp_path: Path) -> None:
    """Otherwise capitals would be spelled letter by letter, or here even in bytes."""
    clean, noisy = (prepared_with(tmp_path, augment=name) for name in ("none", "standard"))
    for prepared, are_spelled in ((clean, True), (noisy, False)):
        ids = prepared.tokenizer.encode(LINES[0].upper())
        assert (
            any(piece.startswith("<0x") for piece in prepared.tokenizer.pieces(ids)) is are_spelled
        )
