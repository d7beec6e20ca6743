"""Size, start-up time, speed and scores of exported models, as a table.

    python scripts/recipes/student_report.py report.json --run runs/fast/student \\
        --model runs/fast/student runs/fast/student_int8 --model runs/mine runs/fast/teacher_int8

The text is the test set of RUN, or its validation set if it has none. A model runs in a process of
its own, by CTranslate2 (translate_exported.py). Start-up is the time from the start of the process
to its first translation, with one thread; words are counted in the source. Processes take turns;
speeds are medians of the rounds. Lines are translated in batches of 32, and for further scores one
by one, which with a shortlist gives other translations. OUTPUT receives all measurements.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from recipe import argument_parser, main
from tabulate import tabulate

from transformer_mt import files, model_folder
from transformer_mt.config import TrainJob
from transformer_mt.data.held_out import with_written_sets
from transformer_mt.data.text.normalization import Normalizer
from transformer_mt.data.text.sources import read_pairs
from transformer_mt.errors import InputError
from transformer_mt.evaluation.metrics import make_metric
from transformer_mt.kernels.hardware import device_name

THREADS = (1, 2)


def report() -> None:
    parser = argument_parser(__doc__)
    add = parser.add_argument
    add("output", type=Path, metavar="OUTPUT", help="JSON file to write")
    add("--run", type=Path, required=True, help="run folder, whose test set is used")
    add("--model", nargs=2, action="append", required=True, metavar=("MODEL", "EXPORTED"),
        help="model, and the folder that mt-export format=ctranslate2 wrote; repeated")  # fmt: skip
    add("--lines", type=int, default=500, help="lines of which speeds are measured (default: 500)")
    add("--rounds", type=int, default=3, help="rounds (default: 3)")
    add("--beams", type=int, nargs="+", default=[1, 4], metavar="SIZE",
        help="beam sizes (default: 1 4)")  # fmt: skip
    options = parser.parse_args()
    job = model_folder.read_config(options.run, TrainJob)
    data = with_written_sets(job.data, options.run)
    pairs = list(read_pairs(data.test or data.valid, *data.languages()))
    normalizer = Normalizer(data)
    sources = [normalizer.src(pair.src) for pair in pairs]
    references = [[pair.tgt for pair in pairs]]
    metrics = {name: make_metric(name, data.tgt_lang) for name in ("bleu", "chrf")}

    rows = []
    for model, exported in options.model:
        sizes = {path.name: path.stat().st_size / 1e6 for path in Path(exported).iterdir()}
        label = Path(exported).name
        row = {"model": model, "label": label, "exported": exported, "arguments": []}
        if shortlist := sizes.pop("vmap.txt", 0):
            size = sum(sizes.values()) + shortlist
            rows.append({**row, "label": f"{label}, shortlist", "megabytes": size})
            row["arguments"] = ["--all-pieces"]
        rows.append({**row, "megabytes": sum(sizes.values())})
    for _ in range(options.rounds):
        for row in rows:
            for threads in THREADS:
                seconds, found = measure(row, threads, options.beams, sources[: options.lines])
                row.setdefault(f"starts {threads}", []).append(seconds)
                for beam in options.beams:
                    speeds = row.setdefault(f"words_per_second {threads} {beam}", [])
                    speeds.append(found[str(beam)]["words_per_second"])
    signatures = {}
    for row in rows:
        for prefix, more in (("", []), ("single ", ["--batch", "1"])):
            setting = {**row, "arguments": row["arguments"] + more}
            _, found = measure(setting, max(THREADS), options.beams, sources)
            for beam in options.beams:
                texts = found[str(beam)]["translations"]
                for name, metric in metrics.items():
                    row[f"{prefix}{name} {beam}"] = metric.corpus_score(texts, references).score
                    signatures[name] = str(metric.get_signature())
    cpu = device_name(torch.device("cpu"))
    files.write_json(options.output, {"cpu": cpu, "signatures": signatures, "models": rows})
    print(to_table(rows, options.beams), f"{len(pairs):,} segments", *signatures.values(), sep="\n")


def measure(
    row: dict[str, Any], threads: int, beams: Sequence[int], lines: Sequence[str]
) -> tuple[float, dict[str, Any]]:
    """Seconds to the first translation of a process, and speeds and translations by beam size."""
    program = str(Path(__file__).with_name("translate_exported.py"))
    command = [sys.executable, program, row["exported"], "--json", *row["arguments"]]
    command += ["--threads", str(threads), "--beams", *map(str, beams)]
    start = time.perf_counter()
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert process.stdout is not None
    process.stdout.readline()
    seconds = time.perf_counter() - start
    out, _ = process.communicate("".join(f"{line}\n" for line in lines))
    if process.returncode:
        raise InputError(f"{row['exported']} cannot be run by CTranslate2 (see above)")
    return seconds, json.loads(out)


def to_table(rows: Sequence[dict[str, Any]], beams: Sequence[int]) -> str:
    """A Markdown table with a column for each model, which fits a terminal."""
    figures = {
        "size of all files, MB": [f"{row['megabytes']:.1f}" for row in rows],
        "start-up, s": [f"{statistics.median(row['starts 1']):.2f}" for row in rows],
    }
    for threads in THREADS:
        for beam in beams:
            name = f"words/s, {threads} thread{'s' * (threads > 1)}, beam {beam}"
            speeds = (row[f"words_per_second {threads} {beam}"] for row in rows)
            figures[name] = [f"{statistics.median(speed):,.0f}" for speed in speeds]
    for name, label in {"bleu": "BLEU", "chrf": "chrF2"}.items():
        for beam in beams:
            for prefix, lines in (("", ""), ("single ", ", single lines")):
                scores = [f"{row[f'{prefix}{name} {beam}']:.2f}" for row in rows]
                figures[f"{label}, beam {beam}{lines}"] = scores
    align = ["left", *["right"] * len(rows)]
    return tabulate(
        [[name, *cells] for name, cells in figures.items()],
        ["", *(row["label"] for row in rows)],
        tablefmt="pipe",
        colalign=align,
        disable_numparse=True,
    )


if __name__ == "__main__":
    main(report)
