"""The training step and beam search on a GPU: speed and memory.

    python scripts/bench/gpu.py                            both parts, in about 3 minutes
    python scripts/bench/gpu.py --only update              one of them
    python scripts/bench/gpu.py --device cpu --tiny        a rehearsal on a CPU, in seconds

Trains the paper's base model in bf16, with 37,000 pieces, on random pairs with lengths like WMT's,
through the code that mt-train runs, and translates with random weights, each translation as long as
its reference. The parts, in this order:

    update    whole updates of 25,000 target tokens; the share of one of 8 GPUs; memory of a token
    decode    beam search in bf16 and in fp32

Each result is printed as it comes, as JSON on one line. A part that fails does not stop the others.
An update takes 9.6 TFLOP (scripts/reproduce_wmt14): utilisation (MFU) is that over "ms" and the
peak rate of the device.
"""

import argparse
import gc
import json
import statistics
import sys
import time
import traceback
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np
import shared
import torch
from torch import Tensor
from torch._dynamo.utils import counters

from transformer_mt.batch import IGNORE_INDEX, Batch, Packed
from transformer_mt.config import DecodeConfig, ModelConfig, OptimizerConfig
from transformer_mt.data.batching.batch_iterator import prefetch
from transformer_mt.data.batching.plan import BatchPlan
from transformer_mt.data.batching.static_batches import buffered_batches, plan_buffers
from transformer_mt.data.store.token_store import Side, TokenStore
from transformer_mt.data.subwords.tokenizer import BOS, EOS
from transformer_mt.decode.engine import BATCH_TOKENS
from transformer_mt.decode.engines.torch_engine import ModelStep, map_batches
from transformer_mt.decode.search.beam_search import beam_search
from transformer_mt.distributed.world import World, pick_device
from transformer_mt.model.transformer import Transformer, for_inference
from transformer_mt.training.setup import default_max_tokens
from transformer_mt.training.step import TrainStep

Result = dict[str, Any]
SMOOTHING = 0.1
RANKS = 8
"""Number of GPUs that share an update in the second measurement."""


@dataclass(frozen=True)
class Scale:
    """Size of the model, the data, and the measurements."""

    model: ModelConfig
    vocab_size: int
    pairs: int
    mean_length: float
    max_length: int
    batch_tokens: int
    """Target tokens per update."""
    warmup: int
    updates: int
    repeats: int
    sentences: int
    """Number of sentences to translate."""


