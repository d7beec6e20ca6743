"""Training of a vocabulary: reproducible, on all of the text, and refused with advice."""

import hashlib
import random

import pytest
from support.errors import input_error
from support.tokenizers import random_lines

from transformer_mt.config import TokenizerConfig
from transformer_mt.data.store.workers import run_in_process
from transformer_mt.data.subwords.vocabulary_training import reservoir_sample, train_tokenizer


def digests(seeds: tuple[int, ...]) -> list[list[str]]:
    """For each kind and size of sample, the vocabulary of each seed."""
    draw = random.Random(1)
    # Lines that share few words, so that another sample is another vocabulary.
    text = ["".join(draw.choices("abcdefg h", k=12)) for _ in range(800)]
    rows = []
    for kind, size in (("bpe", 120), ("bpe", 800), ("unigram", 120)):
        config = TokenizerConfig(type=kind, vocab_size=290)
        samples = [reservoir_sample(text, size, seed) for seed in seeds]
        models = [train_tokenizer(sample, config) for sample in samples]
        rows.append([hashlib.sha256(model).hexdigest() for model in models])
    return rows


def test_a_seed_gives_one_vocabulary() -> None:
    """In this and another process, after another seed, with all the text and with a sample."""
    first = digests((1, 2, 1))
    for (one, two, again), sampled in zip(first, (True, False, True), strict=True):
        assert one == again
        assert (one != two) == sampled  # the seed only chooses the sample
    assert [[two, one] for one, two, _ in first] == run_in_process(digests, (2, 1))


@pytest.mark.parametrize("size", [1, 9, 11])
def test_a_reservoir_holds_a_uniform_sample(size: int) -> None:
    samples = [reservoir_sample(iter(range(10)), size, seed) for seed in range(3000)]
    assert all(len(set(sample)) == min(size, 10) for sample in samples)
    counts = [sum(item in sample for sample in samples) / 3000 for item in range(10)]
    assert counts == pytest.approx([min(1, size / 10)] * 10, abs=0.05)
    assert reservoir_sample(range(10), size, 1) == samples[1]


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_an_impossible_size_is_an_error_with_advice(kind: str) -> None:
    for size, advice in (
        (8, r"is smaller .* 8 vs \d+\. Increase vocab_size or decrease character_coverage .*"),
        (5000, r"too high .* to a value <= \d+\."),
    ):
        with input_error(rf"tokenizer\.vocab_size={size}: Vocabulary size {advice} model=auto"):
            train_tokenizer(random_lines(), TokenizerConfig(vocab_size=size, type=kind))
    for text in ([], ["", " ", "\t", "\u2028"], ["long " * 1000]):
        with input_error(": every line is empty or too long$"):
            train_tokenizer(text, TokenizerConfig(type=kind))
