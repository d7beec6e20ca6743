"""Noise on training sources: which pairs get it, what becomes of their tokens, and what stays."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from support.stores import rows, store_of
from support.tokenizers import random_lines, small_tokenizer

from transformer_mt.config import TokenizerConfig
from transformer_mt.contrib.robustness.noise import NOISES, NoiseMix
from transformer_mt.data.batching.pair_sampling import PairSampler, Share
from transformer_mt.data.store.token_store import Side, TokenStore
from transformer_mt.data.subwords.tokenizer import EOS, UNK, Tokenizer
from transformer_mt.data.subwords.vocabulary_training import train_tokenizer
from transformer_mt.data.text.normalization import Normalizer

LINES = [f"{line.lower()}." for line in random_lines(400)]
PLAIN = Normalizer("none", "de", "en")
EVERY = NoiseMix(dict.fromkeys(NOISES, 0.2))


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A vocabulary of texts in both cases, with one tag."""
    path = tmp_path_factory.mktemp("vocabulary") / "m"
    text = [*LINES, *map(str.upper, LINES), "'\"“”„«»’ , ."]
    path.write_bytes(train_tokenizer(text, TokenizerConfig(vocab_size=400), ["<2de>"]))
    return path


def encoded(vocabulary: Path, lines: list[str]) -> TokenStore:
    tokenizer = Tokenizer(vocabulary)
    pairs = zip(tokenizer.encode_sources(lines, PLAIN), tokenizer.encode(lines), strict=True)
    return store_of(([*src, EOS], [*tgt, EOS]) for src, tgt in pairs)


def sampler_of(vocabulary: Path, noise: NoiseMix | None, **changes: object) -> PairSampler:
    sampler = PairSampler(vocabulary, PLAIN, noise, strength=0.0, seed=1, max_length=1000)
    return dataclasses.replace(sampler, **changes)  # type: ignore[arg-type]


def share_of(store: TokenStore, pairs: list[int], step: int = 0) -> Share:
    """Some pairs of an update that has all pairs of a store in order."""
    return Share(step, np.array(pairs), [len(pairs)], store.select(np.array(pairs)))


def sample(sampler: PairSampler, store: TokenStore, step: int = 0) -> TokenStore:
    return sampler(share_of(store, [*range(len(store))], step)).store


def texts(vocabulary: Path, side: Side) -> list[str]:
    return Tokenizer(vocabulary).decode([row[:-1] for row in rows(side)])


@pytest.mark.parametrize("name", [name for name in NOISES if name != "typographic_quotes"])
def test_the_rate_is_the_share_of_pairs_with_noise(vocabulary: Path, name: str) -> None:
    store = encoded(vocabulary, LINES)
    for rate in (0.0, 0.25, 1.0):
        sampler = sampler_of(vocabulary, NoiseMix({name: rate}))
        sampled = sample(sampler, store)
        assert rows(sampled.tgt) == rows(store.tgt)
        noisy = texts(vocabulary, sampled.src)
        expected = {NOISES[name](line, np.random.default_rng(0)) for line in LINES}
        changed = sum(a != b for a, b in zip(noisy, LINES, strict=True))
        if name not in ("typing_errors", "extra_blanks"):  # of which there are many
            assert set(noisy) <= {*LINES, *expected}
        assert changed / len(LINES) == pytest.approx(rate, abs=0.07)
        assert sampler(share_of(store, [3, 1])).num_targets == store.tgt.lengths[[1, 3]].sum()


def test_noise_is_a_function_of_seed_update_and_place(vocabulary: Path) -> None:
    store = encoded(vocabulary, LINES)
    sampler = sampler_of(vocabulary, EVERY, strength=0.1)
    whole = sample(sampler, store, step=2)
    some = [17, 3, 250, 4]
    again = sampler(share_of(store, some, step=2)).store
    for side, part in ((whole.src, again.src), (whole.tgt, again.tgt)):
        assert [rows(side)[i] for i in some] == rows(part)
    others = sample(sampler, store, 3), sample(dataclasses.replace(sampler, seed=2), store, 2)
    for other in others:
        differ = sum(a != b for a, b in zip(rows(other.src), rows(whole.src), strict=True))
        assert differ > len(LINES) / 3


