"""The training benchmark is fair: its peers compute the same function of the same pairs."""

import argparse
import importlib
import re
from collections import Counter
from itertools import islice

import numpy as np
import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from transformer_mt.batch import IGNORE_INDEX
from transformer_mt.config import ModelConfig, OptimizerConfig
from transformer_mt.data.batching.micro_batches import collate
from transformer_mt.data.store.token_store import Side, TokenStore
from transformer_mt.data.subwords.tokenizer import EOS, PAD
from transformer_mt.distributed.world import World
from transformer_mt.errors import InputError
from transformer_mt.model.transformer import Transformer
from transformer_mt.training.flops import update_flops
from transformer_mt.training.step import TrainStep

peers = importlib.import_module("peers")
bench_train = importlib.import_module("train")

CPU = torch.device("cpu")
VOCABULARY = 29
CONFIG = ModelConfig(
    d_model=16, d_ff=24, num_heads=4, num_encoder_layers=2, num_decoder_layers=3, dropout=0.1
)


def store(src: list[int], tgt: list[int]) -> TokenStore:
    """Random pairs of the given lengths."""
    rng = np.random.default_rng(5)

    def side(lengths: list[int]) -> Side:
        return Side.from_lists([[*rng.integers(4, VOCABULARY, size=n - 1), EOS] for n in lengths])

    return TokenStore(side(src), side(tgt))


def transformer() -> Transformer:
    """A model with random norms and biases, whose initial values could hide a mistake."""
    torch.manual_seed(7)
    model = Transformer(CONFIG, VOCABULARY).eval()
    for name, parameter in model.named_parameters():
        if name.endswith("bias") or "norm" in name:
            parameter.data += 0.3 * torch.randn_like(parameter)
    return model


RAGGED = store([3, 7, 1, 5, 5], [6, 2, 4, 4, 8])
EVEN = store([5, 5, 5], [4, 4, 4])


@pytest.mark.parametrize("groups", [[[0, 1, 2, 3, 4]], [[0, 4], [3, 1, 2]], [[3], [4]]])
@pytest.mark.parametrize("peer_class", ["TorchPeer", "MarianPeer"])
def test_loss_and_gradient_equal_the_peers(peer_class: str, groups: list[list[int]]) -> None:
    if peer_class == "MarianPeer":
        pytest.importorskip("transformers")
    ours = transformer()
    peer = getattr(peers, peer_class)(ours).eval()
    indices = [np.array(group) for group in groups]
    targets = sum(len(RAGGED.tgt[i]) for group in groups for i in group)

    step = TrainStep(ours, OptimizerConfig(), 0.1, "fp32", World(CPU))
    loss = step([collate(RAGGED, indices)], targets, lr=0.0, seed=0).loss
    peer_step = peers.PeerStep(peer, OptimizerConfig(), 0.1, "fp32")
    padded = [peers.PaddedPairs.collate(RAGGED, group) for group in indices]
    peer_loss = peer_step(padded, targets, lr=0.0, seed=0)

    torch.testing.assert_close(loss / targets, peer_loss / targets, rtol=0, atol=1e-5)
    # The gradient of the embedding depends on all layers: output layer and both inputs.
    (embedding,) = (p for p in peer.parameters() if p.shape == (VOCABULARY, CONFIG.d_model))
    torch.testing.assert_close(ours.embedding.weight.grad, embedding.grad, rtol=0, atol=1e-5)


def test_flops_equal_the_count_of_pytorch() -> None:
    peer = peers.TorchPeer(transformer())
    pairs = peers.PaddedPairs.collate(EVEN, np.arange(3))
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        peer.train()(pairs)  # in eval, PyTorch would take a fused encoder that it does not count
    # It counts the forward pass, a third of an update, and what causal attention masks.
    masked = CONFIG.num_decoder_layers * 4 * CONFIG.d_model * 3 * (4 * 3 // 2)
    flops = update_flops(CONFIG, VOCABULARY, EVEN.src.lengths, EVEN.tgt.lengths)
    assert counter.get_total_flops() == flops / 3 + masked


@pytest.mark.parametrize(("batches", "parts"), [("bucket", 1), ("mixed", 8)])
def test_peers_get_the_same_pairs(batches: str, parts: int) -> None:
    lengths = np.random.default_rng(6).integers(2, 20, size=(2, 400))
    pairs = store(*lengths.tolist())
    options = argparse.Namespace(batches=batches, batch_tokens=240, vocab=VOCABULARY)
    for update in islice(bench_train.plan_updates(pairs, options, CONFIG, CPU), 12):
        assert len(update.padded) <= parts
        assert update.tgt_tokens <= 240
        for ours, theirs, count in (
            (update.ours.src.tokens, [p.src for p in update.padded], update.src_tokens),
            (update.ours.tgt_out, [p.tgt_out for p in update.padded], update.tgt_tokens),
        ):
            tokens = Counter(ours.tolist())
            padded = Counter(t for part in theirs for t in part.flatten().tolist())
            for padding in (PAD, IGNORE_INDEX):
                del padded[padding], tokens[padding]
            assert padded == tokens
            assert tokens.total() == count


def test_models_with_different_losses_are_not_measured() -> None:
    options = argparse.Namespace(batches="bucket", batch_tokens=24, vocab=VOCABULARY)
    update = next(bench_train.plan_updates(RAGGED, options, CONFIG, CPU))
    ours, peer = peers.build(["ours-fp32", "torch-fp32"], CONFIG, VOCABULARY, World(CPU))
    bench_train.check_losses([ours, peer], update)
    with torch.no_grad():
        peer.model.transformer.decoder.layers[2].linear2.bias += 0.1
        peer.model.transformer.decoder.layers[2].linear2.bias[::2] -= 0.2
    with pytest.raises(InputError, match=r"per token of torch-fp32 is .* models differ"):
        bench_train.check_losses([ours, peer], update)


def test_report(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    names = ["ours-fp32", "ours-fp32-again", "ours-bf16", "torch-fp32", "torch-bf16"]
    monkeypatch.setattr(bench_train, "read_corpus", lambda *_: RAGGED)
    monkeypatch.setattr(bench_train, "matrix_rate", lambda *_: 1e11)
    common = ["--model", "mini", "--vocab", str(VOCABULARY), "--device", "cpu", "--warmup", "1"]
    bench_train.main([*common, "--rounds", "3", "--variants", ",".join(names)])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 100
    tables = "\n".join(lines).split("Speed-up")
    for part in tables:
        assert re.findall(r"^\| (\w+-\S+)", part, re.MULTILINE) == names
    assert re.search(r"^\| ours-fp32-again +\| \d+\.\d\d \(", tables[1], re.MULTILINE)