PAPER = Scale(ModelConfig(), 37_000, 400_000, 28.0, 250, 25_000, 5, 30, 5, 8192)
_TINY_MODEL = ModelConfig(
    d_model=32, d_ff=64, num_heads=4, num_encoder_layers=2, num_decoder_layers=2
)
TINY = Scale(_TINY_MODEL, 101, 300, 8.0, 24, 320, 2, 2, 3, 6)


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    print(shared.heading(), flush=True)
    scale = TINY if options.tiny else PAPER
    bench = Bench(scale, pick_device(options.device), make_pairs(scale))
    failed = []
    for part in options.only:
        started = time.monotonic()
        try:
            for result in PARTS[part](bench):
                write(part, result)
                if not result.get("ok", True):
                    failed.append(f"{part}: the loss is not finite")
        except Exception as error:
            traceback.print_exc()
            write(part, {"failed": repr(error)})
            failed.append(part)
        if bench.on_gpu:
            with suppress(RuntimeError):  # a failed part may have left the GPU unusable
                torch.cuda.empty_cache()
        print(f"{part}: {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
    if failed:
        sys.exit(f"gpu.py: error: failed: {'; '.join(failed)}")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = shared.argument_parser(__doc__)
    add = parser.add_argument
    add("--only", default=",".join(PARTS), help="parts, separated by commas (default: all)")
    add("--device", default="auto", choices=("auto", "cpu", "cuda"), help="default: auto")
    add("--tiny", action="store_true", help="a tiny model and few updates, to test the program")
    options = parser.parse_args(arguments)
    options.only = shared.split_names(options.only, [*PARTS])
    return options


def write(part: str, result: Result) -> None:
    """Prints a result with four digits of its numbers."""
    rounded = {k: float(f"{v:.4g}") if isinstance(v, float) else v for k, v in result.items()}
    print(json.dumps({"part": part, **rounded}), flush=True)


@dataclass(frozen=True)
class Bench:
    """Scale, device and data of all parts."""

    scale: Scale
    device: torch.device
    store: TokenStore

    @property
    def on_gpu(self) -> bool:
        """Whether to compile steps, which takes long on a CPU, and to measure memory."""
        return self.device.type == "cuda"

    def synchronize(self) -> None:
        """Waits until the device is idle."""
        if self.on_gpu:
            torch.cuda.synchronize(self.device)

    def peak_bytes(self) -> int:
        """Peak memory of a GPU since the last call, which resets it."""
        if not self.on_gpu:
            return 0
        peak = torch.cuda.max_memory_allocated(self.device)
        torch.cuda.reset_peak_memory_stats(self.device)
        return peak


def make_pairs(scale: Scale, seed: int = 1) -> TokenStore:
    """Random pairs with lengths like WMT's; the token of rank r has a frequency of about 1 / r."""
    rng = np.random.default_rng(seed)
    spread = 0.6  # standard deviation of the log length
    src = rng.lognormal(np.log(scale.mean_length) - spread**2 / 2, spread, scale.pairs)
    tgt = src * 1.05 * (1 + 0.2 * rng.standard_normal(scale.pairs))

    def side(lengths: Any) -> Side:
        lengths = np.clip(np.rint(lengths), 2, scale.max_length).astype(np.int64)
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        pieces = scale.vocab_size - EOS - 1
        tokens = (EOS + pieces ** rng.random(offsets[-1], np.float32)).astype(np.uint16)
        tokens[offsets[1:] - 1] = EOS
        return Side(tokens, offsets)

    return TokenStore(side(src), side(tgt))


# Updates.


def update(bench: Bench) -> Iterator[Result]:
    """Updates of one GPU, of one of several, and from both the memory of a token."""
    found = []
    for ranks in (1, RANKS):
        result = measure_updates(bench, ranks)
        found.append(result)
        yield {"GPUs": ranks, **result, "ok": isfinite(result["loss"])}
    whole, share = found
    tokens = whole["tokens in a buffer"] - share["tokens in a buffer"]
    config = bench.scale.model
    layers = config.num_encoder_layers + config.num_decoder_layers
    bytes_per_token = (whole["peak bytes"] - share["peak bytes"]) / max(1, tokens)
    yield {
        "bytes for a token of either side": bytes_per_token,
        "for each layer and dimension": bytes_per_token / (layers * config.d_model),
    }


def measure_updates(bench: Bench, ranks: int) -> Result:
    """Times the updates of one of ``ranks`` GPUs."""
    scale, device = bench.scale, bench.device
    torch._dynamo.reset()
    gc.collect()  # a compiled step is part of a cycle, and would count in this one's memory
    torch.manual_seed(1)
    model = Transformer(scale.model, scale.vocab_size).to(device)
    plan = BatchPlan(bench.store, scale.batch_tokens, seed=1)
    compiled_vocab = scale.vocab_size if bench.on_gpu else None
    max_tokens = default_max_tokens(scale.model, device, compiled_vocab)
    shape = plan_buffers(plan, bench.store.max_length, max_tokens, ranks)
    model.embedding.reserve(shape.max_length)
    world, adam = World(device), OptimizerConfig()
    step = TrainStep(model, adam, SMOOTHING, "bf16", world, compiled=bench.on_gpu)

    def read() -> Generator[list[Batch], None, None]:
        for number in range(1 + scale.warmup + scale.repeats * scale.updates):
            parts = buffered_batches(plan[number], shape, 0, ranks)
            yield [part.pin_memory() for part in parts] if bench.on_gpu else parts

    def run(updates: int) -> tuple[float, int, float]:
        """Seconds, target tokens, and loss per token of the last update."""
        bench.synchronize()
        targets, started = 0, time.perf_counter()
        for seed in range(updates):
            parts = next(reader)
            number = sum(int((part.tgt_out != IGNORE_INDEX).sum()) for part in parts)
            loss = step(parts, number * ranks, 1e-4, seed).loss
            targets += number
        bench.synchronize()
        return time.perf_counter() - started, targets, loss.item() / number

    with closing(prefetch(read())) as reader:
        first, *_ = run(1)
        run(scale.warmup)
        graphs = counters["stats"]["unique_graphs"]
        bench.peak_bytes()
        runs = [run(scale.updates) for _ in range(scale.repeats)]
    seconds, targets, losses = zip(*runs, strict=True)
    rates = [number / spent for number, spent in zip(targets, seconds, strict=True)]
    return {
        "ms": 1e3 * statistics.median(seconds) / scale.updates,
        "min ms": 1e3 * min(seconds) / scale.updates,
        "max ms": 1e3 * max(seconds) / scale.updates,
        "target tokens/s": statistics.median(rates),
        "peak bytes": bench.peak_bytes(),
        "seconds of the first update": first,
        "graphs compiled after the warm-up": counters["stats"]["unique_graphs"] - graphs,
        "tokens in a buffer": shape.tgt_tokens,
        "loss": losses[-1],
    }


# Decoding.


class ForcedStep(ModelStep):
    """Steps of a random model; each translation is made as long as its reference."""

    def __init__(self, model: Transformer, src: Packed, limits: list[int], beam_size: int):
        super().__init__([model], src, beam_size)
        self._limits = torch.tensor(limits, device=src.tokens.device)[:, None]

    def step(self, tokens: Tensor, parents: Tensor) -> Tensor:
        too_early = self._limits != self._states[0].position
        log_probs = super().step(tokens, parents)
        log_probs[..., EOS].masked_fill_(too_early, -torch.inf)
        return log_probs

    def keep(self, sentences: Sequence[int]) -> None:
        super().keep(sentences)
        self._limits = self._limits[list(sentences)]


def decode(bench: Bench) -> Iterator[Result]:
    """Times beam search as in §6.1, in batches of the engine's own choice."""
    for dtype in [torch.bfloat16, torch.float32] if bench.on_gpu else [torch.float32]:
        if bench.on_gpu:
            search(bench, dtype)  # loads kernels
        yield search(bench, dtype)


@torch.inference_mode()
def search(bench: Bench, dtype: torch.dtype) -> Result:
    """Translates all sentences."""
    scale, device, store = bench.scale, bench.device, bench.store
    torch.manual_seed(1)
    model = for_inference(Transformer(scale.model, scale.vocab_size).to(device).eval(), dtype)
    config, batch_tokens = DecodeConfig(), BATCH_TOKENS[device.type]

    def translate(batch: list[int]) -> list[int]:
        src = Packed.from_sequences([store.src[i] for i in batch]).to(device)
        limits = [len(store.tgt[i]) - 1 for i in batch]
        found = beam_search(
            ForcedStep(model, src, limits, config.beam_size),
            limits,
            beam_size=config.beam_size,
            alpha=config.length_penalty,
            bos=BOS,
            eos=EOS,
            device=device,
        )
        return [len(best.tokens) for (best,) in found]

    sizes = [len(store.src[i]) * config.beam_size for i in range(scale.sentences)]
    bench.synchronize()
    bench.peak_bytes()
    started = time.perf_counter()
    tokens = sum(map_batches(translate, sizes, batch_tokens))
    bench.synchronize()
    seconds = time.perf_counter() - started
    return {
        "dtype": str(dtype).removeprefix("torch."),
        "tokens in a batch": batch_tokens,
        "seconds": seconds,
        "output tokens": tokens,
        "output tokens/s": tokens / seconds,
        "peak bytes": bench.peak_bytes(),
    }


PARTS = {"update": update, "decode": decode}


if __name__ == "__main__":
    shared.run_main(main)
