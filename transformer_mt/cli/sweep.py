"""Sweeps (``--multirun``): each job in a folder of its own, and a table of results at the end."""

import csv
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser

from transformer_mt import distributed, run_layout
from transformer_mt.config import EvaluateJob, TrainJob, TranslateJob
from transformer_mt.errors import InputError
from transformer_mt.evaluate.metrics import from_json
from transformer_mt.files import expand_user, write_text
from transformer_mt.train.metrics_log import read_records

Job = TypeVar("Job", TrainJob, TranslateJob, EvaluateJob)

TABLE = "sweep.tsv"

_RESULTS = ("best valid BLEU", "last valid BLEU", "best valid ppl", "test BLEU", "run_dir")
_Row = dict[str, str]
"""A line of the table, by column."""
_LONGEST_NAME = 200
"""Bytes; file systems take 255."""


@dataclass(frozen=True)
class _Run:
    """A training job of a sweep."""

    values: dict[str, str]
    """What the sweep gave it, by key."""
    base: Path
    """The ``run_dir`` that it was told."""
    folder: Path
    """Its own folder in there."""


class Sweep:
    """The jobs of one command: where they train, which of them failed, what came out.

    Args:
        program: The command's name, for messages.
        overrides: Its arguments, ``key=value``.
    """

    def __init__(self, program: str, overrides: Sequence[str]):
        parsed = OverridesParser.create().parse_overrides(list(overrides))
        self._keys = [o.get_key_element() for o in parsed if o.is_sweep_override()]
        self._program = program
        self._runs: list[_Run] = []
        self._written: set[Path] = set()
        self._jobs, self._failed = 0, 0

    @contextmanager
    def job(self) -> Iterator[None]:
        """Around a job: bad input ends it, not the sweep."""
        self._jobs += 1
        try:
            yield
        except InputError as error:
            # Under a launcher other ranks may be waiting for this one: it has to leave.
            if distributed.under_launcher():
                raise
            self._failed += 1
            message = " ".join(str(error).split())
            print(f"{self._program}: error: {self._title()}: {message}", file=sys.stderr)

    def start(self, job: Job) -> Job:
        """Says which job begins; a run gets the folder ``run_dir/KEY=VALUE,…``, by what it varies.

        Raises:
            InputError: Another job of this sweep has that folder.
        """
        where = ""
        if isinstance(job, TrainJob):
            base = Path(job.run_dir)
            if not self._keys:  # one value more of what an earlier sweep of this folder varied
                earlier = _columns(_read(expand_user(base) / TABLE))
                self._keys = [key for key in earlier if key in self._given()]
            values = self._values()
            name = ",".join(f"{key}={value}" for key, value in values.items() if key != "run_dir")
            run = _Run(values, base, base / _file_name(name))
            if any(run.folder == other.folder for other in self._runs):
                raise InputError(f"another job of this sweep has the folder {run.folder}")
            if job.stage == "train":
                self._runs.append(run)
            job = replace(job, run_dir=str(run.folder))
            where = f" -> {run.folder}"
        else:
            self._check_written(job)
        if distributed.env_rank() == 0:
            print(f"{self._program}: {self._title()}{where}", file=sys.stderr)
        return job

    def _check_written(self, job: object) -> None:
        for key in ("output", "report", "attention_html", "attention_png"):
            value = getattr(job, key, None)
            if value is None or (Path(value).exists() and not Path(value).is_file()):
                continue  # as /dev/null
            path = expand_user(value).resolve()
            if path in self._written:
                raise InputError(
                    f"another job of this sweep writes {key}={value}: give each a file of its own, "
                    f"as '{key}=${{{self._keys[0]}}}_{Path(value).name}'"
                )
            self._written.add(path)

    def finish(self) -> None:
        """Prints the results of the training jobs, and adds them to the table in each ``run_dir``.

        Raises:
            InputError: Some of the jobs failed.
        """
        if self._runs and distributed.env_rank() == 0:
            rows = list(map(self._row, self._runs))
            for base in {expand_user(run.base) for run in self._runs}:
                base.mkdir(parents=True, exist_ok=True)
                lines = _lines(_earlier(base / TABLE, rows) + rows)
                write_text(base / TABLE, "".join("\t".join(line) + "\n" for line in lines))
            lines = _lines(rows)
            widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
            text = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]
            print("\n".join(text), flush=True)
        if self._failed:
            raise InputError(f"{self._failed} of {self._jobs} jobs failed")

    def _title(self) -> str:
        values = ",".join(f"{key}={value}" for key, value in self._values().items())
        return f"job {HydraConfig.get().job.num}" + (f" ({values})" if values else "")

    def _values(self) -> dict[str, str]:
        """What the sweep gives the present job."""
        return {key: value for key, value in self._given().items() if key in self._keys}

    @staticmethod
    def _given() -> dict[str, str]:
        """The arguments of the present job."""
        given = (text.partition("=") for text in HydraConfig.get().overrides.task)
        return {key: value for key, _, value in given}

    def _row(self, run: _Run) -> _Row:
        folder = expand_user(run.folder)
        validations = [r for r in read_records(folder) if r["split"] == "valid"]
        valid = [float(bleu) for r in validations if (bleu := r.get("bleu")) is not None]
        scores = [max(valid, default=None), valid[-1] if valid else None]
        scores.append(min((float(ppl) for r in validations if (ppl := r.get("ppl"))), default=None))
        scores.append(_test_bleu(folder / run_layout.TEST_SCORES))
        given = {key: run.values.get(key, "") for key in self._keys}
        shown = ["" if score is None else f"{score:.2f}" for score in scores]
        return given | dict(zip(_RESULTS, [*shown, str(run.folder)], strict=True))


def _read(path: Path) -> list[_Row]:
    """The rows of a table, if there is one."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        reader = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        rows = list(reader)
    return [{column: row[column] or "" for column in reader.fieldnames or ()} for row in rows]


def _earlier(path: Path, rows: Sequence[_Row]) -> list[_Row]:
    """The rows of earlier sweeps in the same folder, of runs that are still there."""
    names = {Path(row["run_dir"]).name for row in rows}  # paths may begin elsewhere now
    return [
        row
        for row in _read(path)
        if (name := Path(row.get("run_dir", "")).name) not in names
        and (name == path.parent.name or (path.parent / name).is_dir())
        and name
    ]


def _columns(rows: Sequence[_Row]) -> list[str]:
    """What the rows say beside the results."""
    return list(dict.fromkeys(key for row in rows for key in row if key not in _RESULTS))


def _lines(rows: Sequence[_Row]) -> list[list[str]]:
    """A heading, and a line for each row, with the columns that any of them has."""
    columns = [*_columns(rows), *_RESULTS]
    return [columns, *([row.get(column, "") for column in columns] for row in rows)]


def _file_name(text: str) -> str:
    """The text as the name of a file: the same name for the same text, on any file system."""
    name = re.sub(r"[^\w.,=+-]+", "_", re.sub(r"[\\'\"]", "", text))
    encoded = name.encode()
    if len(encoded) <= _LONGEST_NAME:
        return name
    digest = sha256(text.encode()).hexdigest()[:8]
    return f"{encoded[: _LONGEST_NAME - 9].decode(errors='ignore')}-{digest}"


def _test_bleu(path: Path) -> float | None:
    try:
        scores = from_json(path.read_text(encoding="utf-8"))
        return next(item.score for item in scores if item.name == "BLEU")
    except (OSError, ValueError, KeyError, TypeError, StopIteration):  # not there yet, or damaged
        return None
