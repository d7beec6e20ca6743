"""Subword regularisation keeps the text and follows the distributions of the papers."""

import math
import random
from collections import Counter
from collections.abc import Iterator
from itertools import chain, combinations, repeat
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
from hypothesis import example, given
from hypothesis import strategies as st
from support.stores import rows
from support.tokenizers import WORDS, random_lines, small_tokenizer

from transformer_mt.data.batching.subword_regularization import (
    BPEDropout,
    SubwordRegularizer,
    UnigramSampling,
)
from transformer_mt.data.store.token_store import Side
from transformer_mt.data.subwords.tokenizer import BOS, EOS, PAD, UNK, Tokenizer

DRAWS = 20_000


def encoded(tokenizer: Tokenizer, texts: list[str]) -> Side:
    return Side.from_lists([[*ids, EOS] for ids in tokenizer.encode(texts)])


def sample(tokenizer: Tokenizer, texts: list[str], strength: float, seed: int = 1) -> Side:
    side = encoded(tokenizer, texts)
    rngs = [np.random.default_rng([seed, i]) for i in range(len(texts))]
    return SubwordRegularizer(tokenizer, strength)(side, rngs)


@given(
    texts=st.lists(
        st.text(st.sampled_from("ab Hundäé😀ﬁ½<>\ufeff猫")) | st.sampled_from(random_lines())
    ),
    strength=st.sampled_from([0.05, 0.3, 0.8, 1.0]),
    seed=st.integers(0, 2**32),
)
@example(texts=[50 * "Hausrotebcü"], strength=0.2, seed=1)  # a word of 550 letters
def test_text_is_preserved(
    tokenizer: Tokenizer, texts: list[str], strength: float, seed: int
) -> None:
    drawn = sample(tokenizer, texts, strength, seed)
    assert len(drawn) == len(texts)
    assert drawn.offsets[-1] == len(drawn.tokens)
    assert tokenizer.decode(rows(drawn)) == tokenizer.decode(tokenizer.encode(texts))
    for row in rows(drawn):
        assert row[-1] == EOS
        assert not {PAD, UNK, BOS, EOS}.intersection(row[:-1])


def test_unknown_characters_stay_unknown(tmp_path: Path) -> None:
    tokenizer = small_tokenizer(tmp_path / "m", vocab_size=60, byte_fallback=False)
    texts = ["Haus 猫 Haus", "猫猫", "rot猫Scheune"]
    drawn = sample(tokenizer, texts, 1.0)
    for before, after in zip(rows(encoded(tokenizer, texts)), rows(drawn), strict=True):
        assert before.count(UNK) == after.count(UNK) == 1
        assert tokenizer.decode([before]) == tokenizer.decode([after])  # with a sign for each
    assert tokenizer.pieces(rows(drawn)[0][:5]) == list("▁Haus")


SCORES = {"a": -9.0, "b": -9.0, "c": -9.0, "ab": 0.0, "bc": -1.0, "abc": -2.0, "ca": -3.0}


def bpe_dropout_distribution(word: str, p: float) -> dict[tuple[str, ...], float]:
    """Algorithm 1 of Provilkov et al. by every set of dropped merges at every step."""

    def continue_from(state: tuple[str, ...]) -> Counter[tuple[str, ...]]:
        places = [i for i in range(len(state) - 1) if state[i] + state[i + 1] in SCORES]
        law: Counter[tuple[str, ...]] = Counter()
        for left in chain.from_iterable(combinations(places, n) for n in range(len(places) + 1)):
            chance = (1 - p) ** len(left) * p ** (len(places) - len(left))
            if not left:
                law[state] += chance  # type: ignore[assignment]
                continue
            i = min(left, key=lambda i: (-SCORES[state[i] + state[i + 1]], i))
            merged = (*state[:i], state[i] + state[i + 1], *state[i + 2 :])
            for end, more in continue_from(merged).items():
                law[end] += chance * more  # type: ignore[assignment]
        return law

    return dict(continue_from(tuple(word)))


def unigram_distribution(word: str, alpha: float) -> dict[tuple[str, ...], float]:
    """Every segmentation, by P(x)^α."""

    def segmentations(rest: str) -> Iterator[tuple[str, ...]]:
        if not rest:
            yield ()
        for end in range(1, len(rest) + 1):
            if rest[:end] in SCORES:
                yield from ((rest[:end], *tail) for tail in segmentations(rest[end:]))

    weights = {x: math.exp(alpha * sum(SCORES[piece] for piece in x)) for x in segmentations(word)}
    return {x: weight / sum(weights.values()) for x, weight in weights.items()}


def agree(found: Counter[tuple[str, ...]], law: dict[tuple[str, ...], float]) -> None:
    assert sum(law.values()) == pytest.approx(1)
    assert set(found) <= set(law)
    for segmentation, chance in law.items():
        deviation = math.sqrt(chance * (1 - chance) / DRAWS)
        assert found[segmentation] / DRAWS == pytest.approx(chance, abs=5 * deviation + 1e-4)


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("word", ["ab", "abca", "cabcab"])
def test_bpe_dropout_follows_algorithm_1(word: str, p: float) -> None:
    law, model = bpe_dropout_distribution(word, p), BPEDropout(SCORES, p)
    best = tuple(model.segment(word, repeat(0)))
    counts = np.full(DRAWS, len(word)), np.full(DRAWS, len(best))
    uniform = np.random.default_rng(1).random(DRAWS * len(word))
    changed = model.sample_words(lambda _: word, *counts, uniform)
    found = Counter(tuple(pieces) for _, pieces in changed)
    found[best] += DRAWS - found.total()  # those that are not named stay as they are
    agree(found, law)


@pytest.mark.parametrize("alpha", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("word", ["ab", "abca", "cabcab"])
def test_unigram_sampling_follows_probability_to_the_alpha(word: str, alpha: float) -> None:
    count = np.full(DRAWS, len(word))
    drawn = UnigramSampling(SCORES, alpha).sample_words(
        lambda _: word, count, count, np.random.default_rng(1).random(DRAWS * len(word))
    )
    agree(Counter(tuple(pieces) for _, pieces in drawn), unigram_distribution(word, alpha))


def test_no_dropout_equals_sentencepiece_encoding(tmp_path: Path) -> None:
    bpe = small_tokenizer(tmp_path / "m")
    model = BPEDropout({bpe.pieces([i])[0]: score for i, score in bpe.scores().items()}, 0.0)
    letters = sorted(set("".join(WORDS)))
    draw = random.Random(1)
    words = [*WORDS, *("".join(draw.choices(letters, k=draw.randint(1, 12))) for _ in range(500))]
    for word, ids in zip(words, bpe.encode(words), strict=True):
        assert model.segment("▁" + word, repeat(0)) == bpe.pieces(ids)


def test_unigram_distribution_equals_sentencepieces(tmp_path: Path) -> None:
    """SentencePiece samples from all segmentations, too; it is not seeded, hence the tolerance."""
    tokenizer = small_tokenizer(tmp_path / "m", type="unigram")
    sp = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "m"))
    texts = [word for word in WORDS for _ in range(2000)]
    theirs = sp.encode(texts, enable_sampling=True, alpha=0.2, nbest_size=-1, num_threads=1)
    ours = sample(tokenizer, texts, 0.2)
    for i, word in enumerate(WORDS):
        span = slice(2000 * i, 2000 * (i + 1))
        lengths = np.array([len(ids) for ids in theirs[span]]), ours.lengths[span] - 1
        noise = math.sqrt(sum(np.var(x) for x in lengths) / 2000)
        assert abs(lengths[0].mean() - lengths[1].mean()) <= 7 * noise, word
