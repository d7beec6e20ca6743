"""Training speed, compared with PyTorch's and Hugging Face's Transformer on real text.

    python scripts/bench/train.py --model base                     all variants
    python scripts/bench/train.py --model tiny --batches mixed     updates of mixed lengths
    python scripts/bench/train.py --variants ours-bf16 --profile   profile of one update

One process holds all variants. They start from the same weights and must have the same loss. In
each round every variant then does one update (forward, backward, Adam) on the pairs of that round;
the order rotates. The report has medians over rounds of paired ratios; ours-fp32-again is the
noise floor. All models are post-norm, as in the paper and in MarianMT. Collating the batches is
not timed. On Linux, freed memory is kept for reuse as in mt-train, which speeds up the peers too.
"""

import argparse
import getpass
import json
import re
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from omegaconf import OmegaConf
from peers import VARIANTS, WITH_DROPOUT, PaddedPairs, Update, Variant, build
from reporting import SHARED_DATA, argument_parser, heading, run_main, spread, table, wrap
from torch.autograd.profiler_util import FunctionEvent

from transformer_mt.config import (
    DataConfig,
    ModelConfig,
    SourceConfig,
    TokenizerConfig,
    TrainJob,
    config_dir,
    schema,
)
from transformer_mt.data.batching.micro_batches import collate
from transformer_mt.data.batching.plan import CHUNKS_PER_BATCH, BatchPlan
from transformer_mt.data.prepare import prepare
from transformer_mt.data.store.token_store import TokenStore
from transformer_mt.distributed.world import join, pick_device
from transformer_mt.errors import InputError
from transformer_mt.kernels.products import HAS_ONEDNN, KERNELS
from transformer_mt.training.flops import update_flops

LEARNING_RATE = 1e-4
LOSS_TOLERANCE = {"fp32": 1e-4, "bf16": 2e-2}
"""Maximum relative difference of a variant's first loss from that of the first variant."""
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    device = pick_device(options.device)
    config = model_config(options.model)
    store = read_corpus(options.data, options.vocab)
    with join(device) as world:
        updates = plan_updates(store, options, config, device)
        variants = build(options.variants, config, options.vocab, world)
        check_losses(variants, next(updates))
        if options.profile:
            print(heading(torch_details(device)))
            for variant in variants:
                print("", profile(variant, updates, device), sep="\n")
            return
        used = {name: t for name, t in DTYPES.items() if any(name in v for v in options.variants)}
        rates = {name: matrix_rate(device, dtype) for name, dtype in used.items()}
        rounds = measure(variants, updates, options, device)
    print(report(variants, rounds, rates, options, device))
    if options.json:
        options.json.write_text(json.dumps(as_json(variants, rounds, rates, options), indent=2))


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argument_parser(__doc__)
    add = parser.add_argument
    models = sorted(path.stem for path in (config_dir() / "model").glob("*.yaml"))
    available = [v for v in VARIANTS if find_spec("transformers") or "marian" not in v]
    add("--model", default="base", choices=models, help="configs/model/*.yaml (default: base)")
    add("--vocab", type=int, default=8000, help="pieces of the vocabulary (default: 8000)")
    add(
        "--data",
        default=SHARED_DATA,
        help="folder of the three corpora (default: ../shared/data), or sample: "
        "the built-in one, for example with --vocab 4000",
    )
    add("--batch-tokens", type=int, default=4096, help="target tokens per update (default: 4096)")
    add(
        "--batches",
        default="bucket",
        choices=["bucket", "mixed"],
        help="bucket: pairs of one length in an update, so the peers need no padding (default); "
        f"mixed: updates of {CHUNKS_PER_BATCH} lengths as in mt-train; peers accumulate gradients",
    )
    add("--variants", default=",".join(available), help="separated by commas (default: all)")
    add("--warmup", type=int, default=2, help="untimed updates of each variant (default: 2)")
    add("--rounds", type=int, default=7, help="rounds (default: 7)")
    add(
        "--updates",
        type=int,
        default=1,
        help="updates of each variant in a round (default: 1; on a GPU use 20)",
    )
    add("--device", default="auto", help="cpu, cuda or auto (default: auto)")
    add("--json", type=Path, help="write all measurements to this file")
    add("--profile", action="store_true", help="profile one update of each variant instead")
    options = parser.parse_args(arguments)
    options.variants = options.variants.split(",")
    for name in options.variants:
        if name not in (*VARIANTS, *WITH_DROPOUT):
            known = ", ".join((*VARIANTS, *WITH_DROPOUT))
            raise InputError(f"no variant {name!r}; there are: {known}")
        if name not in (*available, *WITH_DROPOUT):
            raise InputError(f"{name} needs Hugging Face's library: pip install transformers")
    for key in ("batch_tokens", "warmup", "rounds", "updates"):
        if getattr(options, key) < 1:
            raise InputError(f"--{key.replace('_', '-')} must be at least 1")
    return options


