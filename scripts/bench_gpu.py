"""What a GPU makes of the training step: is it right, how fast is it, and where does the time go?

    python scripts/bench_gpu.py                            all of it, in about 8 minutes
    python scripts/bench_gpu.py --only ours,flex           some of it; ours: profile, Muon too
    python scripts/bench_gpu.py --device cpu --tiny --no-compile      a rehearsal, in seconds

The paper's base model in bf16, 37,000 pieces, on random pairs as long as WMT's, through the code
that mt-train runs. First the parity checks, then a table of training steps, most important first:
what there is no time for is left out, and what fails says so in one line. MFU is against the rate
of a large matrix product, measured here.
"""

import argparse
import gc
import gzip
import json
import os
import re
import signal
import sys
import tempfile
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
import torch
from bench_gpu_variants import (
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
from bench_peers import SMOOTHING
from bench_train import finish, heading, matrix_rate, table
from torch import Tensor
from torch._dynamo.utils import counters

from transformer_mt import distributed
from transformer_mt.batch import IGNORE_INDEX, Batch, CuSeqlens, Packed
from transformer_mt.config import DecodeConfig, ModelConfig, OptimizerConfig
from transformer_mt.data.batching.fixed_buffers import BufferShape, fill
from transformer_mt.data.batching.micro_batches import collate
from transformer_mt.data.batching.plan import BatchPlan, Indices
from transformer_mt.data.store.token_store import TokenStore
from transformer_mt.data.subwords.tokenizer import BOS, EOS, PAD, UNK
from transformer_mt.decode.search.beam_search import beam_search
from transformer_mt.errors import InputError
from transformer_mt.model.inference import for_inference
from transformer_mt.model.transformer import Transformer
from transformer_mt.train.optimizer import make_optimizer
from transformer_mt.train.step import LossModule, autocast

MUON = OptimizerConfig(name="muon", momentum=0.95)


@dataclass(frozen=True)
class Check:
    """A statement about the training step, and whether it holds."""

    name: str
    found: str
    ok: bool


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    device = distributed.pick_device(options.device)
    if device.type == "cuda":
        device = torch.device("cuda", 0)
    print(heading(options, device), flush=True)
    bench = Bench(options, device)
    bench.run()
    print(bench.report())
    if bad := bench.complaints():
        sys.exit(f"bench_gpu.py: error: not as it should be: {'; '.join(bad)}")


PARTS = [
    "parity", "ours", "ours-3k", "layers", "layers-3k", "graphs-3k", "buckets", "torch", "decode",
    "flex", "residual", "ddp-3k", "torch-compiled",
]  # fmt: skip
"""In order; what is soon done comes before what takes long."""


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    summary, _, details = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        description=summary, epilog=details, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    out = Path(os.environ["OUT"], "bench_gpu.json") if os.environ.get("OUT") else None
    add("--seconds", type=float, default=480, help="time for all of it (default: 480)")
    add("--only", help=f"some of: {', '.join(PARTS)}; separated by commas (default: all)")
    add("--json", type=Path, default=out, help="file for every figure (default: $OUT, if set)")
    add("--device", default="auto", help="cpu, cuda or auto (default: auto)")
    add("--tiny", action="store_true", help="a tiny model and few updates: does it all run?")
    add("--no-compile", action="store_true", help="everything eager")
    options = parser.parse_args(arguments)
    options.only = options.only.split(",") if options.only else PARTS
    for name in options.only:
        if name not in PARTS:
            raise InputError(f"no part {name!r}; there are: {', '.join(PARTS)}")
    return options


class Bench:
    """All parts in order, and what they found."""

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
        """One part after the other, the most important first."""
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
        """Does a part, if there is time; a row of the table says it if that comes to nothing."""
        begun, left = time.monotonic(), self._deadline - time.monotonic()
        if left < seconds:
            self.rows.append(Row(name, note=f"left out: {max(left, 0):.0f} s left"))
            return
        try:
            with alarm(left):
                part()
        except Exception as error:
            traceback.print_exc()
            self.rows.append(Row(name, note=f"failed: {one_line(error)}"))
        gc.collect()
        if self._device.type == "cuda":
            with suppress(RuntimeError):  # a part may have left the GPU unusable: the table comes
                torch.cuda.empty_cache()
        print(f"{name}: {time.monotonic() - begun:.0f} s", file=sys.stderr, flush=True)
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
                self.checks.append(no_wait(session))
            self._attempt("profile", EAGER, partial(self._profile, session))
            # The same compiled graphs; only the update of the weights is another.
            session.step.optimizer = make_optimizer(session.model, MUON)
            muon = partial(self._measure, "muon", "Muon for the matrices of the layers", session)
            self._attempt("muon", EAGER, muon)

    def _train(self, variant: Variant) -> None:
        with variant.session(self._store, self._scale, self._device, self._compiled) as session:
            if flex in variant.replacements:
                self.checks.append(self._flex_is_right())
            self._measure(variant.name, variant.what, session)

    def _flex_is_right(self) -> Check:
        pairs = np.arange(min(128, len(self._store)))
        buffer = spacious(self._store, [pairs]).to(self._device)
        src, tgt = buffer.src.layout, buffer.tgt_in.layout
        assert isinstance(src, CuSeqlens)
        assert isinstance(tgt, CuSeqlens)
        error = flex_error(src, tgt, self._scale, self._compiled)
        return Check("FlexAttention against varlen, bf16", f"{error:.1e} off", error <= 0.02)

    def _measure(self, name: str, what: str, session: Session) -> None:
        skipped = counters["inductor"]["cudagraph_skips"]
        row = measure(name, session, self._scale, self._device)
        if counters["inductor"]["cudagraph_skips"] > skipped:
            what += "; torch made no CUDA graph of some of it"
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
        # On a CPU attention turns bf16 into fp32, for training under autocast.
        settings = [(torch.float32, 2**17, True)]
        if self._device.type == "cuda":
            bf16 = torch.bfloat16
            settings += [(bf16, 2**power, True) for power in (17, 18, 19)] + [(bf16, 2**18, False)]
        for setting in settings:
            found = [
                decode(self._store, self._scale, self._device, *setting)
                for _ in range(2)  # the first one also loads kernels
            ]
            self.decoding.append(min(found, key=lambda each: each.seconds))

    # The report.

    def complaints(self) -> list[str]:
        """What is wrong with our training step."""
        vital = ("parity", OURS.name)
        return [
            *(check.name for check in self.checks if not check.ok),
            *(f"{r.name} {r.note}" for r in self.rows if r.name in vital and not r.seconds),
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
        """Tables in Markdown."""
        rates = (
            f"a large matrix product in bf16: {self.rate / 1e12:,.1f} TFLOP/s (100% MFU); "
            f"copy: {self.copied / 1e9:,.0f} GB/s"
        )
        checks = [[check.name, check.found, "ok" if check.ok else "WRONG"] for check in self.checks]
        parts = ["", rates, "", table(["check", "found", ""], checks)]
        parts += ["", table(TRAINING, [self._training(row) for row in self.rows])]
        if self.kinds:
            parts += ["", self._explained()]
        if self.decoding:
            rows = [
                [d.name, f"{d.seconds:.1f}", f"{d.tokens / d.seconds:,.0f}"] for d in self.decoding
            ]
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
        """Where the time of one update of ours goes, above its floor."""
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
        floor = (
            f"{1e3 * needed / self.rate:.2f} ms = {needed / 1e12:.2f} TFLOP at the measured rate"
        )
        return "\n".join(
            [
                f"One update of {OURS.name}; its floor is {floor}:",
                "",
                table(["kind of kernel", "ms", "share"], rows),
                "",
                table(["product m × k × n", "calls", "ms", "TFLOP/s"], shapes),
            ]
        )


TRAINING = [
    "variant", "ms", "min–max", "target tokens/s", "MFU", "GiB", "1st s", "recompiled", "waiting",
    "waste", "loss", "what",
]  # fmt: skip
"""Per update; 1st s: seconds of the first update, compilation included; GiB: peak memory;
waiting: for data; waste: padding and dummies."""


@contextmanager
def alarm(seconds: float) -> Iterator[None]:
    """Raises TimeoutError when the time is up."""

    def ring(*_: object) -> None:
        raise TimeoutError("the time is up")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def one_line(error: Exception) -> str:
    """An error in at most 150 characters."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:150]


def no_wait(session: Session) -> Check:
    """Whether an update goes by without the CPU once waiting for the GPU."""
    work, found = session.read(0), "none"
    torch.cuda.set_sync_debug_mode("error")
    try:
        session.update(work, 0)
    except RuntimeError as error:
        found = one_line(error)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return Check("waits for the GPU in an update", found, found == "none")


def copy_rate(device: torch.device) -> float:
    """Bytes a second, read and written, of a copy on the device."""
    size, repeats = (2**31, 20) if device.type == "cuda" else (2**22, 2)
    a = torch.randint(0, 255, (size,), dtype=torch.uint8, device=device)
    b = a.clone()
    finish(device)
    begun = time.perf_counter()
    for _ in range(repeats):
        b.copy_(a)
    finish(device)
    return 2 * size * repeats / (time.perf_counter() - begun)


# Parity.


def parity(
    store: TokenStore, scale: Scale, device: torch.device, compiled: bool
) -> Iterator[Check]:
    """Whether buffers in bf16 compute what buckets in fp32 do, of the same pairs and weights.

    What bf16 by itself costs is taken from buckets in bf16: no more than about that is allowed.
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
    """Without dropout; random throughout, as initial norms and biases could hide a mistake."""
    torch.manual_seed(1)
    model = Transformer(replace(config, dropout=0.0), scale.vocab_size)
    for name, parameter in model.named_parameters():
        if name.endswith("bias") or "norm" in name:
            parameter.data += 0.3 * torch.randn_like(parameter)
    return model.to(device)


def spacious(store: TokenStore, groups: list[Indices]) -> Batch:
    """Pairs in a buffer that has room for some dummies."""
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
    """Loss and gradients of buffers in bf16 against those of buckets in fp32."""
    module = LossModule(model, SMOOTHING, "bf16")
    exact_loss, exact = gradients(LossModule(model, SMOOTHING, "fp32"), buckets)
    bf16_loss, bf16 = gradients(LossModule(model, SMOOTHING, "bf16"), buckets)
    if compiled:
        module.compile_for(1)
    loss, grads = gradients(module, buffer)
    finite = all(bool(grad.isfinite().all()) for grad in grads.values())
    yield Check(f"{name}: no NaN in gradients, memory full of it before", str(finite), finite)
    for what, got, allowed in (
        ("loss", [abs(x / exact_loss - 1) for x in (loss, bf16_loss)], 1e-3),
        ("gradient", [distance(x, exact) for x in (grads, bf16)], 0.01),
        ("worst parameter's gradient", [worst(x, exact)[0] for x in (grads, bf16)], 0.03),
    ):
        found = f"{got[0]:.1e} off fp32; buckets in bf16: {got[1]:.1e}"
        yield Check(f"{name}: {what}", found, got[0] <= max(2 * got[1], allowed))


Gradients = dict[str, Tensor]


def gradients(module: LossModule, batch: Batch) -> tuple[float, Gradients]:
    """The loss and its gradients, by parameter; freed memory is NaN before."""
    module.zero_grad()
    poison(batch.tgt_out.device)
    loss, _ = module(batch)
    loss.backward()
    return loss.item(), {n: p.grad for n, p in module.named_parameters() if p.grad is not None}


def poison(device: torch.device) -> None:
    """Fills the memory that the next tensors get on a GPU: what a kernel leaves unwritten shows."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
        nan = partial(torch.full, fill_value=torch.nan, dtype=torch.bfloat16, device=device)
        # Large and small blocks, which torch keeps apart; held together, freed together.
        blocks = [nan((2**31,)), *(nan((2**17,)) for _ in range(256))]
        del blocks


def distance(grads: Gradients, exact: Gradients) -> float:
    """‖grads − exact‖ / ‖exact‖ of all parameters as one vector."""
    difference = sum(float((grads[name] - exact[name]).square().sum()) for name in exact)
    return (difference / sum(float(grad.square().sum()) for grad in exact.values())) ** 0.5


def worst(grads: Gradients, exact: Gradients) -> tuple[float, str]:
    """The largest relative error of one parameter's gradient, and its name."""
    return max((distance({n: grads[n]}, {n: exact[n]}), n) for n in exact)


def independent(
    model: Transformer, buckets: Batch, buffer: Batch, num_pairs: int
) -> Iterator[Check]:
    """Whether pairs take no notice of dummies, nor of each other."""

    def outputs(batch: Batch) -> Tensor:
        poison(batch.tgt_out.device)
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
    yield Check("outputs of buffers against buckets, bf16", f"{error:.1e} off", error <= 0.02)
    bounds = _bounds(buffer.tgt_in)
    other_dummies = outputs(changed(num_pairs, len(bounds) - 1))
    same = torch.equal(got, other_dummies)
    yield Check("other dummies: no bit of a real output changes", str(same), same)
    pair = num_pairs // 2
    moved = (got != outputs(changed(pair, pair + 1))).any(1).nonzero().flatten().tolist()
    rows = range(bounds[pair], bounds[pair + 1])
    alone = bool(moved) and set(moved) <= set(rows)
    found = f"{len(moved)} rows change, the pair has {len(rows)}"
    yield Check("another pair: no bit of the others' outputs changes", found, alone)


def _bounds(packed: Packed) -> list[int]:
    assert isinstance(packed.layout, CuSeqlens)
    return packed.layout.cu_seqlens.tolist()


def _rotated(packed: Packed, first: int, last: int, vocab_size: int) -> Tensor:
    """The tokens, those of some sequences changed."""
    tokens, bounds = packed.tokens.clone(), _bounds(packed)
    tokens[bounds[first] : bounds[last]] += 1
    return tokens % vocab_size


# The profile.

Event = dict[str, Any]
PROFILED = 2
"""Updates."""

KINDS = {
    "attention": r"flash|fmha|triton_tem.*flex|scaled_dot_product",
    "matrix products": r"gemm|nvjet|cutlass|xmma|splitk|aten::(linear|addmm|mm|bmm|matmul)",
    "optimizer": r"multi_tensor|adam|muon",
    "loss": r"softmax|scatter|CrossEntropy",
    "embedding": r"embedding|index_put|index_select|indexing_backward",
    "copies and casts": r"memcpy|memset|direct_copy|CatArray|aten::copy_|fused__to_copy(_t)?_\d+$",
}
"""Kinds of kernel by name, the first that fits; all others are pointwise, or norms."""


def trace(session: Session, device: torch.device, folder: Path | None) -> list[Event]:
    """What the profiler saw of some updates, as it writes it for Chrome; kept in the folder."""
    works = [session.read(number) for number in range(PROFILED)]
    session.update(works[0], 0)
    finish(device)
    with torch.profiler.profile(record_shapes=True) as profiler:
        for work in works:
            session.update(work, 0)
        finish(device)
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(folder or temporary, "bench_gpu_trace.json.gz")
        profiler.export_chrome_trace(str(path))
        with gzip.open(path) as file:
            events: list[Event] = json.load(file)["traceEvents"]
    return events


def on_device(events: list[Event]) -> list[Event]:
    """The kernels and copies of a GPU; where there is none, the outermost operations."""
    kernels = [e for e in events if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    if kernels:
        return kernels
    outermost: list[Event] = []
    ends: dict[Any, float] = {}
    for event in sorted((e for e in events if e.get("cat") == "cpu_op"), key=lambda e: e["ts"]):
        if event["ts"] >= ends.get(event["tid"], 0):
            ends[event["tid"]] = event["ts"] + event["dur"]
            outermost.append(event)
    return outermost


def time_by_kind(events: list[Event]) -> dict[str, float]:
    """Seconds of each kind in an update."""
    kinds: dict[str, float] = defaultdict(float)
    for event in on_device(events):
        found = (kind for kind, pattern in KINDS.items() if re.search(pattern, event["name"], re.I))
        kinds[next(found, "pointwise and norms")] += event["dur"] / 1e6 / PROFILED
    return dict(kinds)


def busy_seconds(events: list[Event]) -> float:
    """Seconds of an update in which anything runs."""
    busy, end = 0.0, 0.0
    for event in sorted(on_device(events), key=lambda e: e["ts"]):
        until = event["ts"] + event["dur"]
        busy += max(0.0, until - max(end, event["ts"]))
        end = max(end, until)
    return busy / 1e6 / PROFILED


@dataclass
class Product:
    """The matrix products of one shape in an update."""

    shape: str
    calls: float = 0.0
    seconds: float = 0.0
    flops: float = 0.0


def products(events: list[Event]) -> list[Product]:
    """The matrix products, by shape: which of them are far from the rate of a large one?"""
    of_operation: dict[int, Product] = {}
    found: dict[str, Product] = {}
    for event in events:
        if event.get("cat") == "cpu_op" and event["name"] in ("aten::mm", "aten::addmm"):
            dims = event["args"].get("Input Dims", [])
            a, b = dims[1:3] if event["name"] == "aten::addmm" else dims[:2]
            m, k, n = a[0], a[1], b[1]
            shape = f"{m} × {k} × {n}"
            product = found.setdefault(shape, Product(shape))
            product.calls += 1 / PROFILED
            product.flops += 2 * m * k * n / PROFILED
            of_operation[event["args"]["External id"]] = product
    for event in events:
        if event.get("cat") == "kernel":
            launched_by = of_operation.get(event["args"].get("External id"))
            if launched_by is not None:
                launched_by.seconds += event["dur"] / 1e6 / PROFILED
    return [product for product in found.values() if product.seconds]


# Decoding.


@dataclass(frozen=True)
class Decoding:
    """A run of the beam search."""

    name: str
    seconds: float
    tokens: int
    """Output tokens, end symbols not counted."""


class ForcedSteps:
    """A model's steps, each translation as long as its reference: random weights never end one."""

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
    """Beam search as in §6.1, in the batches of ``decode.translator``.

    ``capturable`` lets a GPU replay its steps from a CUDA graph.
    """
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
    finish(device)
    begun, tokens = time.perf_counter(), 0
    while order:
        size = max(1, batch_tokens // (len(store.src[order[0]]) * config.beam_size))
        tokens += search(order[:size])
        order = order[size:]
    finish(device)
    how = "recorded" if capturable and device.type == "cuda" else "step by step"
    name = f"{str(dtype).removeprefix('torch.')}, {batch_tokens:,} tokens a batch, {how}"
    return Decoding(name, time.perf_counter() - begun, tokens)


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        sys.exit(f"bench_gpu.py: error: {error}")
