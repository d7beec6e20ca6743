"""Speed and memory of data preparation, compared with Hugging Face's `datasets`.

    python scripts/bench/data.py --pairs 20000                           a quick look
    python scripts/bench/data.py --pairs 4500000 --pipelines ours        as many as WMT14 has

The text is real, enlarged by joining one to three random pairs (seeded). "ours" is what
mt-train stage=prepare does with a given vocabulary: normalise, clean, encode, deduplicate, write.
The plain pipeline is what a script would do: the same filters and vocabulary in a batched map on
all cores, and sets of what was seen. Both must keep the same number of pairs.

Each pipeline runs in a process of its own. Seconds are without the start and the imports; memory is
the peak of all its processes, libraries included, with pages that they share counted once. Files
are written to a temporary folder (TMPDIR).
"""

import argparse
import csv
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import compress
from pathlib import Path
from typing import Any

import shared

from transformer_mt import compose
from transformer_mt.cli.compose import override
from transformer_mt.config import SourceConfig, TrainJob
from transformer_mt.data.cleaning.cleaner import Cleaner, check_lengths
from transformer_mt.data.held_out import side_hashes
from transformer_mt.data.prepare import prepare
from transformer_mt.data.subwords.tokenizer import EOS, Tokenizer
from transformer_mt.data.text.sources import read_pairs
from transformer_mt.errors import InputError
from transformer_mt.kernels.hardware import available_cores
from transformer_mt.protocols import Pair

Figures = dict[str, Any]


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    with tempfile.TemporaryDirectory(prefix="bench-data-") as scratch:
        print(report(measure_all(options, Path(scratch)), options))


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = shared.argument_parser(__doc__)
    add = parser.add_argument
    add("--pairs", type=int, default=200_000, help="pairs of text (default: 200,000)")
    pipelines = ",".join(PIPELINES)
    add("--pipelines", default=pipelines, help="separated by commas (default: %(default)s)")
    add("--vocab", type=int, default=16_000, help="pieces of the vocabulary (default: 16000)")
    add("--workers", type=int, default=available_cores(), help="processes (default: all cores)")
    shared.add_corpus(parser)
    options = parser.parse_args(arguments)
    options.pipelines = shared.split_names(options.pipelines, [*PIPELINES])
    shared.check_positive(options, "pairs", "workers")
    if not options.data.is_dir():
        raise InputError(f"no folder {options.data}: set --data FOLDER")
    return options


def measure_all(options: argparse.Namespace, scratch: Path) -> list[Figures]:
    """The measurements of every pipeline."""
    print("writing the text and the vocabulary", file=sys.stderr)
    text = scratch / "text.tsv"
    write_text(text, options)
    vocabulary = prepare(make_job(options, text, scratch / "vocabulary")).tokenizer_model
    rows = []
    for name in options.pipelines:
        print(name, file=sys.stderr)
        job = make_job(options, text, scratch / name, vocabulary)
        figures, peak = shared.in_new_process(PIPELINES[name], job)
        rows.append({"name": name, "peak": peak, **figures})
    if len(kept := {row["kept"] for row in rows}) > 1:
        raise InputError(f"the pipelines keep different numbers of pairs, {kept}: not comparable")
    return rows


def write_text(path: Path, options: argparse.Namespace) -> None:
    """Writes pairs made by joining one to three random real ones."""
    train, _ = shared.CORPORA[options.corpus](options.data)
    pool = [
        pair
        for pair in read_pairs(train, "en", "de")
        if "\t" not in pair.src + pair.tgt and "\r" not in pair.src + pair.tgt
    ]
    draw = random.Random(1)
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for _ in range(options.pairs):
            pairs = draw.choices(pool, k=draw.choice((1, 2, 3)))
            src, tgt = (" ".join(pair[side] for pair in pairs) for side in (0, 1))
            file.write(f"{src}\t{tgt}\n")


def make_job(
    options: argparse.Namespace, text: str | Path, cache: str | Path, vocabulary: Path | None = None
) -> TrainJob:
    """The preparation of a text, with a vocabulary learned from it unless one is given."""
    tokenizer = f"tokenizer.vocab_size={options.vocab}"
    if vocabulary is not None:
        tokenizer = override("tokenizer.path", vocabulary)
    train = [SourceConfig(tsv=str(text))]
    valid = [shared.files_of(options.data / "multi30k", "val")]
    cleaning = ["cleaning=standard", f"data.workers={options.workers}"]
    cached = override("cache_dir", cache)
    return compose([*shared.data_settings(train, valid), *cleaning, tokenizer, cached])


