"""What to expect of a corpus: models trained on nested samples of one mixture of real text.

    python scripts/bench/corpus_sizes.py 10k 30k                  trains; run it again to resume
    python scripts/bench/corpus_sizes.py                          the table and curves of all runs

Each setting trains on the first pairs of one shuffled copy of ../shared/data/mix, validates on
newstest2013, and scores newstest2014 once, at its end. A run is an ordinary `mt-train` in a folder
of --folder; extra arguments after `--` are passed to it.
"""

import json
import random
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Collection
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from process_tree import usage
from real_run_report import intervals, mean_rate
from real_run_text import mix
from reporting import SHARED_DATA, argument_parser, heading, run_main, table

from transformer_mt.cli.compose import override
from transformer_mt.config import SourceConfig
from transformer_mt.data.text.sources import read_pairs
from transformer_mt.errors import InputError
from transformer_mt.files import write_text
from transformer_mt.training.metrics_log import read_records


def every(steps: int) -> list[str]:
    """Ten validations of a run, and five times as many checkpoints."""
    return [f"train.validate_every={steps // 10}", f"train.checkpoint_every={steps // 50}"]


MEDIUM = ["experiment=pairs_300k", "model=medium", "schedule.peak_lr=1.5e-3"]
SETTINGS: dict[str, tuple[int, list[str]]] = {
    "10k": (10_000, ["experiment=pairs_10k"]),
    "30k": (30_000, ["experiment=pairs_30k"]),
    "100k": (100_000, ["experiment=pairs_100k"]),
    "100k-medium": (
        100_000, [*MEDIUM, "model.dropout=0.2", "train.max_steps=7000", *every(7000)]
    ),
    "320k": (322_819, ["experiment=pairs_300k"]),
    "320k-medium": (
        322_819, [*MEDIUM, "model.dropout=0.1", "train.max_steps=7400", *every(7400)]
    ),
}  # fmt: skip
"""Pairs and settings of ``mt-train``, by name."""
COMMON = ["train.log_every=20", "train.max_hours=2"]
"""Settings of all runs."""


def main() -> None:
    options = parse_arguments(__doc__, SETTINGS, Path("runs/corpus_sizes"))
    for name in options.settings:
        train(name, options)
    if not options.settings:
        report(options.folder)


def parse_arguments(doc: str | None, settings: Collection[str], folder: Path) -> Namespace:
    """Names of settings, folders, and the arguments of mt-train after ``--``, ``extra``."""
    parser = argument_parser(doc)
    parser.add_argument("settings", nargs="*", choices=[*settings, []], metavar="SETTING")
    parser.add_argument("--folder", type=Path, default=folder, help="(default: %(default)s)")
    parser.add_argument("--data", type=Path, default=SHARED_DATA, help="default: ../shared/data")
    arguments, extra = sys.argv[1:], []
    if "--" in arguments:
        split = arguments.index("--")
        arguments, extra = arguments[:split], arguments[split + 1 :]
    options = parser.parse_args(arguments)
    options.folder = options.folder.resolve()
    options.folder.mkdir(parents=True, exist_ok=True)
    options.extra = extra
    return options


def train(name: str, options: Namespace) -> None:
    """Trains a setting, or resumes it; appends its time and peak memory to ``usage.jsonl``."""
    run_dir = options.folder / name
    pairs, settings = SETTINGS[name]
    command = [sys.executable, "-m", "transformer_mt.cli", "train", override("run_dir", run_dir)]
    command.append(override("data.train", [SourceConfig(tsv=str(sample(pairs, options)))]))
    command += data_settings(options)
    command += [*settings, *COMMON, *options.extra]
    start, peak, cpu = time.time(), 0, 0.0
    process = subprocess.Popen(command)
    while process.poll() is None:
        used = usage(process.pid)
        peak, cpu = max(peak, used.pss), max(cpu, used.cpu_seconds)
        time.sleep(5)
    record = {"seconds": time.time() - start, "peak_bytes": peak, "cpu_seconds": cpu}
    with (options.folder / f"{name}.usage.jsonl").open("a") as file:
        file.write(json.dumps(record) + "\n")
    if process.returncode:
        raise InputError(f"{name} ended with status {process.returncode}")


def sample(pairs: int, options: Namespace) -> Path:
    """The file of the first pairs of the shuffled corpus, which is written unless it exists."""
    path: Path = options.folder / f"{pairs}.tsv"
    if not path.exists():
        everything = list(read_pairs(mix(options.data)[0], src_lang="en", tgt_lang="de"))
        random.Random(1).shuffle(everything)
        write_text(path, "".join(f"{pair.src}\t{pair.tgt}\n" for pair in everything[:pairs]))
    return path


def data_settings(options: Namespace) -> list[str]:
    """Languages, validation and test set."""
    settings = ["data=files", "data.src_lang=en", "data.tgt_lang=de"]
    for split, year in {"valid": 2013, "test": 2014}.items():
        news = (options.data / f"mix/newstest{year}").resolve()
        source = SourceConfig(src=f"{news}.en.gz", tgt=f"{news}.de.gz")
        settings.append(override(f"data.{split}", [source]))
    return settings


def report(folder: Path) -> None:
    """Prints the table of all finished runs; plots validation BLEU against hours."""
    head = ("setting", "pairs", "million parameters", "updates", "hours", "target tokens/s",
            "peak MiB", "newstest2013", "newstest2014 BLEU", "chrF2")  # fmt: skip
    rows = []
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for name, (pairs, _) in SETTINGS.items():
        run = folder / name
        if not (run / "test.json").exists():
            continue
        records = read_records(run)
        valid = [r for r in records if r["split"] == "valid" and "bleu" in r]
        used = [json.loads(line) for line in (folder / f"{name}.usage.jsonl").open()]
        rows.append(
            (
                name, f"{pairs:,}", f"{parameters(run) / 1e6:.1f}",
                f"{max(r['step'] for r in records):,}",
                f"{sum(u['seconds'] for u in used) / 3600:.2f}",
                f"{mean_rate(intervals(records)):,.0f}",
                f"{max(u['peak_bytes'] for u in used) >> 20:,}",
                f"{max(r['bleu'] for r in valid):.1f}", *test_scores(run),
            )
        )  # fmt: skip
        start = records[0]["time"]
        hours = [(r["time"] - start) / 3600 for r in valid]
        axes.plot(hours, [r["bleu"] for r in valid], marker="o", markersize=3, label=name)
    ticks = [0.1, 0.2, 0.5, 1, 2]
    axes.set(xscale="log", xlabel="hours", ylabel="BLEU, newstest2013")
    axes.set_xticks(ticks, [f"{hours:g}" for hours in ticks])
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    figure.savefig(folder / "curves.png", dpi=110)
    print(heading(f"torch {torch.__version__}, {torch.get_num_threads()} thread(s)"))
    print(f"\n{table(head, rows)}")


def parameters(run: Path) -> int:
    from safetensors import safe_open

    with safe_open(run / "model.safetensors", "np") as file:
        return sum(file.get_tensor(key).size for key in file.keys())  # noqa: SIM118


def test_scores(run: Path) -> tuple[str, str]:
    scores: list[dict[str, Any]] = json.loads((run / "test.json").read_text())
    by_name = {score["name"]: score for score in scores}
    return tuple(  # type: ignore[return-value]
        f"{by_name[name]['score']:.1f}" for name in ("BLEU", "chrF2")
    )


if __name__ == "__main__":
    run_main(main)
