"""Speed and memory of data preparation and batch planning, compared with `datasets.map`.

    python scripts/bench/data.py                     4.5 million pairs, and a plan of 100 million
    python scripts/bench/data.py --pairs 20000 --plan-pairs 1000000        a quick look
    python scripts/bench/data.py --shards 300000000       only the plan of so many pairs, by shards

The text is real, from ../shared/data, enlarged by joining one to three random pairs (seeded).
"ours" is the pipeline of mt-train: normalise, clean, encode, deduplicate, write. The plain
pipeline is what a script would do with Hugging Face's datasets: the same filters and the same
vocabulary as map and filter steps on all cores (one example at a time, or batched), a set of the
hashes seen, the result as Python lists, and in each epoch a shuffled, sorted and batched list of
indices. It gets the first --plain-pairs pairs, and ours is measured on those too: rates are
compared on the same pairs, and both must keep the same number of them.

Each figure comes from a separate process. Memory is the peak of the proportional set sizes of the
process and all its children, minus that of the process once its libraries were loaded.
"""

import argparse
import json
import multiprocessing
import platform
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from data_peers import BATCH_TOKENS, PLAIN, Figures, folder_bytes
from data_scale import RANKS, plan_shards, write_synthetic_corpus
from omegaconf import OmegaConf
from process_tree import usage
from reporting import SHARED_DATA, argument_parser, heading, table, wrap

from transformer_mt.config import (
    CleaningConfig,
    DataConfig,
    SourceConfig,
    TokenizerConfig,
    TrainJob,
    config_dir,
    schema,
)
from transformer_mt.data.text.sources import read_pairs
from transformer_mt.errors import InputError
from transformer_mt.kernels.hardware import available_cores


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    with tempfile.TemporaryDirectory(prefix="bench-data-", dir=options.folder) as scratch:
        if options.shards:
            rows = measure_shards(options, Path(scratch))
            print(report_shards(rows, options))
        else:
            rows = measure(options, Path(scratch))
            print(report(rows, options))
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2))


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argument_parser(__doc__)
    add = parser.add_argument
    add("--pairs", type=int, default=4_500_000, help="pairs of text (default: 4.5 million)")
    add(
        "--plain-pairs",
        type=int,
        default=200_000,
        help="how many of them datasets.map gets (default: 200k)",
    )
    add("--plan-pairs", type=int, default=100_000_000, help="synthetic plan (default: 100 million)")
    add("--shards", type=int, metavar="PAIRS", help="measure only the plan of so many pairs")
    add("--window-pairs", type=int, default=DataConfig.window_pairs, help="data.window_pairs")
    add("--updates", type=int, default=100, help="updates to read (default: 100)")
    add("--ranks", type=int, nargs="+", default=RANKS, help="processes that plan (default: 1 8)")
    add("--epochs", type=int, nargs="+", default=(1, 10), help="which epochs (default: 1 10)")
    add("--cleaning", default="standard", help="configs/cleaning/*.yaml (default: standard)")
    add("--vocab", type=int, default=16_000, help="pieces of the vocabulary (default: 16000)")
    add("--workers", type=int, default=available_cores(), help="processes (default: all cores)")
    add("--data", type=Path, default=SHARED_DATA, help="the text (default: ../shared/data)")
    add("--folder", type=Path, help="where to write, 3 GB (default: a temporary folder)")
    add("--json", type=Path, help="write all measurements to this file")
    options = parser.parse_args(arguments)
    for key in ("pairs", "plain_pairs", "plan_pairs", "workers"):
        if getattr(options, key) < 1:
            raise InputError(f"--{key.replace('_', '-')} must be at least 1")
    options.plain_pairs = min(options.plain_pairs, options.pairs)
    if not options.data.is_dir():
        raise InputError(f"no folder {options.data}: set --data FOLDER")
    return options