# The pipelines.


def ours(job: TrainJob) -> Figures:
    """The preparation of mt-train."""
    started = time.perf_counter()
    prepared = prepare(job)
    seconds = time.perf_counter() - started
    return summary(seconds, int(prepared.train.source_sizes.sum()), prepared.corpus)


def summary(seconds: float, kept: int, folder: Path) -> Figures:
    written = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    return {"seconds": seconds, "kept": kept, "bytes": written}


def datasets_map(job: TrainJob) -> Figures:
    """Steps of ``datasets`` that keep the same pairs."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    import datasets

    data, folder = job.data, Path(job.cache_dir)
    tokenizer = Tokenizer(Path(str(job.tokenizer.path)))
    valid = read_pairs(data.valid, *data.languages())
    cleaner = Cleaner(data, held_out=side_hashes(valid, data, ()))

    def clean(batch: Figures) -> Figures:
        """Normalises, filters and encodes a batch of pairs."""
        cleaned = [cleaner.clean(Pair(*row)) for row in rows(batch, "src", "tgt")]
        pairs = [pair.text for pair in cleaned if pair.dropped_by is None]
        src, tgt = ([pair[side] for pair in pairs] for side in (0, 1))
        src_ids, tgt_ids = ([[*tokenizer.encode(x), EOS] for x in side] for side in (src, tgt))
        columns: Figures = {"src": src, "tgt": tgt, "src_ids": src_ids, "tgt_ids": tgt_ids}
        lengths = zip(map(len, src_ids), map(len, tgt_ids), strict=True)
        good = [check_lengths(data.cleaning, *each) is None for each in lengths]
        return {name: [*compress(column, good)] for name, column in columns.items()}

    datasets.disable_progress_bars()
    started = time.perf_counter()
    pairs = datasets.load_dataset(
        "csv",
        data_files=str(data.train[0].tsv),
        split="train",
        cache_dir=str(folder / "cache"),
        sep="\t",
        names=["src", "tgt"],
        quoting=csv.QUOTE_NONE,
        keep_default_na=False,
    )
    pairs = pairs.map(clean, batched=True, num_proc=data.workers)
    if by := data.cleaning.deduplicate:
        columns = ("src", "tgt") if by == "pairs" else ("src",)
        pairs = pairs.filter(first_of(columns), batched=True, load_from_cache_file=False)
    pairs.select_columns(["src_ids", "tgt_ids"]).save_to_disk(str(folder / "saved"))
    seconds = time.perf_counter() - started
    return summary(seconds, len(pairs), folder / "saved")


def rows(batch: Figures, *columns: str) -> Iterator[tuple[Any, ...]]:
    """The rows of a batch."""
    return zip(*(batch[column] for column in columns), strict=True)


def first_of(columns: Sequence[str]) -> Callable[[Figures], list[bool]]:
    """A test that only the first row with the same values in these columns passes."""
    seen: set[tuple[str, ...]] = set()

    def is_new(batch: Figures) -> list[bool]:
        found = []
        for row in rows(batch, *columns):
            found.append(row not in seen)
            seen.add(row)
        return found

    return is_new


PIPELINES = {"ours": ours, "datasets": datasets_map}


def report(found: Sequence[Figures], options: argparse.Namespace) -> str:
    """A Markdown table with a note above it."""
    head = ["pipeline", "seconds", "pairs/s", "first ÷ it", "peak MiB", "bytes a pair kept"]
    lines = [
        [
            row["name"],
            f"{row['seconds']:.2f}",
            f"{options.pairs / row['seconds']:,.0f}",
            f"{row['seconds'] / found[0]['seconds']:.2f}",
            f"{row['peak'] / 2**20:,.0f}",
            f"{row['bytes'] / row['kept']:.0f}",
        ]
        for row in found
    ]
    note = (
        f"{options.pairs:,} pairs of {options.corpus}, of which {found[0]['kept']:,} are kept; "
        f"cleaning=standard, {options.vocab:,} pieces, {options.workers} process(es)"
    )
    return "\n".join([shared.heading(), shared.wrap(note), "", shared.table(head, lines)])


if __name__ == "__main__":
    shared.run_main(main)
