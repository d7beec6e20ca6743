"""Sweeps (``--multirun``): one run folder for each job, and a table of their results."""

import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from tabulate import tabulate

from transformer_mt import run_layout
from transformer_mt.cli.compose import override
from transformer_mt.cli.exit_status import print_error
from transformer_mt.config import Job, TrainJob
from transformer_mt.distributed.environment import env_rank, under_launcher
from transformer_mt.errors import InputError, UsageError, environment_error
from transformer_mt.evaluation.scores import read_scores
from transformer_mt.files import expand_user, write_text
from transformer_mt.training.metrics_log import read_records

_RESULTS = ("best valid BLEU", "last valid BLEU", "best valid ppl", "test BLEU", "run_dir")
_ITEM = re.compile(r"(?:^|,)([^=,]+)=(.*?)(?=,[\w.@/+~]+=|$)")
"""One ``KEY=VALUE`` in the name of a run folder; values may contain commas."""


class Sweep:
    """The jobs of one sweep: their run folders, failures and results.

    Hydra names a job after its swept settings, sorted: ``model=tiny,train.seed=1``. If none is
    swept, all its settings but ``run_dir`` are in the name: a single job joins an earlier sweep.
    """

    def __init__(self, program: str, overrides: Sequence[str]):
        parsed = OverridesParser.create().parse_overrides(list(overrides))
        swept = [item.key_or_group for item in parsed if item.is_sweep_override()]
        fixed = {item.key_or_group for item in parsed}.difference(swept) if swept else set()
        excluded = sorted({*fixed, "run_dir"})
        self.naming = override("hydra.job.config.override_dirname.exclude_keys", excluded)
        """Override that makes Hydra name the jobs."""
        self._program = program
        self._folders: dict[Path, Path] = {}
        """Run folder of each training job → ``run_dir`` as given, where the table is written."""
        self._written: set[str] = set()
        self._jobs, self._failed = 0, 0

    @contextmanager
    def job(self) -> Iterator[None]:
        """Context of one job: bad input, or a lack of memory, ends the job but not the sweep."""
        self._jobs += 1
        try:
            yield
        except Exception as error:
            message = str(error) if isinstance(error, InputError) else environment_error(error)
            # Under a launcher other ranks may be waiting for this one, so it must exit.
            if not message or isinstance(error, UsageError | BrokenPipeError) or under_launcher():
                raise
            self._failed += 1
            print_error(self._program, f"{_title()}: {message}")

    def start(self, job: Job) -> Job:
        """Announces a job, and gives a training job a folder below ``run_dir``, with its name.

        Raises:
            InputError: Another job of this sweep uses the same folder or output file.
        """
        where = ""
        self._check_outputs(job)
        if isinstance(job, TrainJob):
            base = Path(job.run_dir)
            folder = base / HydraConfig.get().job.override_dirname.replace("/", "_")
            if folder in self._folders:
                raise InputError(f"another job of this sweep uses the folder {folder}")
            if len(folder.name.encode()) > 255:  # the limit of Linux's file systems
                advice = "sweep over files, experiment=A,B (see --config-dir)"
                raise InputError(f"the settings that name its folder are too long: {advice}")
            if job.stage == "train":
                self._folders[folder] = base
            job = replace(job, run_dir=str(folder))
            where = f" -> {folder}"
        if env_rank() == 0:
            print(f"{self._program}: {_title()}{where}", file=sys.stderr)
        return job

    def _check_outputs(self, job: object) -> None:
        keys = ("output", "report", "attention_html", "attention_png")
        values = (getattr(job, key, None) for key in keys)
        paths = {value for value in values if value and not value.startswith("/dev/")}
        if again := paths & self._written:
            raise InputError(
                f"another job of this sweep writes {min(again)}: set a different file for each "
                "job, with a setting that varies, ${SETTING}, in its name"
            )
        self._written |= paths

    def finish(self) -> None:
        """Prints the results of the training jobs, and writes the table of each ``run_dir``.

        The table has a row for every run in the folder, those of earlier sweeps included.

        Raises:
            InputError: Some jobs failed.
        """
        if self._folders and env_rank() == 0:
            for base in dict.fromkeys(self._folders.values()):
                folder = expand_user(base)
                folder.mkdir(parents=True, exist_ok=True)
                names = ["", *sorted(path.name for path in folder.iterdir())]
                runs = [base / n for n in names if (folder / n / run_layout.METRICS).is_file()]
                own = [run for run in self._folders if self._folders[run] == base]
                lines = _table([*(run for run in runs if run not in own), *own])
                write_text(folder / "sweep.tsv", "".join("\t".join(row) + "\n" for row in lines))
            table = tabulate(_table(list(self._folders)), tablefmt="plain", disable_numparse=True)
            print(table, flush=True)
        if self._failed:
            raise InputError(f"{self._failed} of {self._jobs} jobs failed")


def _title() -> str:
    job = HydraConfig.get().job
    return f"job {job.num}" + (f" ({job.override_dirname})" if job.override_dirname else "")


def _table(runs: Sequence[Path]) -> list[list[str]]:
    """A header and a row for each run: the settings in its folder's name, and its results."""
    settings = [dict(_ITEM.findall(run.name)) for run in runs]
    columns = sorted({key for values in settings for key in values})
    rows = [
        [*(values.get(column, "") for column in columns), *_results(run)]
        for run, values in zip(runs, settings, strict=True)
    ]
    return [[*columns, *_RESULTS], *rows]


def _results(run: Path) -> list[str]:
    folder = expand_user(run)
    valid = [r for r in read_records(folder) if r["split"] == "valid"]
    bleu, ppl = ([r[key] for r in valid if r.get(key) is not None] for key in ("bleu", "ppl"))
    tested = read_scores(folder / run_layout.TEST_SCORES) or []
    scores = [max(bleu, default=None), bleu[-1] if bleu else None, min(ppl, default=None)]
    scores.append(next((item.score for item in tested if item.name == "BLEU"), None))
    return [*("" if score is None else f"{score:.2f}" for score in scores), str(run)]
