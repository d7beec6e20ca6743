"""The training steps that ``gpu.py`` times: ours and alternatives, on pairs with WMT's lengths.

A *session* is a model in training: it reads updates (prefetched by a thread, as in mt-train) and
performs them. Alternatives replace one function of the package while their session lasts.
"""

import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from itertools import count
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
import torch.distributed as dist
from peers import SMOOTHING, PaddedPairs, PeerStep, TorchPeer
from torch import Tensor, nn
from torch._dynamo.utils import counters
from torch.nn.attention.flex_attention import BlockMask, flex_attention
from torch.nn.parallel import DistributedDataParallel
from train import synchronize

from transformer_mt.batch import IGNORE_INDEX, Batch, Buckets, CuSeqlens, Lengths, Packed
from transformer_mt.config import ModelConfig, OptimizerConfig
from transformer_mt.data.batching.batch_iterator import prefetch
from transformer_mt.data.batching.micro_batches import micro_batches
from transformer_mt.data.batching.plan import CHUNKS_PER_BATCH, BatchPlan
from transformer_mt.data.batching.static_batches import buffered_batches, plan_buffers
from transformer_mt.data.store.token_store import Indices, Side, TokenStore
from transformer_mt.data.subwords.tokenizer import EOS
from transformer_mt.distributed.world import World
from transformer_mt.kernels import packed_attention
from transformer_mt.kernels.packed_attention import varlen_attention
from transformer_mt.kernels.shapes import default_max_tokens
from transformer_mt.model.layers import Residual
from transformer_mt.model.transformer import Transformer
from transformer_mt.training.flops import update_flops
from transformer_mt.training.step import LossModule, TrainStep

LEARNING_RATE = 1e-4
BLOCK = 64
"""Block size of FlexAttention's mask, in queries and keys."""


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
    ranks: int
    """Number of GPUs assumed by the variants that time the share of one GPU."""
    warmup: int
    updates: int
    repeats: int
    sentences: int
    """Number of sentences to translate."""


PAPER = Scale(ModelConfig(), 37_000, 400_000, 28.0, 250, 25_000, 8, 5, 30, 5, 8192)
_TINY_MODEL = ModelConfig(
    d_model=32, d_ff=64, num_heads=4, num_encoder_layers=2, num_decoder_layers=2
)
TINY = Scale(_TINY_MODEL, 101, 300, 8.0, 24, 320, 4, 2, 2, 3, 6)


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


@dataclass(frozen=True)
class Update:
    """The batches of one update on this GPU."""

    parts: list[Any]
    lengths: list[Lengths]
    """Lengths of the pairs, source and target."""
    num_rows: int
    """Tokens of both sides including padding or dummy pairs."""

    @property
    def num_targets(self) -> int:
        """Number of target tokens without padding."""
        return int(self.lengths[1].sum())

    @property
    def num_tokens(self) -> int:
        """Number of tokens of both sides without padding."""
        return sum(int(side.sum()) for side in self.lengths)

    def flops(self, scale: Scale) -> float:
        """Number of operations needed, without padding."""
        return update_flops(scale.model, scale.vocab_size, *self.lengths)


Read = Callable[[int], Update]


def buffered_updates(
    store: TokenStore, scale: Scale, device: torch.device, ranks: int
) -> tuple[Read, int]:
    """Reader of the share of one of ``ranks`` GPUs as in compiled training, and maximum length."""
    plan = BatchPlan(store, scale.batch_tokens, seed=1)
    shape = plan_buffers(plan, default_max_tokens(scale.model, device), ranks)

    def read(step: int) -> Update:
        parts = buffered_batches(plan[step], shape, 0, ranks)
        lengths = [np.concatenate(side) for side in zip(*map(real_lengths, parts), strict=True)]
        rows = sum(len(part.src.tokens) + len(part.tgt_in.tokens) for part in parts)
        return Update(_pinned(parts, device), lengths, rows)

    return read, shape.max_length


