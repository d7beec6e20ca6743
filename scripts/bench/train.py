"""Training speed on a CPU, compared with PyTorch's and Hugging Face's Transformer on real text.

    python scripts/bench/train.py --model base
    python scripts/bench/train.py --model tiny --variants ours-fp32,torch-fp32 --rounds 15

One process holds all variants. They start from the same weights and must have the same loss. In
each round every variant then does one update (forward, backward, Adam) on the same pairs, which
are of similar length, so that the peers hardly need padding; the order rotates. The report has
medians over rounds of paired ratios; ours-fp32-again is the noise floor. All models are post-norm,
as in the paper and in MarianMT. Collating the batches is not timed. On Linux, freed memory is kept
for reuse as in mt-train, which speeds up the peers too.
"""

import argparse
import getpass
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import shared
import torch
from peers import MarianPeer, PaddedPairs, TorchPeer, model_config, peer_adam, peer_loss
from torch import Tensor, nn

from transformer_mt import compose
from transformer_mt.batch import Batch
from transformer_mt.cli.compose import override
from transformer_mt.config import ModelConfig, OptimizerConfig
from transformer_mt.data.batching.micro_batches import collate
from transformer_mt.data.batching.plan import CHUNKS_PER_BATCH, BatchPlan
from transformer_mt.data.prepare import prepare
from transformer_mt.data.store.token_store import TokenStore
from transformer_mt.distributed.world import World, join
from transformer_mt.errors import InputError
from transformer_mt.model.transformer import Transformer
from transformer_mt.training.step import TrainStep

VARIANTS = [
    "ours-fp32", "ours-fp32-again", "ours-bf16",
    "torch-fp32", "torch-bf16", "marian-fp32", "marian-bf16",
]  # fmt: skip
SMOOTHING = 0.1
LEARNING_RATE = 1e-4
WARMUP = 2
"""Updates of each variant that are not timed."""
LOSS_TOLERANCE = {"fp32": 1e-4, "bf16": 2e-2}
"""Maximum relative difference of a variant's first loss from that of the first variant."""
CPU = torch.device("cpu")


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    config = model_config(options.model)
    store = read_corpus(options)
    with join(CPU) as world:
        updates = plan_updates(store, options.batch_tokens)
        variants = build(options.variants, config, options.vocab, world)
        check_losses(variants, next(updates))
        works = measure(variants, updates, options.rounds)
    print(report(variants, works, options))


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = shared.argument_parser(__doc__)
    add = parser.add_argument
    shared.add_model(parser, "base")
    shared.add_corpus(parser)
    add("--vocab", type=int, default=8000, help="pieces of the vocabulary (default: 8000)")
    add("--batch-tokens", type=int, default=4096, help="target tokens per update (default: 4096)")
    add("--variants", default=",".join(VARIANTS), help="separated by commas (default: all)")
    add("--rounds", type=int, default=7, help="rounds (default: 7)")
    options = parser.parse_args(arguments)
    options.variants = shared.split_names(options.variants, VARIANTS)
    for name in options.variants:
        if name.startswith("marian"):
            shared.require("transformers", f"--variants: {name}")
    shared.check_positive(options, "batch_tokens", "rounds")
    return options


def read_corpus(options: argparse.Namespace) -> TokenStore:
    """Encodes the training text with a vocabulary learned from it; cached in a temporary folder."""
    train, valid = shared.CORPORA[options.corpus](options.data)
    cache = Path(tempfile.gettempdir()) / f"mt-bench-{getpass.getuser()}"
    settings = [override("cache_dir", cache), f"tokenizer.vocab_size={options.vocab}"]
    job = compose([*shared.data_settings(train, valid), *settings])
    return prepare(job).train.sample


# Updates.


@dataclass(frozen=True)
class Update:
    """The pairs of one update, collated for our model and for the peers."""

    ours: Batch
    padded: PaddedPairs
    tgt_tokens: int
    """Number of target tokens, without padding."""


def plan_updates(store: TokenStore, batch_tokens: int) -> Iterator[Update]:
    """Yields updates forever: the chunks of training's batches, each of pairs of similar length."""
    plan = BatchPlan(store, batch_tokens * CHUNKS_PER_BATCH, seed=1)
    for step in count():
        for pairs in plan[step].chunks:
            ours = collate(store, pairs)
            tgt_tokens = int(store.tgt.lengths[pairs].sum())
            yield Update(ours, PaddedPairs.collate(store, pairs), tgt_tokens)


# The variants.


