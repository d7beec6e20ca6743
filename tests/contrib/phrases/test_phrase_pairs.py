"""Pairs of phrases against a known alignment, and the corpus that gets them."""

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from support.data_jobs import prepare_job, training_text, write_pairs
from support.sample import sample_pairs

from transformer_mt.config import CleaningConfig
from transformer_mt.contrib.phrases import phrase_pairs as module
from transformer_mt.contrib.phrases.phrase_pairs import phrase_pairs
from transformer_mt.data.batching.plan import epoch_weights
from transformer_mt.data.prepare import prepare
from transformer_mt.protocols import Pair


def test_phrases_are_all_those_whose_words_are_linked_with_each_other_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_BATCH", 5_000)  # several batches
    rng, pairs, expected = random.Random(1), list[Pair](), Counter[Pair]()
    for _ in range(400):
        words = rng.sample(range(60), rng.randint(3, 12))
        order = sorted(range(len(words)), key=lambda i: i + rng.uniform(0, 3))
        sides = [f"s{w}" for w in words], [f"t{words[i]}" for i in order]
        pairs.append(Pair(*map(" ".join, sides)))
        for a in range(len(words)):
            for b in range(a, min(a + 5, len(words))):
                places = [order.index(i) for i in range(a, b + 1)]
                c, d = min(places), max(places)
                if d - c == b - a < len(words) - 1:
                    phrases = sides[0][a : b + 1], sides[1][c : d + 1]
                    expected[Pair(*map(" ".join, phrases))] += 1
    found = phrase_pairs(pairs)
    assert set(found) == set(expected)
    numbers = [expected[phrase] for phrase in found]
    assert numbers == sorted(numbers, reverse=True)  # the most frequent first
    assert numbers[0] > numbers[-1]


def test_words_are_aligned_without_regard_to_case() -> None:
    known = [
        pair
        for word in "abcdef"
        for pair in (Pair(f"dog {word}", f"hund {word}"), Pair(f"cat {word}", f"kater {word}"))
    ]
    found = phrase_pairs([*known, Pair("DOG CAT", "KATER HUND")])
    assert {("DOG", "HUND"), ("CAT", "KATER")} <= set(found)


def test_phrases_have_up_to_five_words_on_each_side() -> None:
    many = " ".join(f"u{i}" for i in range(7))
    pairs = [Pair(f"{word} foo {word}2", f"t{word} {many} t{word}2") for word in "abcdefgh"]
    for side in zip(*phrase_pairs([*pairs, *(Pair(tgt, src) for src, tgt in pairs)]), strict=True):
        assert 2 < max(len(phrase.split()) for phrase in side) <= 5


def test_phrases_have_words_and_come_from_short_sentences_with_spaces() -> None:
    pairs = [Pair("(a) b!", "(x) y!"), Pair("b a.", "y x."), Pair("A, c!", "X, z!"), Pair("", "y")]
    found = phrase_pairs([*pairs, Pair("c", "z")])
    assert {("a", "x"), ("b", "y"), ("(a)", "(x)")} <= set(found)
    long = Pair(*(" ".join(f"{side}{i}" for i in range(130)) for side in "st"))
    assert phrase_pairs([*pairs, Pair("c", "z"), long]) == found
    assert ("!", "!") not in found
    assert ("b a.", "y x.") not in found
    assert phrase_pairs([Pair("", ""), Pair("...", "word")]) == phrase_pairs([]) == []
    assert phrase_pairs([Pair("a b c", "无效的，字符 类"), Pair("これ、 a", "x y")] * 9) == []


def test_a_corpus_gets_phrases_of_its_sentences_unless_they_are_held_out(tmp_path: Path) -> None:
    zebras = [Pair(f"see {n} zebras", f"sehe {n} Zebras") for n in range(9)]
    few = [*zebras, Pair("a b", "c d"), Pair("a b", "c d"), Pair("m n", "m n")]
    texts = sample_pairs("train")[:3000], few
    first, second = (write_pairs(tmp_path / f"{i}.tsv", text) for i, text in enumerate(texts))
    more = {"phrase_pairs": 0.5, "cleaning": CleaningConfig(drop_held_out=True)}
    more["valid"] = [write_pairs(tmp_path / "valid.tsv", [*zebras, Pair("Garden?", "Ja.")])]
    sources = [first, replace(second, tag="<2de>")]
    job = prepare_job(tmp_path, sources, 400, **more)
    prepared = prepare(job)
    assert (prepared.report["total"], prepared.report["kept"]) == (3012, 3003)  # of sentences
    phrases = training_text(prepared)[3003:]
    assert {("book", "Buch"), ("in the garden", "im Garten")} <= set(phrases)
    assert "garden" not in dict(phrases)
    assert phrases[-2:] == [("a", "c"), ("b", "d")]
    assert prepared.train.source_sizes.tolist() == [[3000, 3, len(phrases) - 2, 2]]
    sizes = [3000, 2, 99, 2]
    assert epoch_weights(job.data, sizes, [500, 100, 800, 200]) == [1.0, 1.0, 0.6, 0.6]
    assert epoch_weights(job.data, sizes, [500, 100, 300, 100]) == []  # each once
    (tag,) = prepared.tokenizer.tags.values()
    tagged = [src[0] == tag for src in prepared.train.sample.src]
    assert tagged == [i in (3000, 3001, 3002, *range(len(tagged))[-2:]) for i in range(len(tagged))]