def measure(options: argparse.Namespace, scratch: Path) -> list[Figures]:
    """The measurements of every row of the table."""
    report_progress("writing the text")
    whole, part = scratch / "whole.tsv", scratch / "part.tsv"
    write_text(whole, options.data, options.pairs)
    with whole.open("rb") as lines:
        part.write_bytes(b"".join(islice(lines, options.plain_pairs)))
    job = make_job(part, scratch / "part", options)
    report_progress("learning the vocabulary")
    vocabulary = in_new_process(learn_vocabulary, job)["vocabulary"]
    job = replace(job, tokenizer=TokenizerConfig(path=vocabulary))
    sizes = {options.pairs: whole, options.plain_pairs: part}
    rows = []
    for pairs, text in sizes.items():
        ours = replace(job, cache_dir=str(scratch / f"ours-{pairs}"))
        ours = replace(ours, data=replace(ours.data, train=[SourceConfig(tsv=str(text))]))
        rows.append({"name": "ours", "pairs": pairs, **run_steps(OURS, ours)})
    for name, steps in PLAIN.items():
        plain = replace(job, cache_dir=str(scratch / name.replace(" ", "-")))
        rows.append({"name": name, "pairs": options.plain_pairs, **run_steps(steps, plain)})
    kept = {row["kept"] for row in rows if row["pairs"] == options.plain_pairs}
    if len(kept) > 1:
        raise InputError(f"the pipelines keep different numbers of pairs ({kept}); not comparable")
    rows.append(
        {"name": "plan only", "pairs": options.plan_pairs}
        | in_new_process(plan_synthetic, options.plan_pairs, scratch / "offsets")
    )
    return rows


def run_steps(steps: Sequence[Callable[[TrainJob], Figures]], job: TrainJob) -> Figures:
    """The measurements of several steps, each in a new process."""
    figures: Figures = {}
    for step in steps:
        report_progress(f"{step.__name__.replace('_', ' ')} {job.cache_dir}")
        figures |= {
            f"{step.__name__.rpartition('_')[2]}_{k}": v
            for k, v in in_new_process(step, job).items()
        }
    return figures | {"kept": figures["prepare_kept"]}


def report_progress(text: str) -> None:
    print(text, file=sys.stderr)


# The text.


def write_text(path: Path, data: Path, count: int) -> None:
    """Writes pairs made by joining one to three random real ones."""
    pool = [
        pair
        for source in real_sources(data)
        for pair in read_pairs([source], src_lang="en", tgt_lang="de")
        if "\t" not in pair.src + pair.tgt and "\r" not in pair.src + pair.tgt
    ]
    draw = random.Random(1)
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for _ in range(count):
            pairs = draw.choices(pool, k=draw.choice((1, 2, 3)))
            src, tgt = (" ".join(pair[side] for pair in pairs) for side in (0, 1))
            file.write(f"{src}\t{tgt}\n")


def real_sources(data: Path) -> list[SourceConfig]:
    texts = [data / name / "train" for name in ("multi30k", "wmt-sample")]
    sources = [SourceConfig(src=f"{text}.en.gz", tgt=f"{text}.de.gz") for text in texts]
    return [*sources, SourceConfig(tsv=str(data / "tatoeba" / "en-de.tsv.gz"))]


def make_job(text: Path, cache: Path, options: argparse.Namespace) -> TrainJob:
    written = OmegaConf.load(config_dir() / "cleaning" / f"{options.cleaning}.yaml")
    cleaning = OmegaConf.to_object(OmegaConf.merge(schema(CleaningConfig), written))
    assert isinstance(cleaning, CleaningConfig)
    valid = options.data / "multi30k" / "val"
    return TrainJob(
        cache_dir=str(cache),
        data=DataConfig(
            src_lang="en",
            tgt_lang="de",
            train=[SourceConfig(tsv=str(text))],
            valid=[SourceConfig(src=f"{valid}.en.gz", tgt=f"{valid}.de.gz")],
            cleaning=cleaning,
            normalization="none" if options.cleaning == "none" else "standard",
            workers=options.workers,
        ),
        tokenizer=TokenizerConfig(vocab_size=options.vocab),
    )


# Processes and their memory.


def in_new_process(work: Callable[..., Figures], *args: Any) -> Figures:
    """Runs ``work`` in a new process; its result, plus its peak memory in bytes as ``peak``."""
    (figures,), peak = in_new_processes(work, [args])
    return {**figures, "peak": peak}


def in_new_processes(
    work: Callable[..., Figures], each: Sequence[tuple[Any, ...]]
) -> tuple[list[Figures], int]:
    """Runs ``work`` in a new process for each tuple of arguments, at the same time.

    Returns:
        The results, and the peak memory of all processes in bytes: pages that they share count
        once.
    """
    context = multiprocessing.get_context("spawn")
    pipes, processes = [], []
    for args in each:
        here, there = context.Pipe()
        process = context.Process(target=_work, args=(there, work, args))
        process.start()
        there.close()
        pipes.append(here)
        processes.append(process)
    try:
        for pipe in pipes:
            pipe.recv()  # its libraries are loaded
        memory = PeakMemory([process.pid for process in processes if process.pid])
        for pipe in pipes:
            pipe.send("go")
        figures = [pipe.recv() for pipe in pipes]
        peak = memory.stop()
        for pipe in pipes:
            pipe.send("done")
    except EOFError:
        raise SystemExit(f"{work.__name__} failed") from None
    finally:
        for process in processes:
            process.join()
    return figures, peak


