"""Ensembles and scores of given translations against formulas over whole sequences; batches."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.errors import input_error
from support.models import make_translator, random_lines, random_model, uncached

from transformer_mt.batch import Batch, Packed
from transformer_mt.config import DecodeConfig
from transformer_mt.data.subwords.tokenizer import BOS, EOS, Tokenizer
from transformer_mt.decode.engine import length_penalty
from transformer_mt.decode.engines.torch_engine import TorchEngine, map_batches
from transformer_mt.errors import InputError
from transformer_mt.model.transformer import Transformer
from transformer_mt.training.loss import smoothed_cross_entropy


@pytest.fixture(scope="module")
def models() -> list[Transformer]:
    """Two models of different shapes and weights."""
    other, generator = random_model(norm="pre", d_k=5), torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.3)
    return [random_model(), other]


def mean(models: list[Transformer], source: list[int], prefix: list[int]) -> list[float]:
    """The mean of two models' probabilities of the next token, as logarithms."""
    rows = [uncached(model, source)(tuple(prefix)) for model in models]
    return [
        math.log((math.exp(a) + math.exp(b)) / 2) if a > -1e9 else a
        for a, b in zip(*rows, strict=True)
    ]


@torch.inference_mode()
def test_ensemble_averages_probabilities(tokenizer: Tokenizer, models: list[Transformer]) -> None:
    config = DecodeConfig(beam_size=1, max_extra_tokens=2)
    both = make_translator(models[0], tokenizer, config, ensemble=models[1:])
    lines = random_lines(6, 4, seed=4)
    single = make_translator(models[0], tokenizer, config).translate(lines)
    differ = 0
    for line, (found,), alone in zip(lines, both.translate_nbest(lines, 1), single, strict=True):
        source = tokenizer.encode(line)
        prefix: list[int] = []
        values = []
        while True:
            row = mean(models, source, prefix)
            word = EOS if len(prefix) == len(source) + 2 else max(range(330), key=row.__getitem__)
            values.append(row[word])
            if word == EOS:
                break
            prefix.append(word)
        assert found.pieces == tokenizer.pieces([*prefix, EOS])
        assert found.piece_log_probs == pytest.approx(values, abs=1e-4)
        (scored,) = both.engine.score([source], [prefix])
        assert scored == pytest.approx(values, abs=1e-4)
        assert found.score == pytest.approx(sum(values) / length_penalty(len(values), 0.6))
        differ += found.text != alone
    assert differ


@pytest.mark.parametrize("batch_tokens", [40, 8192])
def test_scores_of_given_translations_equal_the_training_loss(
    tokenizer: Tokenizer, models: list[Transformer], batch_tokens: int
) -> None:
    """Without smoothing, as training computes it; the sum is −nll."""
    sources, targets = random_lines(9, 8, seed=1), random_lines(9, 12, seed=2)
    sources[3] = targets[5] = ""
    config = DecodeConfig(batch_tokens=batch_tokens)
    found = make_translator(models[0], tokenizer, config).score(sources, targets)
    assert [t.text for t in found] == targets
    encoded = map(tokenizer.encode, sources), map(tokenizer.encode, targets)
    for src, tgt, scored in zip(*encoded, found, strict=True):
        out = torch.tensor([*tgt, EOS])
        batch = Batch(
            Packed.from_sequences([[*src, EOS]]), Packed.from_sequences([[BOS, *tgt]]), out
        )
        with torch.no_grad():
            weight = models[0].embedding.weight
            loss, nll = smoothed_cross_entropy(models[0](batch), weight, out, 0.0)
        assert [-nll.item(), -loss.item()] == pytest.approx([scored.log_prob] * 2, rel=1e-4)
        assert sum(scored.piece_log_probs) == pytest.approx(scored.log_prob)
        assert scored.pieces == tokenizer.pieces([*tgt, EOS])
        assert scored.tokens == len(tgt) == len(scored.piece_log_probs) - 1
        assert scored.score == pytest.approx(scored.log_prob / length_penalty(len(tgt) + 1, 0.6))


def test_texts_beyond_the_positions_are_refused(tokenizer: Tokenizer) -> None:
    model = random_model(positions="learned", max_positions=10)
    translator = make_translator(model, tokenizer, DecodeConfig())
    with pytest.raises(InputError, match="tokens exceeds the 9 positions of this model"):
        translator.score(["a " * 40], ["a"])
    with pytest.raises(InputError, match="tokens exceeds the 9 positions of this model"):
        translator.translate_nbest(["a"], 1, prefixes=["a " * 40])


SIZES = st.lists(st.integers(1, 50), max_size=40)


@given(SIZES, st.integers(1, 200), st.integers(50, 400))
def test_every_item_is_processed_once_within_limit_and_memory(
    sizes: list[int], tokens: int, memory: int
) -> None:
    done: list[list[int]] = []

    def work(batch: list[int]) -> list[int]:
        longest = max(sizes[i] for i in batch)
        assert len(batch) == 1 or longest * len(batch) <= tokens
        assert longest == sizes[batch[0]]
        if longest * len(batch) > memory:
            raise torch.OutOfMemoryError
        done.append(batch)
        return [10 * i for i in batch]

    assert map_batches(work, sizes, tokens) == [10 * i for i in range(len(sizes))]
    flat = [i for batch in done for i in batch]
    assert sorted(flat) == list(range(len(sizes)))
    assert [sizes[i] for i in flat] == sorted(sizes, reverse=True)


def test_single_sentence_that_does_not_fit() -> None:
    def work(batch: list[int]) -> list[int]:
        if 0 in batch:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return batch

    with pytest.raises(InputError, match="a single sentence of 9 tokens"):
        map_batches(work, [9, 3, 3], 1000)


def test_a_beam_of_more_than_half_the_vocabulary_is_rejected(models: list[Transformer]) -> None:
    TorchEngine(models, DecodeConfig(beam_size=165))
    with input_error("beam_size=166: this vocabulary allows at most 165"):
        TorchEngine(models, DecodeConfig(beam_size=166))
