"""A package ``wandb`` that writes what it is given to a file, and misbehaves on request."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

SOURCE = """
import json, os, sys
from pathlib import Path

print("noise on standard output")
FAKE, LOG = os.environ["FAKE"], Path(os.environ["FAKE_LOG"])

class errors:
    class UsageError(Exception): pass

def Settings(**_): pass
def login(**_): pass
def Table(columns, data): return {"table": data}

def misbehave(where):
    if FAKE == f"{where} raises":
        raise RuntimeError("the server\\nsays no")
    if FAKE == f"{where} exits":
        sys.exit(7)

def write(**line):
    with LOG.open("a") as file:
        file.write(json.dumps(line) + "\\n")

class Run:
    def __init__(self, id, name):
        self.offline, self.dir, self.url = False, "/tmp/run/files", "http://localhost/run"
        self.config = self
        write(init=id, name=name)
    def define_metric(self, *_, **__): pass
    def update(self, settings, **_): write(settings=settings)
    def log(self, values):
        misbehave("log")
        write(log=values)
    def finish(self, exit_code):
        misbehave("finish")
        write(finish=exit_code)

def init(*, id, name, **_):
    misbehave("init")
    return Run(id, name)
"""


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, how: str = "") -> Path:
    """Makes it the package that is imported, until the end of the test.

    Args:
        folder: Where to write the package and its file.
        monkeypatch: The test's.
        how: Misbehaviour: ``init``, ``log`` or ``finish``, and ``raises`` or ``exits``.

    Returns:
        The file that it writes, with a JSON object on each line.
    """
    package = folder / "packages" / "wandb"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(package.parent)
    monkeypatch.setitem(sys.modules, "wandb", sys)  # so that it is removed after the test
    del sys.modules["wandb"]
    monkeypatch.setenv("FAKE", how)
    monkeypatch.setenv("FAKE_LOG", str(folder / "logged"))
    return folder / "logged"


def logged(path: Path, key: str = "log") -> list[Any]:
    """What it was given, of one kind: ``init``, ``settings``, ``log`` or ``finish``."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [line[key] for line in lines if key in line]
