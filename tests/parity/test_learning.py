"""Training learns what PyTorch's Transformer layers and Adam learn from the same batches."""

from collections.abc import Iterator
from itertools import chain

import numpy as np
import pytest
import sacrebleu
import torch
from support.stores import store_of
from torch.nn.functional import cross_entropy
from twin import Twin, by_layer, counterpart, sequences

from transformer_mt.config import DecodeConfig, ModelConfig, OptimizerConfig, ScheduleConfig
from transformer_mt.data.batching.micro_batches import micro_batches
from transformer_mt.data.batching.plan import BatchPlan
from transformer_mt.data.subwords.tokenizer import BOS, EOS
from transformer_mt.decode.engines.torch_engine import TorchEngine
from transformer_mt.distributed.world import World
from transformer_mt.model.transformer import Transformer
from transformer_mt.training.optimizer import inverse_sqrt
from transformer_mt.training.step import TrainStep

V, D, SMOOTHING, WARMUP, PEAK, UPDATES = 24, 16, 0.1, 50, 5e-3, 300
ROUNDING = 8 * 2**-52
"""Relative difference of the losses in the first update; it may grow by as much in each other one.
At a learning rate at which training is unstable it would grow exponentially."""


def sentences(count: int) -> list[tuple[list[int], list[int]]]:
    """Random words, and their "translation": each word by another one."""
    rng = np.random.default_rng(3)
    words = [rng.integers(4, V, rng.integers(2, 6)).tolist() for _ in range(count)]
    return [([*src, EOS], [*(4 + 7 * w % (V - 4) for w in src), EOS]) for src in words]


def greedy(twin: Twin, src: list[int]) -> list[int]:
    """The most probable next token, again and again, from the whole prefix each time."""
    tokens: list[int] = []
    while len(tokens) < len(src) + 5:
        _, logits = twin([torch.tensor(src)], [torch.tensor([BOS, *tokens])])
        best = int(logits[-1, EOS:].argmax()) + EOS  # special symbols are never generated
        if best == EOS:
            break
        tokens.append(best)
    return tokens


def bleu(hypotheses: list[list[int]], references: list[list[int]]) -> float:
    lines = [[" ".join(map(str, line)) for line in side] for side in (hypotheses, references)]
    return float(sacrebleu.corpus_bleu(lines[0], [lines[1]], tokenize="none").score)


@pytest.fixture(autouse=True)
def _float64() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def test_losses_and_translations_after_300_updates_equal_pytorch() -> None:
    torch.manual_seed(1)
    config = ModelConfig(
        d_model=D, d_ff=32, num_heads=2, num_encoder_layers=1, num_decoder_layers=1, dropout=0.0
    )
    model = Transformer(config, V)
    twin, pairs = Twin(model), sentences(1040)
    step = TrainStep(model, OptimizerConfig(), SMOOTHING, "fp32", World(torch.device("cpu")))
    # The twin also has biases that the paper does not have: they are not trained, and stay zero.
    trained = {counterpart(name, D)[0] for name, _, _ in by_layer(model)}
    adam = torch.optim.Adam(
        [parameter for name, parameter in twin.named_parameters() if name in trained],
        lr=1.0, betas=(0.9, 0.98), eps=1e-9,
    )  # fmt: skip
    rate = torch.optim.lr_scheduler.LambdaLR(
        adam, lambda n: PEAK * min((n + 1) / WARMUP, (WARMUP / (n + 1)) ** 0.5)
    )
    plan = BatchPlan(store_of(pairs[:1000]), 150, seed=1)
    schedule = ScheduleConfig(name="inverse_sqrt", warmup_steps=WARMUP, peak_lr=PEAK)
    losses: list[tuple[float, float]] = []
    for number in range(UPDATES):
        batch = plan[number]
        parts = micro_batches(batch, 100)
        lr = inverse_sqrt(number + 1, schedule, D, UPDATES)
        ours = step(parts, batch.num_targets, lr, seed=number).loss / batch.num_targets
        sides = ([part.src for part in parts], [part.tgt_in for part in parts])
        src, tgt_in = ([*chain.from_iterable(map(sequences, side))] for side in sides)
        _, logits = twin(src, tgt_in)
        targets = torch.cat([part.tgt_out for part in parts])
        theirs = cross_entropy(logits, targets, label_smoothing=SMOOTHING)
        adam.zero_grad()
        theirs.backward()
        adam.step()
        rate.step()
        losses.append((ours.item(), theirs.item()))
    for number, (one, other) in enumerate(losses, 1):
        assert abs(one / other - 1) <= ROUNDING * number
    assert losses[-1][1] < losses[0][1] / 2  # it learns

    test = pairs[1000:]
    torch.set_default_dtype(torch.float32)
    engine = TorchEngine([model.eval()], DecodeConfig(beam_size=1, max_extra_tokens=5))
    found = [best[0].tokens for best in engine.search([src[:-1] for src, _ in test], 1)]
    with torch.inference_mode():
        expected = [greedy(twin, src) for src, _ in test]
    assert found == expected
    references = [tgt[:-1] for _, tgt in test]
    assert bleu(found, references) == bleu(expected, references) > 50