def model_config(name: str) -> ModelConfig:
    """A model of ``configs/model``, post-norm."""
    written = OmegaConf.load(config_dir() / "model" / f"{name}.yaml")
    config = OmegaConf.to_object(OmegaConf.merge(schema(ModelConfig), written))
    assert isinstance(config, ModelConfig)
    return replace(config, norm="post")


def read_corpus(data: str | Path, vocab_size: int) -> TokenStore:
    """Encodes the training text with a vocabulary learned from it; cached in a temporary folder."""
    if data == "sample":
        sources = [SourceConfig(sample="train")]
    else:
        folder = Path(data)
        if not folder.is_dir():
            raise InputError(f"no folder {folder}: set --data FOLDER or --data sample")
        texts = [folder / name / "train" for name in ("multi30k", "wmt-sample")]
        sources = [SourceConfig(src=f"{text}.en.gz", tgt=f"{text}.de.gz") for text in texts]
        sources.append(SourceConfig(tsv=str(folder / "tatoeba" / "en-de.tsv.gz")))
    job = TrainJob(
        cache_dir=str(Path(tempfile.gettempdir()) / f"mt-bench-{getpass.getuser()}"),
        # A job needs a validation set; nothing is validated here.
        data=DataConfig(src_lang="en", tgt_lang="de", train=sources, valid=sources[:1]),
        tokenizer=TokenizerConfig(vocab_size=vocab_size),
    )
    return prepare(job).train.sample


# Updates.


def plan_updates(
    store: TokenStore, options: argparse.Namespace, config: ModelConfig, device: torch.device
) -> Iterator[Update]:
    """Yields updates forever, in the random order of training."""
    bucket = options.batches == "bucket"
    tokens = options.batch_tokens * (CHUNKS_PER_BATCH if bucket else 1)
    plan = BatchPlan(store, tokens, seed=1)
    step = 0
    while True:
        chunks = plan[step].chunks
        for groups in [[chunk] for chunk in chunks] if bucket else [list(chunks)]:
            started = time.perf_counter()
            ours = collate(store, groups, few_shapes=device.type == "cpu")
            between = time.perf_counter()
            padded = [PaddedPairs.collate(store, group) for group in groups]
            done = time.perf_counter()
            pairs = np.concatenate(groups)
            src, tgt = (side.lengths[pairs] for side in (store.src, store.tgt))
            yield Update(
                ours=ours.to(device),
                padded=[part.to(device) for part in padded],
                src_tokens=int(src.sum()),
                tgt_tokens=int(tgt.sum()),
                flops=update_flops(config, options.vocab, src, tgt),
                layout_seconds=(between - started, done - between),
            )
        step += 1


def check_losses(variants: list[Variant], work: Update) -> None:
    """Checks that all variants have the same loss on the same pairs, without dropout."""
    for variant in variants:
        variant.model.eval()
        # Learning rate 0 runs the code that is timed but leaves the weights unchanged.
        variant.loss = variant.step(work, 0.0, 0).item() / work.tgt_tokens
        variant.model.train()
        expected = variants[0].loss
        tolerance = max(LOSS_TOLERANCE[v.precision] for v in (variant, variants[0]))
        if not abs(variant.loss - expected) <= tolerance * expected:
            raise InputError(
                f"the loss per token of {variant.name} is {variant.loss:.5f}, that of "
                f"{variants[0].name} {expected:.5f}: the models differ, so nothing is measured"
            )


# Timing.