def test_sampled_sources_with_noise_have_their_text_in_other_pieces_and_keep_their_tag(
    vocabulary: Path,
) -> None:
    store = encoded(vocabulary, [f"<2de> {line}" for line in LINES])
    (tag,) = Tokenizer(vocabulary).tags.values()
    every = NoiseMix({"upper_case": 1.0})
    plain, sampled = (sample(sampler_of(vocabulary, every, strength=p), store) for p in (0, 0.5))
    assert rows(plain.src) != rows(sampled.src)
    for side in (plain.src, sampled.src):
        assert texts(vocabulary, side) == [line.upper() for line in LINES]
        assert [row[0] for row in rows(side)] == [tag] * len(LINES)
        assert (side.tokens == tag).sum() == len(LINES)


STANDARD = Normalizer("standard", "en", "de")


@pytest.mark.parametrize(
    ("normalizer", "noise", "line", "expected"),
    [
        (PLAIN, "typographic_quotes", "rote's Haus.", "rote’s Haus."),
        # What normalisation removes in translation has no effect in training.
        (STANDARD, "typographic_quotes", "rote's Haus.", "rote's Haus."),
        (STANDARD, "upper_case", "rote's Haus.", "ROTE'S HAUS."),
    ],
)
def test_noise_is_of_the_text_before_normalisation(
    vocabulary: Path, normalizer: Normalizer, noise: str, line: str, expected: str
) -> None:
    store = encoded(vocabulary, [normalizer.src(line)])
    sampler = sampler_of(vocabulary, NoiseMix({noise: 1.0}), normalizer=normalizer)
    assert texts(vocabulary, sample(sampler, store).src) == [expected]


def test_sources_stay_if_they_would_be_too_long_or_have_lost_characters(tmp_path: Path) -> None:
    tokenizer = small_tokenizer(tmp_path / "m", LINES, vocab_size=90, byte_fallback=False)
    text = ["rote haus", "rot 猫 haus", "rote scheune " * 5]
    store = store_of(([*ids, EOS],) * 2 for ids in tokenizer.encode(text))
    assert UNK in rows(store.src)[1]
    longest = len(rows(store.src)[2])
    sampler = sampler_of(tmp_path / "m", NoiseMix({"extra_blanks": 1.0, "typing_errors": 1.0}))
    sampled = sample(dataclasses.replace(sampler, max_length=longest), store)
    assert rows(sampled.src)[1] == rows(store.src)[1]
    assert rows(sampled.src)[0] != rows(store.src)[0]
    assert sampled.src.lengths.max() <= longest
    short = sample(dataclasses.replace(sampler, max_length=1), store)
    assert rows(short.src) == rows(store.src)


def test_growth_is_mean_and_variance_for_each_token(vocabulary: Path) -> None:
    store = encoded(vocabulary, LINES)
    sampler = sampler_of(vocabulary, NoiseMix({"upper_case": 0.1, "extra_blanks": 0.2}))
    means, variances = sampler.growth(store)
    assert (means[1], variances[1]) == (1, 0)
    before = store.src.lengths.astype(float)
    after = sample(sampler, store).src.lengths  # update 0, which is the estimate's
    assert means[0] == pytest.approx(after.sum() / before.sum())
    # Sums over random sets of pairs deviate from the mean by this much.
    rng, deviations = np.random.default_rng(1), []
    for _ in range(2000):
        pairs = rng.integers(len(store), size=50)
        deviations.append((after[pairs].sum() - means[0] * before[pairs].sum()) ** 2)
    assert np.mean(deviations) == pytest.approx(variances[0] * 50 * before.mean(), rel=0.15)