def real_lengths(buffer: Batch) -> list[Lengths]:
    """Lengths of the pairs of a buffer, source and target, without the dummies."""
    bounds = [_bounds(side) for side in (buffer.src, buffer.tgt_in)]
    pairs = np.searchsorted(bounds[1], int((buffer.tgt_out != IGNORE_INDEX).sum()))
    return [np.diff(side[: pairs + 1]) for side in bounds]


def _bounds(packed: Packed) -> Lengths:
    assert isinstance(packed.boundaries, CuSeqlens)
    return packed.boundaries.cu_seqlens.numpy()


def bucketed_updates(store: TokenStore, scale: Scale, device: torch.device) -> Read:
    """Reads updates as mt-train does for eager training."""
    plan = BatchPlan(store, scale.batch_tokens, seed=1)
    most = default_max_tokens(scale.model, device)

    def read(step: int) -> Update:
        parts = micro_batches(plan[step], most)
        sides = [side.boundaries for part in parts for side in (part.src, part.tgt_in)]
        buckets = [b for side in sides if isinstance(side, Buckets) for b in side.buckets]
        rows = sum(bucket.num_sequences * bucket.max_length for bucket in buckets)
        pairs = np.concatenate(plan[step].chunks)
        return Update(_pinned(parts, device), _lengths(store, pairs), rows)

    return read


def _pinned(parts: list[Batch], device: torch.device) -> list[Batch]:
    return [part.pin_memory() for part in parts] if device.type == "cuda" else parts


def _lengths(store: TokenStore, pairs: Indices) -> list[Lengths]:
    return [side.offsets[pairs + 1] - side.offsets[pairs] for side in (store.src, store.tgt)]


def padded_updates(store: TokenStore, scale: Scale, device: torch.device) -> Read:
    """Padded batches of pairs of one length, the best case for the peers; collated in advance."""
    plan = BatchPlan(store, scale.batch_tokens * CHUNKS_PER_BATCH, seed=1)
    updates = []
    for chunk in [c for step in range(min(3, plan.steps_per_epoch)) for c in plan[step].chunks]:
        pairs = PaddedPairs.collate(store, chunk).to(device)
        if pairs.src_padding is None:  # one graph for both cases
            pairs = replace(pairs, src_padding=torch.zeros_like(pairs.src, dtype=torch.bool))
        rows = pairs.src.numel() + pairs.tgt_in.numel()
        updates.append(Update([pairs], _lengths(store, chunk), rows))
    return lambda step: updates[step % len(updates)]


# Alternatives.

_compile_for = LossModule.compile_for
Replacement = Callable[[World], AbstractContextManager[Any]]


def layer_graphs(_: World) -> AbstractContextManager[Any]:
    """Compiles each layer separately, as with several ranks."""
    return patch.object(LossModule, "compile_for", lambda self, _: _compile_for(self, 2))


def cuda_graphs(world: World) -> AbstractContextManager[Any]:
    """Runs the compiled step from CUDA graphs."""
    if world.device.type != "cuda":
        raise RuntimeError("CUDA graphs need a GPU")

    def compile_for(self: LossModule, _: int) -> None:
        self.compile(fullgraph=True, dynamic=False, mode="reduce-overhead")

    return patch.object(LossModule, "compile_for", compile_for)


def narrow_residual(_: World) -> AbstractContextManager[Any]:
    """Keeps the residual stream in bf16 (under autocast it is fp32); norms stay in fp32."""
    forward = Residual.forward

    def narrow(self: Residual, *arguments: Any) -> Tensor:
        return forward(self, *arguments).to(torch.bfloat16)

    return patch.object(Residual, "forward", narrow)