def measure(
    variants: list[Variant],
    updates: Iterator[Update],
    options: argparse.Namespace,
    device: torch.device,
) -> list[list[Update]]:
    """Times all variants in every round; returns the updates of each round."""
    for seed in range(options.warmup):
        work = next(updates)
        for variant in variants:
            variant.step(work, LEARNING_RATE, seed)
    rounds = []
    for number in range(options.rounds):
        works = [next(updates) for _ in range(options.updates)]
        rounds.append(works)
        turn = number % len(variants)
        for variant in variants[turn:] + variants[:turn]:
            before = reset_peak_memory(device) - variant.held_bytes
            started = time.perf_counter()
            for seed, work in enumerate(works):
                variant.step(work, LEARNING_RATE, seed)
            synchronize(device)
            variant.seconds.append(time.perf_counter() - started)
            if device.type == "cuda":
                peak = torch.cuda.max_memory_allocated(device) - before
                variant.peak_bytes = max(variant.peak_bytes, peak)
        print(f"round {number + 1} of {options.rounds}", file=sys.stderr)
    return rounds


def reset_peak_memory(device: torch.device) -> int:
    """Synchronises, resets the peak of memory, and returns the memory in use (bytes)."""
    synchronize(device)
    if device.type != "cuda":
        return 0
    torch.cuda.reset_peak_memory_stats(device)
    return torch.cuda.memory_allocated(device)


