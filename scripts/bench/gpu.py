"""The training step on a GPU: correctness, speed, and a profile; and the speed of beam search.

    python scripts/bench/gpu.py                            everything, in about 8 minutes
    python scripts/bench/gpu.py --only ours,flex           some parts (ours: with the profile)
    python scripts/bench/gpu.py --device cpu --tiny --no-compile      a test on a CPU, in seconds

Trains the paper's base model in bf16, with 37,000 pieces, on random pairs with lengths like WMT's,
through the code that mt-train runs. The parity checks come first, then the training steps, most
important first. Parts that do not fit into the time limit are skipped; a part that fails is
reported in one line. MFU is relative to the measured rate of a large matrix product.
"""

import argparse
import gc
import json
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gpu_profile import Product, busy_seconds, products, time_by_kind, trace
from gpu_variants import (
    EAGER,
    OURS,
    PAPER,
    TINY,
    VARIANTS,
    WHOLE,
    Row,
    Scale,
    Session,
    Variant,
    flex,
    flex_error,
    make_pairs,
    measure,
)
from peers import SMOOTHING
from reporting import argument_parser, heading, run_main, table
from torch import Tensor
from torch._dynamo.utils import counters
from train import matrix_rate, synchronize, torch_details

from transformer_mt.batch import IGNORE_INDEX, Batch, CuSeqlens, Packed
from transformer_mt.config import DecodeConfig, ModelConfig
from transformer_mt.data.batching.micro_batches import collate
from transformer_mt.data.batching.plan import BatchPlan
from transformer_mt.data.batching.static_batches import BufferShape, fill
from transformer_mt.data.store.token_store import Indices, TokenStore
from transformer_mt.data.subwords.tokenizer import BOS, EOS, PAD, UNK
from transformer_mt.decode.search.beam_search import beam_search
from transformer_mt.distributed.world import pick_device
from transformer_mt.errors import InputError
from transformer_mt.model.transformer import Transformer, for_inference
from transformer_mt.training.step import LossModule, autocast


@dataclass(frozen=True)
class Check:
    """A property of the training step, and whether it holds."""

    name: str
    found: str
    ok: bool


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    device = pick_device(options.device)
    if device.type == "cuda":
        device = torch.device("cuda", 0)
    print(heading(torch_details(device)), flush=True)
    bench = Bench(options, device)
    bench.run()
    print(bench.report())
    if bad := bench.failures():
        sys.exit(f"gpu.py: error: failed checks: {'; '.join(bad)}")


PARTS = [
    "parity", "ours", "ours-3k", "layers", "layers-3k", "graphs-3k", "buckets", "torch", "decode",
    "flex", "residual", "ddp-3k", "torch-compiled",
]  # fmt: skip
"""All parts in order; the quick ones come first."""


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argument_parser(__doc__)
    add = parser.add_argument
    add("--seconds", type=float, default=480, help="time limit (default: 480)")
    add("--only", help=f"parts, separated by commas: {', '.join(PARTS)} (default: all)")
    add("--json", type=Path, help="write all measurements to this file, and a trace next to it")
    add("--device", default="auto", help="cpu, cuda or auto (default: auto)")
    add("--tiny", action="store_true", help="a tiny model and few updates, to test the program")
    add("--no-compile", action="store_true", help="run everything without torch.compile")
    options = parser.parse_args(arguments)
    options.only = options.only.split(",") if options.only else PARTS
    for name in options.only:
        if name not in PARTS:
            raise InputError(f"no part {name!r}; there are: {', '.join(PARTS)}")
    return options


