"""What back-translation gains on real text: tagged or not, by beam search or by sampling.

    python scripts/bench/back_translation.py beam none beam-untagged beam-weighted sampling
    python scripts/bench/back_translation.py                     the table of what is finished

60,000 pairs of ../shared/data/mix are the parallel text, the German sides of 200,000 others the
monolingual text. `beam` and `sampling` are tagged and made by `scripts/back_translate`; `beam`
is first: the others use its reverse model and its vocabulary. `beam-weighted` sees the parallel
text three times an epoch. All models are trained for as many updates, validated on newstest2013,
and scored on newstest2014 once, at the end. Run it again to resume; arguments after `--` are
passed to all runs of mt-train, such as train.max_steps=5000.
"""

import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import torch
from corpus_sizes import data_settings, parse_arguments, sample, test_scores
from reporting import heading, run_main, table

from transformer_mt.cli.compose import override
from transformer_mt.config import SourceConfig
from transformer_mt.errors import InputError
from transformer_mt.files import write_text
from transformer_mt.training.metrics_log import read_records

PARALLEL, MONOLINGUAL = 60_000, 200_000
TRAIN = [
    "experiment=pairs_100k", "model.dropout=0.2", "train.max_steps=8000",
    "train.validate_every=1000", "train.checkpoint_every=100", "train.log_every=20",
]  # fmt: skip
"""Settings of all runs."""
METHODS: dict[str, list[str]] = {"beam": [], "sampling": ["translate:sampling=true"]}
"""Arguments of ``scripts/back_translate`` by the method that translates the monolingual text."""
VARIANTS = {
    "beam-untagged": ("beam", None, []),
    "sampling-untagged": ("sampling", None, []),
    "beam-weighted": ("beam", "<bt>", ["data.weights=[3,1]"]),
}
"""Runs on the text of a method, by name: the method, the tag of its source, other settings."""
RUNS = {"none": "none", **{name: f"{name}/forward" for name in METHODS}} | {n: n for n in VARIANTS}
"""Run folders by name."""
RECIPE = Path(__file__).parents[1] / "recipes/back_translate.py"


def main() -> None:
    options = parse_arguments(__doc__, RUNS, Path("runs/back_translation"))
    for name in options.settings:
        train(name, options)
    if not options.settings:
        report(options.folder)


def train(name: str, options: Namespace) -> None:
    """Trains a model, or resumes it."""
    folder = options.folder
    reverse = folder / "beam/reverse"
    sources = [SourceConfig(tsv=str(sample(PARALLEL, options)))]
    if name in METHODS:
        command = [sys.executable, str(RECIPE), str(folder / name), *METHODS[name]]
        command += ["--mono", str(monolingual(options))]
        command += ["--reverse", str(reverse)] if name != "beam" else []
        vocabulary = "forward:tokenizer.path"
    else:
        command = [sys.executable, "-m", "transformer_mt.cli", "train"]
        command.append(override("run_dir", folder / name))
        vocabulary = "tokenizer.path"
        if name != "none":
            method, tag, settings = VARIANTS[name]
            text = folder / method / "back_translated.tsv"
            sources.append(SourceConfig(tsv=str(text), tag=tag))
            command += settings
    command += [override("data.train", sources), *data_settings(options), *TRAIN]
    command += [override(vocabulary, reverse / "tokenizer.model"), *options.extra]
    if status := subprocess.run(command).returncode:
        raise InputError(f"{name} ended with status {status}")


def monolingual(options: Namespace) -> Path:
    """The file of the German text, which is written unless it exists."""
    path: Path = options.folder / "mono.de"
    if not path.exists():
        rows = sample(PARALLEL + MONOLINGUAL, options).read_bytes().decode().split("\n")
        write_text(path, "".join(row.split("\t")[1] + "\n" for row in rows[PARALLEL:-1]))
    return path


def report(folder: Path) -> None:
    """Prints the scores of all finished runs."""
    rows = []
    for name, run in RUNS.items():
        if (folder / run / "test.json").exists():
            records = read_records(folder / run)
            best = max(r["bleu"] for r in records if r["split"] == "valid" and "bleu" in r)
            rows.append((name, f"{best:.1f}", *test_scores(folder / run)))
    print(heading(f"torch {torch.__version__}"))
    print(f"\n{table(('run', 'newstest2013 BLEU', 'newstest2014 BLEU', 'chrF2'), rows)}")


if __name__ == "__main__":
    run_main(main)