def synchronize(device: torch.device) -> None:
    """Waits until the device is idle."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def matrix_rate(device: torch.device, dtype: torch.dtype) -> float:
    """FLOP/s of a large square matrix product: the best of ten runs with either library."""
    n, repeats = (8192, 20) if device.type == "cuda" else (2048, 1)
    a, b = (torch.randn(n, n, device=device).to(dtype) for _ in range(2))
    best = float("inf")
    for name in ("torch", "onednn") if HAS_ONEDNN and device.type == "cpu" else ("torch",):
        with suppress(RuntimeError):  # oneDNN has no bf16 products for some processors
            for _ in range(10):
                synchronize(device)
                started = time.perf_counter()
                for _ in range(repeats):
                    KERNELS[name].forward(a, b, None)
                synchronize(device)
                best = min(best, (time.perf_counter() - started) / repeats)
    return 2 * n**3 / best


# The report.


def report(
    variants: list[Variant],
    rounds: list[list[Update]],
    rates: dict[str, float],
    options: argparse.Namespace,
    device: torch.device,
) -> str:
    """Two Markdown tables: each variant, and the speed of ours relative to every other."""
    targets = [sum(work.tgt_tokens for work in works) for works in rounds]
    flops = [sum(work.flops for work in works) for works in rounds]
    everything = [work for works in rounds for work in works]
    real = sum(work.src_tokens + work.tgt_tokens for work in everything)
    padding = 1 - real / sum(work.padded_tokens for work in everything)
    layout = [1e3 * statistics.median(w.layout_seconds[i] for w in everything) for i in (0, 1)]
    head = ["variant", "loss/token", "target tokens/s", "min–max", "ms/update", "MFU"]
    if device.type == "cuda":
        head.append("peak MiB")
    rows = []
    for variant in variants:
        speeds = [n / s for n, s in zip(targets, variant.seconds, strict=True)]
        usage = [n / s for n, s in zip(flops, variant.seconds, strict=True)]
        row = [
            variant.name,
            f"{variant.loss:.5f}",
            f"{statistics.median(speeds):,.0f}",
            f"{min(speeds):,.0f}–{max(speeds):,.0f}",
            f"{1e3 * statistics.median(variant.seconds) / options.updates:,.1f}",
            f"{statistics.median(usage) / rates[variant.precision]:.1%}",
        ]
        rows.append(row + [f"{variant.peak_bytes / 2**20:,.0f}"] * (device.type == "cuda"))
    ours = [v for v in variants if v.name.startswith("ours") and not v.name.endswith("again")]
    versus = [
        [other.name, *("–" if other is mine else ratio(mine, other) for mine in ours)]
        for other in variants
    ]
    matrix_speeds = ", ".join(
        f"{rate / 1e9:,.0f} GFLOP/s in {name}" for name, rate in rates.items()
    )
    notes = [
        f"{options.model}, post-norm, {options.vocab:,} pieces; {options.rounds} rounds of "
        f"{options.updates} update(s) of about {options.batch_tokens:,} target tokens, "
        f"batches: {options.batches}; text: {options.data}",
        f"padding in the peers' batches: {padding:.1%}; collating a batch, not timed: "
        f"{layout[0]:.0f} ms for ours, {layout[1]:.0f} ms for the peers",
        f"matrix products here: {matrix_speeds}; an update takes "
        f"{sum(flops) / sum(targets) / 1e9:.3f} GFLOP per target token",
        "losses: on the same pairs and weights, without dropout, before any update",
    ]
    parts = [heading(torch_details(device)), *map(wrap, notes)]
    parts += ["", table(head, rows)]
    if ours:
        parts += ["", "Speed-up, median of the ratios of the rounds (min–max):", ""]
        parts.append(table(["relative to", *(v.name for v in ours)], versus))
    return "\n".join(parts)


def torch_details(device: torch.device) -> str:
    """Version of PyTorch, number of threads, and GPU if there is one."""
    details = f"torch {torch.__version__}, {torch.get_num_threads()} thread(s)"
    if device.type == "cuda":
        details += f", {torch.cuda.get_device_name(device)}"
    return details


def ratio(mine: Variant, other: Variant) -> str:
    """Speed-up of ``mine`` over ``other``: median and extremes over the rounds."""
    ratios = [b / a for a, b in zip(mine.seconds, other.seconds, strict=True)]
    return spread(ratios)


def as_json(
    variants: list[Variant], rounds: list[list[Update]], rates: dict[str, float], options: Any
) -> dict[str, Any]:
    """All measurements."""
    of_update = ("src_tokens", "tgt_tokens", "padded_tokens", "flops", "layout_seconds")
    of_variant = ("name", "loss", "seconds", "peak_bytes")
    return {
        "options": {key: str(value) for key, value in vars(options).items()},
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "matrix_rates": rates,
        "rounds": [[{k: getattr(w, k) for k in of_update} for w in works] for works in rounds],
        "variants": [{key: getattr(v, key) for key in of_variant} for v in variants],
    }


# The profile.

KINDS = {
    "optimizer": r"Optimizer\.step",
    "attention": r"[Aa]ttention|attn|_Pad|_Unpad",
    "loss": r"CrossEntropy|cross_entropy|[Ll]og_?[Ss]oftmax|[Nn]ll_?[Ll]oss",
    "dropout": r"[Dd]ropout|random_|bernoulli",
    "norm": r"layer_norm|LayerNorm",
}
"""Kinds of work by patterns on the names of an operation and its callers; first match."""
PRODUCTS = re.compile(r"aten::(mm|addmm|_addmm_activation|bmm|baddbmm|linear)$|mkldnn")


def kind_of(event: FunctionEvent) -> str:
    """Kind of work of an operation; matrix products count as such wherever they are called."""
    if PRODUCTS.match(event.name):
        return "matrix products"
    names, caller = [event.name], event.cpu_parent
    while caller is not None:
        names.append(caller.name)
        caller = caller.cpu_parent
    found = (kind for kind, pattern in KINDS.items() if re.search(pattern, " ".join(names)))
    return next(found, "other")


def profile(variant: Variant, updates: Iterator[Update], device: torch.device) -> str:
    """Time of one update by kind of work and by operation."""
    for seed in range(2):
        variant.step(next(updates), LEARNING_RATE, seed)
    work = next(updates)
    with torch.profiler.profile() as profiler:
        variant.step(work, LEARNING_RATE, 0)
        synchronize(device)
    kinds: dict[str, float] = defaultdict(float)
    operations: dict[str, list[float]] = defaultdict(list)
    for event in profiler.events() or []:
        if event.device_type.name == "CPU":  # kernels of a GPU are counted with their operation
            cuda = device.type == "cuda"
            spent = event.self_device_time_total if cuda else event.self_cpu_time_total
            kinds[kind_of(event)] += spent
            operations[event.name].append(spent)
    total = sum(kinds.values())

    def rows(times: dict[str, float]) -> list[list[str]]:
        longest = sorted(times, key=times.__getitem__, reverse=True)[:15]
        return [
            [name[-60:], f"{times[name] / 1e3:,.1f}", f"{times[name] / total:.1%}"]
            for name in longest
        ]

    by_operation = {f"{name} × {len(times)}": sum(times) for name, times in operations.items()}
    parts = [
        f"{variant.name}: one update of {work.tgt_tokens:,} target tokens",
        table(["kind of work", "ms", "share"], rows(kinds)),
        table(["operation itself × calls", "ms", "share"], rows(by_operation)),
    ]
    return "\n\n".join(parts)


if __name__ == "__main__":
    run_main(main)
