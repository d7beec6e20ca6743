"""The pipeline that data.py compares with: Hugging Face's `datasets`, and Python lists."""

import csv
import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from transformer_mt.config import TrainJob
from transformer_mt.data.text.sources import Pair, read_pairs

BATCH_TOKENS = 25_000
Figures = dict[str, Any]


def folder_bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def plain_prepare(job: TrainJob, batched: bool = False) -> Figures:
    os.environ["HF_HUB_OFFLINE"] = "1"
    import datasets

    from transformer_mt.data.cleaning.cleaner import Cleaner
    from transformer_mt.data.cleaning.filters import fold, hash_text
    from transformer_mt.data.store.encode import held_out_hashes
    from transformer_mt.data.subwords.tokenizer import EOS, Tokenizer

    datasets.disable_progress_bars()
    data = job.data
    folder = Path(job.cache_dir)
    cleaner, tokenizer = Cleaner(data), Tokenizer(Path(str(job.tokenizer.path)))
    langs = {"src_lang": data.src_lang, "tgt_lang": data.tgt_lang}
    valid = read_pairs(data.valid if data.cleaning.drop_held_out else [], **langs)
    held_out = held_out_hashes(valid, data, ())

    def normalized(example: Figures) -> Figures:
        return cleaner.normalize(Pair(example["src"], example["tgt"]))._asdict()

    def is_clean(example: Figures) -> bool:
        return cleaner.check_text(example["src"], example["tgt"]) is None

    def encoded(example: Figures) -> Figures:
        src, tgt = tokenizer.encode([example["src"], example["tgt"]])
        return {"src_ids": [*src, EOS], "tgt_ids": [*tgt, EOS]}

    def is_good(example: Figures) -> bool:
        if cleaner.check_lengths(len(example["src_ids"]), len(example["tgt_ids"])) is not None:
            return False
        return not any(hash_text(fold(example[side])) in held_out for side in ("src", "tgt"))

    def examples(batch: Figures) -> Iterator[Figures]:
        return (dict(zip(batch, row, strict=True)) for row in zip(*batch.values(), strict=True))

    def many(function: Callable[[Figures], Figures]) -> Callable[[Figures], Figures]:
        def all_of_batch(batch: Figures) -> Figures:
            rows = [function(example) for example in examples(batch)]
            return {key: [row[key] for row in rows] for key in rows[0]}

        return all_of_batch

    def encoded_batch(batch: Figures) -> Figures:
        ids = {side: tokenizer.encode(batch[side]) for side in ("src", "tgt")}
        return {f"{side}_ids": [[*line, EOS] for line in lines] for side, lines in ids.items()}

    def choose(test: Callable[[Figures], bool]) -> Callable[[Figures], Any]:
        return (lambda batch: [test(example) for example in examples(batch)]) if batched else test

    options: Figures = {"batched": batched, "num_proc": data.workers}
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
    pairs = pairs.map(many(normalized) if batched else normalized, **options)
    pairs = pairs.filter(choose(is_clean), **options)
    pairs = pairs.map(encoded_batch if batched else encoded, **options)
    pairs = pairs.filter(choose(is_good), **options)
    for columns, on in (
        (("src", "tgt"), data.cleaning.deduplicate),
        (("src",), data.cleaning.deduplicate_sources),
        (("tgt",), data.cleaning.deduplicate_targets),
    ):
        if on:
            seen: set[tuple[str, ...]] = set()

            def is_new(
                example: Figures, columns: Any = columns, seen: set[tuple[str, ...]] = seen
            ) -> bool:
                key = tuple(example[column] for column in columns)
                if key in seen:
                    return False
                seen.add(key)
                return True

            pairs = pairs.filter(is_new, load_from_cache_file=False)
    pairs.select_columns(["src_ids", "tgt_ids"]).save_to_disk(str(folder / "saved"))
    lists = list(pairs["src_ids"]), list(pairs["tgt_ids"])
    seconds = time.perf_counter() - started
    return {"seconds": seconds, "kept": len(lists[0]), "bytes": folder_bytes(folder / "saved")}


def batched_prepare(job: TrainJob) -> Figures:
    return plain_prepare(job, batched=True)


def plain_lists(job: TrainJob) -> tuple[list[list[int]], list[list[int]]]:
    import datasets

    saved = datasets.load_from_disk(str(Path(job.cache_dir) / "saved"))
    return list(saved["src_ids"]), list(saved["tgt_ids"])


def plain_open(job: TrainJob) -> Figures:
    started = time.perf_counter()
    plain_lists(job)
    return {"seconds": time.perf_counter() - started}


def plain_plan(job: TrainJob) -> Figures:
    src, tgt = plain_lists(job)

    def epoch(number: int) -> list[list[int]]:
        order = list(range(len(src)))
        draw = random.Random(number)
        draw.shuffle(order)
        order.sort(key=lambda i: max(len(src[i]), len(tgt[i])))
        batches: list[list[int]] = [[]]
        used = 0
        for i in order:
            if used + len(tgt[i]) > BATCH_TOKENS:
                batches.append([])
                used = 0
            batches[-1].append(i)
            used += len(tgt[i])
        draw.shuffle(batches)
        return batches

    started = time.perf_counter()
    steps = len(epoch(0))
    planned = time.perf_counter()
    epoch(9)[steps // 2]
    return {"seconds": planned - started, "seek": time.perf_counter() - planned, "steps": steps}


PLAIN = {
    "datasets.map": (plain_prepare, plain_open, plain_plan),
    "map, batched": (batched_prepare, plain_open, plain_plan),
}