def _work(pipe: Connection, work: Callable[..., Figures], args: tuple[Any, ...]) -> None:
    for module in LIBRARIES.get(work.__name__.partition("_")[0], []):
        __import__(module)
    pipe.send("ready")
    pipe.recv()
    pipe.send(work(*args))
    pipe.recv()


LIBRARIES = {
    "ours": ["transformer_mt.data.prepare", "transformer_mt.data.batching.plan"],
    "learn": ["transformer_mt.data.prepare"],
    "plan": ["transformer_mt.data.batching.sharded_plan"],
    "plain": ["transformer_mt.data.store.encode", "datasets"],
    "batched": ["transformer_mt.data.store.encode", "datasets"],
}


class PeakMemory:
    """Peak memory of processes and their children above the present level, sampled every 0.1 s."""

    def __init__(self, pids: Sequence[int]):
        self._pids = pids
        self._before = self._peak = self._now()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._over.wait(0.1):
            self._peak = max(self._peak, self._now())

    def _now(self) -> int:
        return sum(usage(pid).pss for pid in self._pids)

    def stop(self) -> int:
        self._over.set()
        self._thread.join()
        return self._peak - self._before


@dataclass
class Clock:
    """Stopwatch: ``lap()`` returns the seconds since the last lap."""

    started: float = field(default_factory=time.perf_counter)

    def lap(self) -> float:
        now = time.perf_counter()
        lap, self.started = now - self.started, now
        return lap


# Ours.


def learn_vocabulary(job: TrainJob) -> Figures:
    from transformer_mt.data.prepare import prepare

    return {"vocabulary": str(prepare(job).tokenizer_model)}


def ours_prepare(job: TrainJob) -> Figures:
    from transformer_mt.data.prepare import prepare

    clock = Clock()
    prepared = prepare(job)
    store = prepared.train.sample
    return {
        "seconds": clock.lap(),
        "kept": len(prepared.train),
        "bytes": folder_bytes(prepared.corpus),
        "tokens": sum(len(side.tokens) for side in (store.src, store.tgt)),
    }


def ours_open(job: TrainJob) -> Figures:
    from transformer_mt.data.prepare import prepare

    clock = Clock()
    prepare(job)
    return {"seconds": clock.lap()}


def ours_plan(job: TrainJob) -> Figures:
    from transformer_mt.data.prepare import prepare

    return plan(prepare(job).train.sample)


def plan(store: Any) -> Figures:
    """Times planning the first epoch, then seeking to the middle of the tenth."""
    from transformer_mt.data.batching.plan import BatchPlan

    clock = Clock()
    batches = BatchPlan(store, BATCH_TOKENS, seed=1)
    batches[0]
    first = clock.lap()
    batches[int(9.5 * batches.steps_per_epoch)]
    return {"seconds": first, "seek": clock.lap(), "steps": batches.steps_per_epoch}


def plan_synthetic(pairs: int, folder: Path) -> Figures:
    """Plans pairs with lengths like WMT's as a whole; their tokens take no disk."""
    from transformer_mt.data.store.token_store import Corpus

    write_synthetic_corpus(folder, pairs, 1)
    return {f"plan_{key}": value for key, value in plan(Corpus.load(folder).sample).items()}


OURS = (ours_prepare, ours_open, ours_plan)


# Shards.


