"""What to expect of a corpus: models trained on nested samples of one mixture of real text.

    python scripts/bench/corpus_sizes.py 10k 30k       trains; run it again to resume
    python scripts/compare_runs.py runs/corpus_sizes   the scores of all runs

Each setting trains on the first pairs of one shuffled copy of ../shared/data/mix, validates on
newstest2013, and scores newstest2014 once, at its end. A run is an ordinary mt-train in a folder of
--folder; arguments after `--` are passed to it.
"""

import random
import subprocess
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

import shared

from transformer_mt.cli.compose import override
from transformer_mt.config import SourceConfig
from transformer_mt.data.text.sources import read_pairs
from transformer_mt.errors import InputError
from transformer_mt.files import write_text

SETTINGS = {
    "10k": (10_000, "experiment=pairs_10k"),
    "30k": (30_000, "experiment=pairs_30k"),
    "100k": (100_000, "experiment=pairs_100k"),
    "320k": (322_819, "experiment=pairs_300k"),
}
"""Pairs and experiment of mt-train, by name."""


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    for name in options.settings:
        pairs, experiment = SETTINGS[name]
        command = [sys.executable, "-m", "transformer_mt.cli", "train"]
        news = options.data.resolve() / "mix"
        train = [SourceConfig(tsv=str(sample(pairs, options)))]
        command += shared.data_settings(train, [shared.files_of(news, "newstest2013")])
        command.append(override("data.test", [shared.files_of(news, "newstest2014")]))
        command.append(override("run_dir", options.folder / name))
        command += [experiment, "train.max_hours=2", *options.extra]
        if status := subprocess.run(command).returncode:
            raise InputError(f"{name} ended with status {status}")


def parse(arguments: Sequence[str] | None) -> Namespace:
    parser = shared.argument_parser(__doc__)
    parser.add_argument("settings", nargs="+", choices=SETTINGS, metavar="SETTING",
        help=f"one or more of {', '.join(SETTINGS)}")  # fmt: skip
    folder = Path("runs/corpus_sizes")
    parser.add_argument("--folder", type=Path, default=folder, help="default: %(default)s")
    shared.add_data(parser)
    given = list(sys.argv[1:] if arguments is None else arguments)
    end = given.index("--") if "--" in given else len(given)
    options = parser.parse_args(given[:end])
    options.extra = given[end + 1 :]
    options.folder = options.folder.resolve()
    return options


def sample(pairs: int, options: Namespace) -> Path:
    """The file of the first pairs of the shuffled corpus, which is written unless it exists."""
    path: Path = options.folder / f"{pairs}.tsv"
    if not path.exists():
        options.folder.mkdir(parents=True, exist_ok=True)
        everything = list(read_pairs(shared.mix(options.data)[0], src_lang="en", tgt_lang="de"))
        random.Random(1).shuffle(everything)
        write_text(path, "".join(f"{pair.src}\t{pair.tgt}\n" for pair in everything[:pairs]))
    return path


if __name__ == "__main__":
    shared.run_main(main)