@contextmanager
def data_parallel(world: World) -> Iterator[None]:
    """DistributedDataParallel with a single rank, each layer compiled separately."""
    backend = "nccl" if world.device.type == "cuda" else "gloo"
    store = dist.HashStore()  # type: ignore[attr-defined]
    dist.init_process_group(backend, store=store, rank=0, world_size=1)

    def wrap(self: World, module: nn.Module) -> nn.Module:
        devices = [self.device] if self.device.type == "cuda" else None
        return DistributedDataParallel(
            module, device_ids=devices, gradient_as_bucket_view=True, broadcast_buffers=False
        )

    try:
        with (
            warnings.catch_warnings(),
            patch.object(World, "data_parallel", wrap),
            layer_graphs(world),
        ):
            warnings.filterwarnings("ignore", "`broadcast_buffers` is deprecated", FutureWarning)
            yield
    finally:
        dist.destroy_process_group()


def block_mask(queries: Tensor, keys: Tensor, n: int, m: int, causal: bool) -> BlockMask:
    """FlexAttention's mask over n queries and m keys, from the boundaries of their sequences.

    As sequences are packed end to end, the blocks that a block needs are contiguous: from the start
    of the sequence of its first token to the end of the sequence of its last token.
    """
    query_of, key_of = (
        torch.searchsorted(
            bounds[1:],
            torch.arange(size, dtype=torch.int32, device=bounds.device),
            out_int32=True,
            right=True,
        )
        for bounds, size in ((queries, n), (keys, m))
    )

    def allowed(_batch: Tensor, _head: Tensor, q: Tensor, k: Tensor) -> Tensor:
        same = query_of[q] == key_of[k]
        return same & (q >= k) if causal else same

    def stretch(low: Tensor, high: Tensor, columns: int) -> tuple[Tensor, Tensor]:
        first = torch.div(low, BLOCK, rounding_mode="floor")
        end = torch.div(high + BLOCK - 1, BLOCK, rounding_mode="floor")
        every = torch.arange(columns, dtype=torch.int32, device=low.device)
        indices = (first[:, None] + every) % columns
        counts = (end - first).clamp(min=0)
        return counts.int()[None, None], indices.int()[None, None]

    starts = torch.arange(0, n, BLOCK, dtype=torch.int32, device=queries.device)
    key_low, key_high = keys[query_of[::BLOCK]], keys[query_of[BLOCK - 1 :: BLOCK] + 1]
    query_low, query_high = queries[key_of[::BLOCK]], queries[key_of[BLOCK - 1 :: BLOCK] + 1]
    if causal:  # key t is visible to queries from t on
        key_high = torch.minimum(key_high, starts + BLOCK)
        query_low = torch.maximum(query_low, starts)
    return BlockMask(
        (n, m),
        *stretch(key_low, key_high, m // BLOCK),
        None,
        None,
        *stretch(query_low, query_high, n // BLOCK),
        None,
        None,
        BLOCK_SIZE=(BLOCK, BLOCK),
        mask_mod=allowed,
    )


def flex_varlen(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    queries: CuSeqlens,
    keys: CuSeqlens,
    causal: bool,
    dropout: float = 0.0,
) -> Tensor:
    """``kernels.packed_attention.varlen_attention`` implemented with FlexAttention."""
    assert dropout == 0
    mask = block_mask(queries.cu_seqlens, keys.cu_seqlens, len(query), len(key), causal)
    q, k, v = (x.transpose(0, 1)[None] for x in (query, key, value))
    options: Any = {"fwd_BLOCK_M": BLOCK, "fwd_BLOCK_N": BLOCK}
    output = flex_attention(q, k, v, block_mask=mask, kernel_options=options)
    assert isinstance(output, Tensor)
    return output[0].transpose(0, 1)


def flex_error(src: CuSeqlens, tgt: CuSeqlens, scale: Scale, compiled: bool) -> float:
    """Relative error of FlexAttention, ‖a − b‖ / ‖b‖, the larger of causal and cross."""
    device, worst = src.cu_seqlens.device, 0.0
    attend = torch.compile(flex_varlen, fullgraph=True, dynamic=False) if compiled else flex_varlen
    heads = scale.model.num_heads, scale.model.key_size
    for keys in (tgt, src):
        query, key, value = (
            torch.randn(int(side.cu_seqlens[-1]), *heads, device=device).bfloat16()
            for side in (tgt, keys, keys)
        )
        with torch.no_grad():
            got = attend(query, key, value, tgt, keys, keys is tgt).float()
            expected = varlen_attention(query, key, value, tgt, keys, keys is tgt).float()
        worst = max(worst, float((got - expected).norm() / expected.norm()))
    return worst


@contextmanager
def flex(_: World) -> Iterator[None]:
    """Uses FlexAttention in blocks of 64."""
    triton = import_module("torch._inductor.template_heuristics.triton")
    # By default its backward kernel has tiles of 128 on Hopper, which blocks of 64 do not allow.
    tiles = triton.FlexBwDConfig(BLOCK, BLOCK, BLOCK, BLOCK, 2, 4)
    with (
        patch.object(packed_attention, "varlen_attention", flex_varlen),
        patch.object(triton.CUDAConfigHeuristic, "get_flex_attn_bwd_configs", lambda *_: [tiles]),
    ):
        yield


# Sessions.


@dataclass(frozen=True)
class Session:
    """A model in training."""

    read: Read
    update: Callable[[Update, int], Tensor]
    """(update, seed) → the loss, summed over target tokens."""
    model: nn.Module
    step: Any
    """A ``TrainStep`` or a ``PeerStep``."""


@dataclass(frozen=True)
class Variant:
    """A way to train."""

    name: str
    what: str
    seconds: float
    """Minimum time left to start it."""
    share: bool = False
    """Times the share of one of ``Scale.ranks`` GPUs instead of whole updates."""
    buffers: bool = True
    """Compiled, with buffers of one shape; otherwise eager, with buckets."""
    replacements: tuple[Replacement, ...] = ()
    peer: bool = False
    """Times ``torch.nn.Transformer`` instead of ours."""

    @contextmanager
    def session(
        self, store: TokenStore, scale: Scale, device: torch.device, compiled: bool
    ) -> Iterator[Session]:
        """Builds a new model; the replacements are undone on exit."""
        torch._dynamo.reset()  # avoids the limit on recompilations
        torch.manual_seed(1)
        model = Transformer(scale.model, scale.vocab_size).to(device)
        world = World(device)
        if self.peer:
            peer = TorchPeer(model).to(device).train()
            if compiled and self.buffers:
                peer.compile(dynamic=True)
            peer_step = PeerStep(peer, OptimizerConfig(), SMOOTHING, "bf16")
            read = padded_updates(store, scale, device)
            yield Session(read, partial(_peer_update, peer_step), peer, peer_step)
            return
        if self.buffers:
            ranks = scale.ranks if self.share else 1
            read, max_length = buffered_updates(store, scale, device, ranks)
            model.embedding.reserve(max_length)
        else:
            read = bucketed_updates(store, scale, device)
        with ExitStack() as stack:
            for replacement in self.replacements:
                stack.enter_context(replacement(world))
            compiled = compiled and self.buffers
            config = OptimizerConfig()
            step = TrainStep(model, config, SMOOTHING, "bf16", world, compiled=compiled)
            graphs = cuda_graphs in self.replacements
            yield Session(read, partial(_our_update, step, graphs), model, step)


def _our_update(step: TrainStep, graphs: bool, work: Update, seed: int) -> Tensor:
    if graphs:
        torch.compiler.cudagraph_mark_step_begin()
    return step(work.parts, work.num_targets, LEARNING_RATE, seed).loss


def _peer_update(step: PeerStep, work: Update, seed: int) -> Tensor:
    return step(work.parts, work.num_targets, LEARNING_RATE, seed)


WHOLE, LAYERS, EAGER = 60, 30, 10
"""Estimated seconds of a variant: compiled as one graph, compiled layer by layer, eager."""

OURS = Variant("ours", "one graph, varlen attention, 25k tokens", WHOLE)
VARIANTS = [
    Variant("ours-3k", "the share of one of 8 GPUs", WHOLE, share=True),
    Variant("layers", "one graph per layer", LAYERS, replacements=(layer_graphs,)),
    Variant(
        "layers-3k", "the same, share of one GPU", LAYERS, share=True, replacements=(layer_graphs,)
    ),
    Variant("graphs-3k", "one graph, CUDA graphs", WHOLE, True, replacements=(cuda_graphs,)),
    Variant("buckets", "eager, SDPA in length buckets", EAGER, buffers=False),
    Variant("torch", "nn.Transformer, eager, pairs of one length", EAGER, buffers=False, peer=True),
    Variant("flex", "FlexAttention, blocks of 64", WHOLE, replacements=(flex,)),
    Variant("residual", "bf16 residual stream", WHOLE, replacements=(narrow_residual,)),
    Variant(
        "ddp-3k", "DDP of one rank, layers compiled", LAYERS, True, replacements=(data_parallel,)
    ),
    Variant("torch-compiled", "nn.Transformer, compiled", WHOLE, peer=True),
]


@dataclass
class Row:
    """Measurements of a variant."""

    name: str
    note: str = ""
    seconds: list[float] = field(default_factory=list)
    """Seconds of each repeat."""
    updates: int = 0
    """Number of updates in a repeat."""
    targets: list[int] = field(default_factory=list)
    """Target tokens of each repeat, without padding."""
    flops: list[float] = field(default_factory=list)
    """Operations needed by each repeat, without padding."""
    waste: float = 0.0
    """Share of padding and dummies in all tokens."""
    waiting: float = 0.0
    """Share of time spent waiting for data."""
    first_seconds: float = 0.0
    """Seconds of the first update, mostly compilation."""
    new_graphs: int = 0
    """Number of graphs compiled after the warm-up."""
    peak_bytes: int = 0
    loss: float = 0.0
    """Loss per target token in the last update."""

    @property
    def update_seconds(self) -> float:
        """Seconds per update, median of the repeats."""
        return statistics.median(self.seconds) / self.updates

    @property
    def tokens_per_second(self) -> float:
        """Target tokens per second, median of the repeats."""
        return statistics.median(n / s for n, s in zip(self.targets, self.seconds, strict=True))

    @property
    def flops_per_second(self) -> float:
        """Needed operations per second, median of the repeats."""
        return statistics.median(n / s for n, s in zip(self.flops, self.seconds, strict=True))


def measure(name: str, session: Session, scale: Scale, device: torch.device) -> Row:
    """Times the updates of a session after a warm-up."""
    reader = prefetch(
        session.read(step) for step in range(scale.warmup + scale.repeats * scale.updates)
    )
    seeds = count()

    def run(updates: int) -> tuple[float, float, list[Update], Tensor]:
        """Seconds, seconds of these spent waiting for data, the updates, and the last loss."""
        synchronize(device)
        works, waited, started = [], 0.0, time.perf_counter()
        for _ in range(updates):
            before = time.perf_counter()
            work = next(reader)
            waited += time.perf_counter() - before
            loss = session.update(work, next(seeds))
            works.append(replace(work, parts=[]))
        synchronize(device)
        return time.perf_counter() - started, waited, works, loss

    first, *_ = run(1)
    run(scale.warmup - 1)
    graphs = counters["stats"]["unique_graphs"]
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    runs = [run(scale.updates) for _ in range(scale.repeats)]
    seconds, waits, works, losses = zip(*runs, strict=True)
    everything = [work for part in works for work in part]
    real, laid = (sum(getattr(w, key) for w in everything) for key in ("num_tokens", "num_rows"))
    return Row(
        name,
        seconds=list(seconds),
        updates=scale.updates,
        targets=[sum(work.num_targets for work in part) for part in works],
        flops=[sum(work.flops(scale) for work in part) for part in works],
        waste=1 - real / laid,
        waiting=sum(waits) / sum(seconds),
        first_seconds=first,
        new_graphs=counters["stats"]["unique_graphs"] - graphs,
        peak_bytes=torch.cuda.max_memory_allocated(device) if device.type == "cuda" else 0,
        loss=losses[-1].item() / everything[-1].num_targets,
    )