def measure_shards(options: argparse.Namespace, scratch: Path) -> list[Figures]:
    """The measurements of the plan of a large corpus, for each number of ranks and epoch."""
    report_progress("writing the offsets")
    folder = scratch / "corpus"
    write_synthetic_corpus(folder, options.shards, max(2, options.shards // options.window_pairs))
    rows = []
    for ranks in options.ranks:
        for epoch in options.epochs:
            report_progress(f"{ranks} rank(s), epoch {epoch}")
            barrier = multiprocessing.get_context("spawn").Barrier(ranks)
            args = (folder, options.updates, epoch - 1, barrier)
            results, peak = in_new_processes(plan_shards, [args] * ranks)
            largest = {key: max(result[key] for result in results) for key in results[0]}
            rows.append({"ranks": ranks, "epoch": epoch, "peak": peak, **largest})
    return rows


def report_shards(rows: list[Figures], options: argparse.Namespace) -> str:
    """A Markdown table with notes above it."""
    head = ["ranks", "epoch", "open s", "seek s", "again s", "longest wait s", "all waits s"]
    head += ["anonymous MiB", "resident MiB", "all ranks MiB"]
    lines = [
        [
            f"{row['ranks']}",
            f"{row['epoch']}",
            f"{row['open']:.2f}",
            f"{row['seek']:.2f}",
            f"{row['warm_seek']:.2f}",
            f"{row['longest_wait']:.3f}",
            f"{row['wait']:.1f}",
            f"{row['anonymous'] / 2**20:,.0f}",
            f"{row['resident'] / 2**20:,.0f}",
            f"{row['peak'] / 2**20:,.0f}",
        ]
        for row in rows
    ]
    first = rows[0]
    notes = [
        f"{options.shards:,} pairs with lengths like WMT's, tokens in sparse files: "
        f"{first['shards']} shards, {first['steps']:,} updates in an epoch.",
        "Open: seconds to open the corpus and make the plan. Seek: to a step in the middle of the "
        "epoch, whose shard nothing has read before; again: with the shard in the page cache. "
        f"Then the last {options.updates:,} updates of a shard and as many of the next are "
        "read, without a pause for computing: waits are the seconds for their plans. Memory of "
        "the largest rank above the loaded libraries: anonymous, and resident with the pages of "
        "mapped files; and of all ranks, pages that they share once.",
    ]
    place = f"Python {platform.python_version()}, {available_cores()} core(s)"
    return "\n".join([heading(place), *map(wrap, notes), "", table(head, lines)])


# The report.


def report(rows: list[Figures], options: argparse.Namespace) -> str:
    """A Markdown table with notes above it."""
    head = ["pipeline", "pairs", "pairs/s", "peak MiB", "B/pair", "open s", "plan s", "seek s"]
    head.append("plan MiB")
    lines = []
    for row in rows:
        prepared = "prepare_seconds" in row
        seconds = row.get("prepare_seconds", 1.0)
        plan_peak = row["plan_peak"] if "plan_peak" in row else row.get("peak", 0)
        lines.append(
            [
                row["name"],
                f"{row['pairs']:,}",
                f"{row['pairs'] / seconds:,.0f}" if prepared else "–",
                f"{row['prepare_peak'] / 2**20:,.0f}" if prepared else "–",
                f"{row['prepare_bytes'] / row['kept']:.0f}" if prepared else "–",
                f"{row['open_seconds']:.2f}" if prepared else "–",
                f"{row['plan_seconds']:.2f}",
                f"{row['plan_seek']:.2f}",
                f"{plan_peak / 2**20:,.0f}",
            ]
        )
    part = {row["name"]: row for row in rows if row["pairs"] == options.plain_pairs}
    ours = part["ours"]["prepare_seconds"]
    faster = ", ".join(
        f"{row['prepare_seconds'] / ours:.2f} × {name}"
        for name, row in part.items()
        if name in PLAIN
    )
    scale = options.pairs / options.plain_pairs
    lists = part["datasets.map"]
    scaled = (
        f"Extrapolated to {options.pairs:,} pairs ({scale:.1f} ×), not measured: plain pipelines "
        f"would take {scale * lists['plan_peak'] / 2**30:.1f} GiB for its lists, "
        f"{scale * lists['open_seconds']:.0f} s to open them and "
        f"{scale * lists['plan_seconds']:.1f} s for a plan."
    )
    notes = [
        f"Cleaning: {options.cleaning}; {part['ours']['kept']:,} of {options.plain_pairs:,} pairs "
        f"kept by all; {rows[0]['prepare_tokens'] / rows[0]['kept']:.1f} tokens a pair kept; "
        f"{options.workers} process(es).",
        f"Speed of ours on the same {options.plain_pairs:,} pairs: {faster}.",
        scaled,
        "Open: seconds to the first pair in a new process, libraries loaded. Seek: seconds to a "
        "step in the middle of the tenth epoch. MiB: all processes, above the loaded libraries.",
    ]
    place = f"Python {platform.python_version()}, {available_cores()} core(s)"
    return "\n".join([heading(place), *map(wrap, notes), "", table(head, lines)])


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        sys.exit(f"data.py: error: {error}")