class Bench:
    """Runs the parts in order and collects their results."""

    def __init__(self, options: argparse.Namespace, device: torch.device):
        self._options, self._device = options, device
        self._deadline = time.monotonic() + options.seconds
        self._scale, self._compiled = TINY if options.tiny else PAPER, not options.no_compile
        self._store = make_pairs(self._scale)
        self.rate, self.copied = matrix_rate(device, torch.bfloat16), copy_rate(device)
        self.checks: list[Check] = []
        self.rows: list[Row] = []
        self.decoding: list[Decoding] = []
        self.kinds: dict[str, float] = {}
        self.products: list[Product] = []

    def run(self) -> None:
        """Runs the chosen parts."""
        parts: dict[str, tuple[float, Callable[[], None]]] = {
            "parity": (EAGER, self._parity),
            OURS.name: (WHOLE, self._ours),
            "decode": (EAGER, self._decode),
            **{v.name: (v.seconds, partial(self._train, v)) for v in VARIANTS},
        }
        for name in PARTS:
            if name in self._options.only:
                self._attempt(name, *parts[name])

    def _attempt(self, name: str, seconds: float, part: Callable[[], None]) -> None:
        """Runs a part if there is time; if it fails, adds a row that says so."""
        started, left = time.monotonic(), self._deadline - time.monotonic()
        if left < seconds:
            self.rows.append(Row(name, note=f"skipped: {max(left, 0):.0f} s left"))
            return
        try:
            with alarm(left):
                part()
        except Exception as error:
            traceback.print_exc()
            self.rows.append(Row(name, note=f"failed: {one_line(error)}"))
        gc.collect()
        if self._device.type == "cuda":
            with suppress(RuntimeError):  # a failed part may have left the GPU unusable
                torch.cuda.empty_cache()
        print(f"{name}: {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
        if self._options.json:
            self._options.json.write_text(json.dumps(self._figures(), indent=2))

    def _parity(self) -> None:
        for check in parity(self._store, self._scale, self._device, self._compiled):
            print(f"{check.name}: {check.found}", file=sys.stderr, flush=True)
            self.checks.append(check)

    def _ours(self) -> None:
        with OURS.session(self._store, self._scale, self._device, self._compiled) as session:
            self._measure(OURS.name, OURS.what, session)
            if self._device.type == "cuda":
                self.checks.append(check_no_sync(session))
            self._attempt("profile", EAGER, partial(self._profile, session))

    def _train(self, variant: Variant) -> None:
        with variant.session(self._store, self._scale, self._device, self._compiled) as session:
            if flex in variant.replacements:
                self.checks.append(self._check_flex())
            self._measure(variant.name, variant.what, session)

    def _check_flex(self) -> Check:
        pairs = np.arange(min(128, len(self._store)))
        buffer = spacious(self._store, [pairs]).to(self._device)
        src, tgt = buffer.src.boundaries, buffer.tgt_in.boundaries
        assert isinstance(src, CuSeqlens)
        assert isinstance(tgt, CuSeqlens)
        error = flex_error(src, tgt, self._scale, self._compiled)
        return Check("FlexAttention against varlen, bf16", f"error {error:.1e}", error <= 0.02)

    def _measure(self, name: str, what: str, session: Session) -> None:
        skipped = counters["inductor"]["cudagraph_skips"]
        row = measure(name, session, self._scale, self._device)
        if counters["inductor"]["cudagraph_skips"] > skipped:
            what += "; some of it without CUDA graphs"
        row.note = what
        self.rows.append(row)
        print(f"{name}: {1e3 * row.update_seconds:.2f} ms", file=sys.stderr, flush=True)

    def _profile(self, session: Session) -> None:
        folder = self._options.json.parent if self._options.json else None
        events = trace(session, self._device, folder)
        self.kinds = time_by_kind(events)
        self.kinds["idle"] = max(0.0, self.rows[-1].update_seconds - busy_seconds(events))
        self.products = products(events)

    def _decode(self) -> None:
        # On a CPU, attention computes in fp32.
        settings = [(torch.float32, 2**17, True)]
        if self._device.type == "cuda":
            bf16 = torch.bfloat16
            settings += [(bf16, 2**power, True) for power in (17, 18, 19)] + [(bf16, 2**18, False)]
        run = partial(decode, self._store, self._scale, self._device)
        for setting in settings:
            found = [run(*setting) for _ in range(2)]  # the first one also loads kernels
            self.decoding.append(min(found, key=lambda each: each.seconds))

    # The report.

    def failures(self) -> list[str]:
        """Failed checks, failed essential parts, and losses that are not finite."""
        essential = ("parity", OURS.name)
        return [
            *(check.name for check in self.checks if not check.ok),
            *(f"{r.name} {r.note}" for r in self.rows if r.name in essential and not r.seconds),
            *(f"the loss of {r.name} is {r.loss}" for r in self.rows if not isfinite(r.loss)),
        ]

    def _figures(self) -> dict[str, Any]:
        return {
            "options": {key: str(value) for key, value in vars(self._options).items()},
            "torch": torch.__version__,
            "matrix_rate": self.rate,
            "copy_rate": self.copied,
            "checks": [asdict(check) for check in self.checks],
            "training": [asdict(row) for row in self.rows],
            "seconds_by_kind": self.kinds,
            "products": [asdict(product) for product in self.products],
            "decoding": [asdict(found) for found in self.decoding],
        }

    def report(self) -> str:
        """The report, in Markdown."""
        rates = (
            f"a large matrix product in bf16: {self.rate / 1e12:,.1f} TFLOP/s (100% MFU); "
            f"copy: {self.copied / 1e9:,.0f} GB/s"
        )
        checks = [[c.name, c.found, "ok" if c.ok else "FAILED"] for c in self.checks]
        parts = ["", rates, "", table(["check", "found", ""], checks)]
        parts += ["", table(TRAINING, [self._training(row) for row in self.rows])]
        if self.kinds:
            parts += ["", self._explained()]
        if self.decoding:
            rates_of = ((d.name, d.seconds, d.tokens / d.seconds) for d in self.decoding)
            rows = [[name, f"{s:.1f}", f"{rate:,.0f}"] for name, s, rate in rates_of]
            parts += ["", table(["beam search", "s", "output tokens/s"], rows)]
        return "\n".join(parts)

    def _training(self, row: Row) -> list[str]:
        if not row.seconds:
            return [row.name, *[""] * (len(TRAINING) - 2), row.note[:80]]
        times = [1e3 * seconds / row.updates for seconds in row.seconds]
        return [
            row.name,
            f"{1e3 * row.update_seconds:.2f}",
            f"{min(times):.2f}–{max(times):.2f}",
            f"{row.tokens_per_second:,.0f}",
            f"{row.flops_per_second / self.rate:.1%}",
            f"{row.peak_bytes / 2**30:.1f}",
            f"{row.first_seconds:.0f}",
            str(row.new_graphs),
            f"{row.waiting:.1%}",
            f"{row.waste:.1%}",
            f"{row.loss:.3f}",
            row.note,
        ]

    def _explained(self) -> str:
        """The profile of one update of ours, with its lower bound at the measured matrix rate."""
        ours = next(row for row in self.rows if row.name == OURS.name)
        needed = sum(ours.flops) / len(ours.flops) / ours.updates
        total = sum(self.kinds.values())
        kinds = sorted(self.kinds, key=self.kinds.__getitem__, reverse=True)
        rows = [[k, f"{1e3 * self.kinds[k]:.2f}", f"{self.kinds[k] / total:.1%}"] for k in kinds]
        largest = sorted(self.products, key=lambda p: p.seconds, reverse=True)[:12]
        shapes = [
            [p.shape, f"{p.calls:g}", f"{1e3 * p.seconds:.2f}", f"{p.flops / p.seconds / 1e12:.0f}"]
            for p in largest
        ]
        milliseconds = f"{1e3 * needed / self.rate:.2f} ms"
        floor = f"{milliseconds} = {needed / 1e12:.2f} TFLOP at the measured rate"
        parts = [
            f"One update of {OURS.name}; lower bound: {floor}",
            table(["kind of kernel", "ms", "share"], rows),
            table(["product m × k × n", "calls", "ms", "TFLOP/s"], shapes),
        ]
        return "\n\n".join(parts)


TRAINING = [
    "variant", "ms", "min–max", "target tokens/s", "MFU", "GiB", "1st s", "recompiled", "waiting",
    "waste", "loss", "what",
]  # fmt: skip
"""Columns, per update. GiB: peak memory; 1st s: seconds of the first update, with compilation;
recompiled: graphs compiled after warm-up; waiting: for data; waste: padding and dummies."""


@contextmanager
def alarm(seconds: float) -> Iterator[None]:
    """Raises TimeoutError after this many seconds."""

    def ring(*_: object) -> None:
        raise TimeoutError("no time left")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def one_line(error: Exception) -> str:
    """The error in at most 150 characters."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:150]


def check_no_sync(session: Session) -> Check:
    """Checks that the CPU never waits for the GPU during an update."""
    work, found = session.read(0), "none"
    torch.cuda.set_sync_debug_mode("error")
    try:
        session.update(work, 0)
    except RuntimeError as error:
        found = one_line(error)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return Check("synchronisations in an update", found, found == "none")


def copy_rate(device: torch.device) -> float:
    """Memory bandwidth of a copy on the device in bytes/s, read and written."""
    size, repeats = (2**31, 20) if device.type == "cuda" else (2**22, 2)
    a = torch.randint(0, 255, (size,), dtype=torch.uint8, device=device)
    b = a.clone()
    synchronize(device)
    started = time.perf_counter()
    for _ in range(repeats):
        b.copy_(a)
    synchronize(device)
    return 2 * size * repeats / (time.perf_counter() - started)


# Parity.


def parity(
    store: TokenStore, scale: Scale, device: torch.device, compiled: bool
) -> Iterator[Check]:
    """Compares buffers in bf16 with buckets in fp32, on the same pairs and weights.

    The tolerance is about the error of buckets in bf16, which is that of the precision alone.
    """
    groups = list(BatchPlan(store, scale.batch_tokens // scale.ranks, seed=1)[0].chunks)
    buckets, buffer = collate(store, groups).to(device), spacious(store, groups).to(device)
    yield from compare("eager", random_model(scale, scale.model, device), buckets, buffer, False)
    yield from independent(
        random_model(scale, scale.model, device), buckets, buffer, len(np.concatenate(groups))
    )
    if compiled:
        torch._dynamo.reset()
        shallow = replace(scale.model, num_encoder_layers=2, num_decoder_layers=2)
        model = random_model(scale, shallow, device)
        yield from compare("compiled, 2 layers", model, buckets, buffer, True)


def random_model(scale: Scale, config: ModelConfig, device: torch.device) -> Transformer:
    """A model without dropout, with random norms and biases: initial ones could hide errors."""
    torch.manual_seed(1)
    model = Transformer(replace(config, dropout=0.0), scale.vocab_size)
    for name, parameter in model.named_parameters():
        if name.endswith("bias") or "norm" in name:
            parameter.data += 0.3 * torch.randn_like(parameter)
    return model.to(device)


def spacious(store: TokenStore, groups: list[Indices]) -> Batch:
    """Pairs in a buffer that has room for dummy pairs."""
    pairs = np.concatenate(groups)
    src, tgt = (side.lengths[pairs] for side in (store.src, store.tgt))
    longest = _up(max(src.max(), tgt.max()))
    shape = BufferShape(_up(src.sum() + 130), _up(tgt.sum() + 130), len(pairs) + 6, longest, 1)
    (buffer,) = fill(store, pairs, shape)
    return buffer


def _up(size: int) -> int:
    return -(-int(size) // 64) * 64


def compare(
    name: str, model: Transformer, buckets: Batch, buffer: Batch, compiled: bool
) -> Iterator[Check]:
    """Checks loss and gradients of buffers in bf16 against buckets in fp32."""
    module = LossModule(model, SMOOTHING, "bf16")
    exact_loss, exact = gradients(LossModule(model, SMOOTHING, "fp32"), buckets)
    bf16_loss, bf16 = gradients(LossModule(model, SMOOTHING, "bf16"), buckets)
    if compiled:
        module.compile_for(1)
    loss, grads = gradients(module, buffer)
    finite = all(bool(grad.isfinite().all()) for grad in grads.values())
    yield Check(f"{name}: gradients are finite with NaN in free memory", str(finite), finite)
    for what, got, allowed in (
        ("loss", [abs(x / exact_loss - 1) for x in (loss, bf16_loss)], 1e-3),
        ("gradient", [distance(x, exact) for x in (grads, bf16)], 0.01),
        ("worst parameter's gradient", [worst(x, exact)[0] for x in (grads, bf16)], 0.03),
    ):
        found = f"error {got[0]:.1e}; buckets in bf16: {got[1]:.1e}"
        yield Check(f"{name}: {what}", found, got[0] <= max(2 * got[1], allowed))


Gradients = dict[str, Tensor]


def gradients(module: LossModule, batch: Batch) -> tuple[float, Gradients]:
    """The loss, and its gradients by parameter; free memory is filled with NaN first."""
    module.zero_grad()
    fill_free_memory(batch.tgt_out.device)
    loss, _ = module(batch)
    loss.backward()
    return loss.item(), {n: p.grad for n, p in module.named_parameters() if p.grad is not None}


def fill_free_memory(device: torch.device) -> None:
    """Fills free memory of a GPU with NaN, so that elements no kernel writes show up."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
        nan = partial(torch.full, fill_value=torch.nan, dtype=torch.bfloat16, device=device)
        # Large and small blocks, which torch allocates from different pools.
        blocks = [nan((2**31,)), *(nan((2**17,)) for _ in range(256))]
        del blocks


def distance(grads: Gradients, exact: Gradients) -> float:
    """‖grads − exact‖ / ‖exact‖ over all parameters."""
    difference = sum(float((grads[name] - exact[name]).square().sum()) for name in exact)
    return (difference / sum(float(grad.square().sum()) for grad in exact.values())) ** 0.5


def worst(grads: Gradients, exact: Gradients) -> tuple[float, str]:
    """The largest relative error of the gradient of one parameter, and its name."""
    return max((distance({n: grads[n]}, {n: exact[n]}), n) for n in exact)


def independent(
    model: Transformer, buckets: Batch, buffer: Batch, num_pairs: int
) -> Iterator[Check]:
    """Checks that outputs depend neither on dummies nor on other pairs."""

    def outputs(batch: Batch) -> Tensor:
        fill_free_memory(batch.tgt_out.device)
        with torch.inference_mode(), autocast(batch.tgt_out.device, "bf16"):
            return model(batch)[batch.tgt_out != IGNORE_INDEX].float()

    def changed(first: int, last: int) -> Batch:
        src, tgt_in = (
            replace(side, tokens=_rotated(side, first, last, model.vocab_size))
            for side in (buffer.src, buffer.tgt_in)
        )
        return replace(buffer, src=src, tgt_in=tgt_in)

    expected, got = outputs(buckets), outputs(buffer)
    error = float((got - expected).norm() / expected.norm())
    yield Check("outputs of buffers against buckets, bf16", f"error {error:.1e}", error <= 0.02)
    bounds = _bounds(buffer.tgt_in)
    other_dummies = outputs(changed(num_pairs, len(bounds) - 1))
    same = torch.equal(got, other_dummies)
    yield Check("changing the dummies changes no output", str(same), same)
    pair = num_pairs // 2
    moved = (got != outputs(changed(pair, pair + 1))).any(1).nonzero().flatten().tolist()
    rows = range(bounds[pair], bounds[pair + 1])
    alone = bool(moved) and set(moved) <= set(rows)
    found = f"{len(moved)} rows change, the pair has {len(rows)}"
    yield Check("changing a pair changes no other output", found, alone)


def _bounds(packed: Packed) -> list[int]:
    assert isinstance(packed.boundaries, CuSeqlens)
    return packed.boundaries.cu_seqlens.tolist()


def _rotated(packed: Packed, first: int, last: int, vocab_size: int) -> Tensor:
    """The tokens, with those of some sequences changed."""
    tokens, bounds = packed.tokens.clone(), _bounds(packed)
    tokens[bounds[first] : bounds[last]] += 1
    return tokens % vocab_size


# Decoding.


@dataclass(frozen=True)
class Decoding:
    """Measurements of one run of beam search."""

    name: str
    seconds: float
    tokens: int
    """Number of output tokens without end symbols."""


class ForcedSteps:
    """Decoding steps of a random model; each translation is made as long as its reference."""

    def __init__(
        self,
        model: Transformer,
        sources: list[Any],
        limits: list[int],
        beam_size: int,
        capturable: bool,
    ):
        self.capturable = capturable
        device = model.embedding.weight.device
        self._model = model
        self._state = model.init_decoder_state(Packed.from_sequences(sources).to(device), beam_size)
        self._limits = torch.tensor(limits, device=device)[:, None]

    def reserve(self, steps: int) -> bool:
        is_other = self._state.reserve(steps)
        return self._model.embedding.reserve(self._state.length) or is_other

    def step(self, tokens: Tensor) -> Tensor:
        early = self._limits != self._state.position
        log_probs = self._model.decode_step(tokens, self._state).float().log_softmax(-1)
        for token in (PAD, UNK, BOS):
            log_probs[..., token].fill_(-torch.inf)
        log_probs[..., EOS].masked_fill_(early, -torch.inf)
        return log_probs

    def select(self, beams: Tensor) -> None:
        self._state.select(beams)

    def keep(self, sentences: Sequence[int]) -> None:
        self._state.keep(sentences)
        self._limits = self._limits[list(sentences)]


@torch.inference_mode()
def decode(
    store: TokenStore,
    scale: Scale,
    device: torch.device,
    dtype: torch.dtype,
    batch_tokens: int,
    capturable: bool,
) -> Decoding:
    """Times beam search as in §6.1; ``capturable`` allows CUDA graphs."""
    torch.manual_seed(1)
    model = Transformer(scale.model, scale.vocab_size).to(device).eval()
    if device.type == "cuda":
        model = for_inference(model, dtype)
    config = DecodeConfig(batch_tokens=batch_tokens)

    def search(batch: list[int]) -> int:
        limits = [len(store.tgt[i]) - 1 for i in batch]
        sources = [store.src[i] for i in batch]
        steps = ForcedSteps(model, sources, limits, config.beam_size, capturable)
        found = beam_search(
            steps,
            limits,
            beam_size=config.beam_size,
            alpha=config.length_penalty,
            bos=BOS,
            eos=EOS,
            device=device,
        )
        return sum(len(best.tokens) for (best,) in found)

    order = sorted(range(scale.sentences), key=lambda i: -len(store.src[i]))
    search(order[-8:])
    synchronize(device)
    started, tokens = time.perf_counter(), 0
    while order:
        size = max(1, batch_tokens // (len(store.src[order[0]]) * config.beam_size))
        tokens += search(order[:size])
        order = order[size:]
    synchronize(device)
    how = "CUDA graphs" if capturable and device.type == "cuda" else "eager"
    name = f"{str(dtype).removeprefix('torch.')}, {batch_tokens:,} tokens per batch, {how}"
    return Decoding(name, time.perf_counter() - started, tokens)


if __name__ == "__main__":
    run_main(main)