@dataclass
class Variant:
    """A model and how to update it."""

    name: str
    model: nn.Module
    step: Callable[[Update, float, int], Tensor]
    """(pairs, learning rate, seed) → the loss, summed over target tokens."""
    loss: float = 0.0
    """Loss per target token before any update."""
    seconds: list[float] = field(default_factory=list)
    """Seconds of each round."""

    @property
    def precision(self) -> str:
        return self.name.split("-")[1]


def build(names: list[str], config: ModelConfig, vocab_size: int, world: World) -> list[Variant]:
    """All variants, with the same initial weights."""
    torch.manual_seed(1)
    initial = Transformer(config, vocab_size)
    return [build_one(name, initial, world) for name in names]


def build_one(name: str, initial: Transformer, world: World) -> Variant:
    kind, precision = name.split("-")[:2]
    if kind == "ours":
        model = Transformer(initial.config, initial.vocab_size)
        model.load_state_dict(initial.state_dict())
        step = TrainStep(model, OptimizerConfig(), SMOOTHING, precision, world)

        def update(work: Update, lr: float, seed: int) -> Tensor:
            return step([work.ours], work.tgt_tokens, lr, seed).loss

        return Variant(name, model, update)
    peer = TorchPeer(initial) if kind == "torch" else MarianPeer(initial)
    optimizer = peer_adam(peer, 0.0)

    def peer_update(work: Update, lr: float, seed: int) -> Tensor:
        torch.manual_seed(seed)
        optimizer.param_groups[0]["lr"] = lr
        optimizer.zero_grad()
        loss = peer_loss(peer, work.padded, SMOOTHING, precision, "sum")
        (loss / work.tgt_tokens).backward()
        optimizer.step()
        return loss.detach()

    return Variant(name, peer.train(), peer_update)


def check_losses(variants: list[Variant], work: Update) -> None:
    """Checks that all variants have the same loss on the same pairs, without dropout."""
    for variant in variants:
        variant.model.eval()
        # Learning rate 0 runs the code that is timed but leaves the weights unchanged.
        variant.loss = variant.step(work, 0.0, 0).item() / work.tgt_tokens
        variant.model.train()
        expected = variants[0].loss
        tolerance = max(LOSS_TOLERANCE[each.precision] for each in (variant, variants[0]))
        if not abs(variant.loss - expected) <= tolerance * expected:
            raise InputError(
                f"the loss per token of {variant.name} is {variant.loss:.5f}, that of "
                f"{variants[0].name} {expected:.5f}: the models differ, so nothing is measured"
            )


def measure(variants: list[Variant], updates: Iterator[Update], rounds: int) -> list[Update]:
    """Times an update of every variant in each round; returns the updates of the rounds."""
    for seed in range(WARMUP):
        work = next(updates)
        for variant in variants:
            variant.step(work, LEARNING_RATE, seed)
    works = []
    for number in range(rounds):
        work = next(updates)
        works.append(work)
        for variant in shared.rotated(variants, number):
            started = time.perf_counter()
            variant.step(work, LEARNING_RATE, number)
            variant.seconds.append(time.perf_counter() - started)
        print(f"round {number + 1} of {rounds}", file=sys.stderr)
    return works


def report(variants: list[Variant], works: list[Update], options: argparse.Namespace) -> str:
    """A Markdown table of the variants, with the speed of ours relative to each."""
    targets = [work.tgt_tokens for work in works]
    ours = [v for v in variants if v.name.startswith("ours") and not v.name.endswith("again")]
    head = ["variant", "loss/token", "target tokens/s"]
    head += [f"{mine.name} ÷ it" for mine in ours]
    rows = []
    for variant in variants:
        speeds = [n / s for n, s in zip(targets, variant.seconds, strict=True)]
        row = [variant.name, f"{variant.loss:.5f}", f"{statistics.median(speeds):,.0f}"]
        for mine in ours:
            ratios = [b / a for a, b in zip(mine.seconds, variant.seconds, strict=True)]
            row.append("–" if mine is variant else shared.spread(ratios))
        rows.append(row)
    note = (
        f"{options.model}, post-norm, {options.vocab:,} pieces; {options.rounds} updates of about "
        f"{options.batch_tokens:,} target tokens of {options.corpus}. Losses: on the same pairs "
        "and weights, without dropout, before any update. Ratios: median and extremes over the "
        "rounds."
    )
    return "\n".join([shared.heading(), shared.wrap(note), "", shared.table(head, rows)])


if __name__ == "__main__":
    shared.run_main(main)
