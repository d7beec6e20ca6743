"""Sweeps (``--multirun``): one run folder for each job, and a table of their results."""

import csv
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser

from transformer_mt import distributed, run_layout
from transformer_mt.cli.compose import Job
from transformer_mt.config import TrainJob
from transformer_mt.errors import InputError, UsageError
from transformer_mt.evaluation.scores import read_scores
from transformer_mt.files import expand_user, write_text
from transformer_mt.training.metrics_log import read_records

TABLE = "sweep.tsv"

_RESULTS = ("best valid BLEU", "last valid BLEU", "best valid ppl", "test BLEU", "run_dir")
_Row = dict[str, str]
"""A row of the table: column → value."""
_MAX_NAME_BYTES = 200
"""Maximum length of a folder's name; file systems allow 255 bytes."""


@dataclass(frozen=True)
class _Run:
    """A training job of a sweep."""

    values: dict[str, str]
    """The swept settings and their values in this job."""
    base: Path
    """``run_dir`` as given on the command line; the table is written there."""
    folder: Path
    """The job's own run folder, inside ``base``."""


class Sweep:
    """The jobs of one sweep: their run folders, failures and results."""

    def __init__(self, program: str, overrides: Sequence[str]):
        parsed = OverridesParser.create().parse_overrides(list(overrides))
        self._keys = [o.get_key_element() for o in parsed if o.is_sweep_override()]
        self._program = program
        self._runs: list[_Run] = []
        self._written: set[Path] = set()
        self._jobs, self._failed = 0, 0

    @contextmanager
    def job(self) -> Iterator[None]:
        """Context of one job: bad input ends the job but not the sweep."""
        self._jobs += 1
        try:
            yield
        except UsageError:
            raise
        except InputError as error:
            # Under a launcher other ranks may be waiting for this one, so it must exit.
            if distributed.under_launcher():
                raise
            self._failed += 1
            message = " ".join(str(error).split())
            print(f"{self._program}: error: {self._title()}: {message}", file=sys.stderr)

    def start(self, job: Job) -> Job:
        """Announce a job, and give a training job the folder ``run_dir/KEY=VALUE,…`` of its values.

        Raises:
            InputError: Another job of this sweep uses the same folder or output file.
        """
        where = ""
        if isinstance(job, TrainJob):
            base = Path(job.run_dir)
            if not self._keys:  # a single job that adds a value to an earlier sweep
                earlier = _setting_columns(_read_table(expand_user(base) / TABLE))
                self._keys = [key for key in earlier if key in self._overrides()]
            values = self._values()
            name = ",".join(f"{key}={value}" for key, value in values.items() if key != "run_dir")
            run = _Run(values, base, base / _file_name(name))
            if any(run.folder == other.folder for other in self._runs):
                raise InputError(f"another job of this sweep uses the folder {run.folder}")
            if job.stage == "train":
                self._runs.append(run)
            job = replace(job, run_dir=str(run.folder))
            where = f" -> {run.folder}"
        else:
            self._check_outputs(job)
        if distributed.env_rank() == 0:
            print(f"{self._program}: {self._title()}{where}", file=sys.stderr)
        return job

    def _check_outputs(self, job: object) -> None:
        for key in ("output", "report", "attention_html", "attention_png"):
            value = getattr(job, key, None)
            if value is None or (Path(value).exists() and not Path(value).is_file()):
                continue  # such as /dev/null
            path = expand_user(value).resolve()
            if path in self._written:
                raise InputError(
                    f"another job of this sweep writes {key}={value}: set a different file for "
                    f"each job, such as '{key}=${{{self._keys[0]}}}_{Path(value).name}'"
                )
            self._written.add(path)

    def finish(self) -> None:
        """Print the results of training jobs and add them to the table in each ``run_dir``.

        Raises:
            InputError: Some jobs failed.
        """
        if self._runs and distributed.env_rank() == 0:
            rows = list(map(self._row, self._runs))
            for base in {expand_user(run.base) for run in self._runs}:
                base.mkdir(parents=True, exist_ok=True)
                lines = _to_lines(_earlier_rows(base / TABLE, rows) + rows)
                write_text(base / TABLE, "".join("\t".join(line) + "\n" for line in lines))
            lines = _to_lines(rows)
            widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
            text = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]
            print("\n".join(text), flush=True)
        if self._failed:
            raise InputError(f"{self._failed} of {self._jobs} jobs failed")

    def _title(self) -> str:
        values = ",".join(f"{key}={value}" for key, value in self._values().items())
        return f"job {HydraConfig.get().job.num}" + (f" ({values})" if values else "")

    def _values(self) -> dict[str, str]:
        """The swept settings of the current job."""
        return {key: value for key, value in self._overrides().items() if key in self._keys}

    @staticmethod
    def _overrides() -> dict[str, str]:
        """All overrides of the current job."""
        overrides = (text.partition("=") for text in HydraConfig.get().overrides.task)
        return {key: value for key, _, value in overrides}

    def _row(self, run: _Run) -> _Row:
        folder = expand_user(run.folder)
        validations = [r for r in read_records(folder) if r["split"] == "valid"]
        valid = [float(bleu) for r in validations if (bleu := r.get("bleu")) is not None]
        scores = [max(valid, default=None), valid[-1] if valid else None]
        scores.append(min((float(ppl) for r in validations if (ppl := r.get("ppl"))), default=None))
        tested = read_scores(folder / run_layout.TEST_SCORES) or []
        scores.append(next((item.score for item in tested if item.name == "BLEU"), None))
        values = {key: run.values.get(key, "") for key in self._keys}
        shown = ["" if score is None else f"{score:.2f}" for score in scores]
        return values | dict(zip(_RESULTS, [*shown, str(run.folder)], strict=True))


def _read_table(path: Path) -> list[_Row]:
    """The rows of a table; none if there is no table."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        reader = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        rows = list(reader)
    return [{column: row[column] or "" for column in reader.fieldnames or ()} for row in rows]


def _earlier_rows(path: Path, rows: Sequence[_Row]) -> list[_Row]:
    """The rows of earlier sweeps in the same folder whose runs still exist."""
    names = {Path(row["run_dir"]).name for row in rows}  # the folder may have moved
    return [
        row
        for row in _read_table(path)
        if (name := Path(row.get("run_dir", "")).name) not in names
        and (name == path.parent.name or (path.parent / name).is_dir())
        and name
    ]


def _setting_columns(rows: Sequence[_Row]) -> list[str]:
    """The columns of swept settings."""
    return list(dict.fromkeys(key for row in rows for key in row if key not in _RESULTS))


def _to_lines(rows: Sequence[_Row]) -> list[list[str]]:
    """A header line and a line for each row, with every column that occurs."""
    columns = [*_setting_columns(rows), *_RESULTS]
    return [columns, *([row.get(column, "") for column in columns] for row in rows)]


def _file_name(text: str) -> str:
    """A deterministic file name for a text, valid on any file system."""
    name = re.sub(r"[^\w.,=+-]+", "_", re.sub(r"[\\'\"]", "", text))
    encoded = name.encode()
    if len(encoded) <= _MAX_NAME_BYTES:
        return name
    digest = sha256(text.encode()).hexdigest()[:8]
    return f"{encoded[: _MAX_NAME_BYTES - 9].decode(errors='ignore')}-{digest}"
