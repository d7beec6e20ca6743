"""A run of ``real_run.py`` in progress: started, measured, stopped, continued and ended."""

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time

from process_tree import usage
from real_run_report import Run

from transformer_mt.errors import InputError

SAMPLE_SECONDS = 1.0
"""Seconds between two measurements of memory and CPU time."""
GRACE_SECONDS = 60.0
"""Seconds that a run has to end after SIGTERM."""


class Process:
    """A run in progress, in a process group of its own that can be stopped and continued."""

    def __init__(self, run: Run, command: list[str], environment: dict[str, str]):
        self._run, self._command, self._environment = run, command, environment
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def seconds(self) -> float:
        """Time that the run has had, without that of other runs' turns."""
        return sum(end - start for start, end in self._run.spans)

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def has_ended(self) -> bool:
        return bool(self._run.end)

    def go(self, seconds: float) -> None:
        """Starts or continues the run, measures it for so long, and stops it."""
        run = self._run
        print(f"{run.name}: {self.seconds / 60:.1f} min done", file=sys.stderr)
        start = time.time()
        run.spans.append((start, start))
        if self._process is None:
            self._start()
        else:
            self._signal(signal.SIGCONT)
        while self.is_running and (left := start + seconds - time.time()) > 0:
            assert self._process is not None
            try:
                self._process.wait(min(SAMPLE_SECONDS, left))
            except subprocess.TimeoutExpired:
                self._sample()
            run.spans[-1] = (start, time.time())
        run.spans[-1] = (start, time.time())
        self._signal(signal.SIGSTOP)

    def finish(self, reason: str) -> None:
        """Ends the run and writes its result, unless that is done."""
        if self._process is None or self._run.end:
            return
        run, status = self._run, self._process.poll()
        if status is None:
            run.end = reason
            self._signal(signal.SIGTERM)
            self._signal(signal.SIGCONT)
            try:
                self._process.wait(GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                self._signal(signal.SIGKILL)
                self._process.wait()
        else:
            run.end = f"ended with status {status}"
            print(f"{run.name} {run.end}: see {run.folder / 'output.log'}", file=sys.stderr)
        run.save()

    def _start(self) -> None:
        folder = self._run.folder
        if folder.exists():  # an interrupted run
            if not (folder / "output.log").exists():
                raise InputError(f"{folder} is not a run of this benchmark: rename --run")
            shutil.rmtree(folder)
        folder.mkdir(parents=True)
        with (folder / "output.log").open("wb") as output:
            output.write(f"$ {shlex.join(self._command)}\n".encode())
            output.flush()
            self._process = subprocess.Popen(
                self._command,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _sample(self) -> None:
        assert self._process is not None
        used = usage(self._process.pid)
        if used.rss:
            self._run.samples.append((time.time(), used.pss, used.rss, used.cpu_seconds))

    def _signal(self, number: int) -> None:
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, number)
