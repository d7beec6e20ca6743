"""Pairs of single words against the formula, and the corpus that gets them."""

import random
from dataclasses import replace
from pathlib import Path

from support.data_jobs import prepare_job, training_text, write_pairs
from support.sample import sample_pairs

from transformer_mt.config import CleaningConfig
from transformer_mt.contrib.words.word_pairs import word_pairs
from transformer_mt.data.prepare import prepare
from transformer_mt.protocols import Pair


def test_words_are_each_others_best_by_the_dice_coefficient() -> None:
    rng, words, pairs = random.Random(1), "abcdefghijkl", list[Pair]()
    for _ in range(150):
        src = rng.choices(words, k=5)
        tgt = [s if s < "g" and rng.random() < 0.6 else rng.choice(words) for s in src]
        pairs.append(Pair(f"First, {' '.join(src)}.", f"Erst: {' '.join(tgt)}!".upper()))
    dice = dict[tuple[str, str], float]()
    for s in words:
        with_s = {i for i, pair in enumerate(pairs) if s in pair.src.split(",")[1]}
        for t in words.upper():
            with_t = {i for i, pair in enumerate(pairs) if t in pair.tgt.split(":")[1]}
            dice[s, t] = 2 * (len(with_s & with_t) - 1) / (len(with_s) + len(with_t))
    best_of_s = {max((pair for pair in dice if pair[0] == s), key=dice.__getitem__) for s in words}
    best = [max((p for p in dice if p[1] == t), key=dice.__getitem__) for t in words.upper()]
    expected = {pair for pair in best if pair in best_of_s and dice[pair] >= 0.3}
    assert 3 < len(expected) < len(words)
    assert set(word_pairs(pairs)) == expected | {(s.upper(), t) for s, t in expected}


def test_a_source_gets_the_words_of_its_sentences_unless_they_are_held_out(tmp_path: Path) -> None:
    zebras = [Pair(f"see {n} zebras", f"sehe {n} Zebras") for n in range(9)]
    texts = sample_pairs("train")[:3000], [*zebras, *[Pair("a b", "c d")] * 2]
    first, second = (write_pairs(tmp_path / f"{i}.tsv", text) for i, text in enumerate(texts))
    more = {"word_pairs": True, "cleaning": CleaningConfig(drop_held_out=True)}
    more["valid"] = [write_pairs(tmp_path / "valid.tsv", [*zebras, Pair("Garden?", "Ja.")])]
    sources = [first, replace(second, tag="<2de>")]
    prepared = prepare(prepare_job(tmp_path, sources, 400, **more))
    words = training_text(prepared)[3000:]
    assert {("book", "Buch"), ("yesterday", "gestern"), ("Yesterday", "Gestern")} <= set(words)
    assert "garden" not in dict(words)
    assert words[-4:] == [("a b", "c d"), ("a b", "c d"), ("b", "d"), ("B", "D")]
    assert prepared.train.source_sizes.tolist() == [[len(words) + 2996, 4]]
    (tag,) = prepared.tokenizer.tags.values()
    assert prepared.train.sample.src[len(words) + 2999][0] == tag
