"""Run folders: run.json, test scores that are checked, and a log that cannot be written."""

import json
import logging
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from support.model_folders import JOB

import transformer_mt
from transformer_mt import model_folder, run_layout
from transformer_mt.config import TrainJob
from transformer_mt.distributed.world import World
from transformer_mt.errors import InputError
from transformer_mt.evaluation.scores import Score, read_scores, to_json
from transformer_mt.jobs import resume, run_folder
from transformer_mt.kernels import hardware
from transformer_mt.kernels.choice import Kernels

CPU = World(torch.device("cpu"))


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Any:
    caplog.set_level(logging.INFO, "transformer_mt")
    return lambda: caplog.messages


def starts(folder: Path) -> list[dict[str, Any]]:
    return list(json.loads((folder / "run.json").read_text())["starts"])


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    command = ["git", "-C", str(folder), *identity, *arguments]
    own = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}  # not the user's settings
    done = subprocess.run(
        command, check=True, capture_output=True, text=True, env={**os.environ, **own}
    )
    return done.stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The package, as it seems, in a repository with one commit."""
    if shutil.which("git") is None:
        pytest.skip("needs git")
    root = tmp_path / "checkout"
    (root / "transformer_mt").mkdir(parents=True)
    code = root / "transformer_mt" / "__init__.py"
    code.write_text("")
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "one")
    git(root, "tag", "v1")  # the revision is the commit, whatever it is also called
    monkeypatch.setattr(transformer_mt, "__file__", str(code))
    return root


def test_kernels_are_recorded_for_the_same_processor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run_folder.recorded_kernels(tmp_path) is None
    first, last = (Kernels("fp32", name) for name in ("torch", "onednn"))
    for kernels in (first, last):
        run_folder.record_start(tmp_path, CPU, 1234, 0, kernels)
    assert run_folder.recorded_kernels(tmp_path) == last
    monkeypatch.setattr(hardware, "exact_cpu", lambda: "another")
    assert run_folder.recorded_kernels(tmp_path) is None
    run_folder.record_start(tmp_path, CPU, 1234, 0)  # unknown
    assert run_folder.recorded_kernels(tmp_path) is None


FINGERPRINTS = {"corpus": "1", "sources": "[1]", "valid": "2", "test": "3"}


@pytest.fixture
def data() -> Any:
    return SimpleNamespace(fingerprints=FINGERPRINTS.copy(), test=["pairs"])


def write_started_run(folder: Path, job: TrainJob = JOB) -> None:
    """The files of a run that has started on the data above."""
    model_folder.write_config(folder, job)
    report = folder / run_layout.CLEANING_REPORT
    report.parent.mkdir()
    report.write_text(json.dumps(FINGERPRINTS))


def test_only_some_settings_may_differ_when_a_run_resumes(tmp_path: Path) -> None:
    write_started_run(tmp_path)
    for train in ({"max_steps": 7}, {"clip_norm": 1.0}, {"average_checkpoints": 2}):
        assert resume.check(tmp_path, replace(JOB, train=replace(JOB.train, **train))) == "started"
    moved = [replace(JOB, tokenizer=replace(JOB.tokenizer, path=name)) for name in ("a", "b")]
    model_folder.write_config(tmp_path, moved[0])
    assert resume.check(tmp_path, moved[1]) == "started"  # the vocabulary itself is compared
    with pytest.raises(InputError, match=r"tokenizer\.path was a, now None"):
        resume.check(tmp_path, JOB)
    model_folder.write_config(tmp_path, JOB)
    different = replace(JOB, train=replace(JOB.train, seed=2, max_steps=7))
    with pytest.raises(InputError, match=r"different configuration \(train\.seed was 1, now 2\): "):
        resume.check(tmp_path, different)


def test_the_state_of_a_run_folder(tmp_path: Path, data: Any) -> None:
    assert resume.check(tmp_path, JOB) == "new"
    (tmp_path / run_layout.WEIGHTS).touch()
    with pytest.raises(InputError, match=r"contains model\.safetensors but no config\.yaml"):
        resume.check(tmp_path, JOB)
    write_started_run(tmp_path)
    with pytest.raises(InputError, match="a model but no intact checkpoint to resume from"):
        resume.check(tmp_path, JOB, data)
    done: dict[str, Any] = {"steps_done": 9, "is_trained": True}
    assert resume.check(tmp_path, JOB, data, **done) == "started"  # it is not scored yet
    (tmp_path / run_layout.TEST_SCORES).write_text(to_json([SCORE]))
    assert resume.check(tmp_path, JOB, data, **done) == "finished"
    assert resume.check(tmp_path, JOB, data, steps_done=9) == "started"
    (tmp_path / run_layout.TEST_SCORES).write_text(to_json([SCORE])[:-9])  # damaged
    assert resume.check(tmp_path, JOB, data, **done) == "started"
    (tmp_path / run_layout.TEST_SCORES).write_text(to_json([SCORE]))
    wider = replace(JOB, decode=replace(JOB.decode, beam_size=8))
    assert resume.check(tmp_path, wider, data, **done) == "started"
    other_test = SimpleNamespace(fingerprints={**data.fingerprints, "test": "4"}, test=["pairs"])
    assert resume.check(tmp_path, JOB, other_test, **done) == "started"
    assert (
        resume.check(tmp_path, JOB, SimpleNamespace(fingerprints={}, test=[]), **done) == "finished"
    )
    (tmp_path / run_layout.CLEANING_REPORT).write_text('{"corpus": "1"')
    with pytest.raises(InputError, match=r"cleaning\.json is damaged: delete it"):
        resume.check(tmp_path, JOB, data, **done)


@pytest.mark.parametrize(
    ("changed", "drop_held_out", "remedy"),
    [
        (["valid"], True, "validation data .*or delete that folder"),
        (["sources"], True, "number of pairs of a source.*or delete that folder"),
        (["corpus"], True, "training data .*or delete that folder"),
        (["corpus", "test"], False, "training data .*or delete that folder"),
        (["corpus", "test"], True, "training data .*restore it, and score other test sets with"),
    ],
)
def test_other_data_are_refused(
    changed: list[str], drop_held_out: bool, remedy: str, tmp_path: Path, data: Any
) -> None:
    cleaning = replace(JOB.data.cleaning, drop_held_out=drop_held_out)
    job = replace(JOB, data=replace(JOB.data, cleaning=cleaning))
    write_started_run(tmp_path, job)
    assert resume.check(tmp_path, job, data) == "started"
    data.fingerprints |= dict.fromkeys(changed, "another")
    with pytest.raises(InputError, match=remedy) as refused:
        resume.check(tmp_path, job, data)
    assert f"changed since {tmp_path} was started: " in str(refused.value)


def test_every_start_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: Any, checkout: Path
) -> None:
    monkeypatch.setattr(sys, "argv", ["mt-train", "run_dir=a b", "caf\udce9=ü"])
    run_folder.record_start(tmp_path, CPU, 1234, 0)
    (checkout / "runs").mkdir()
    (checkout / "runs" / "new").write_text("")  # what git does not know makes nothing dirty
    run_folder.record_start(tmp_path, CPU, 1234, 40)
    (checkout / "transformer_mt" / "__init__.py").write_text("changed")
    run_folder.record_start(tmp_path, CPU, 1234, 60)
    found = starts(tmp_path)
    assert [start["step"] for start in found] == [0, 40, 60]
    commit = git(checkout, "rev-parse", "--short", "HEAD")
    assert [start["revision"] for start in found] == [commit, commit, f"{commit}-dirty"]
    first = found[0]
    assert first["command"].startswith("mt-train 'run_dir=a b' ")
    assert first["command"].endswith("=ü'")
    for name in ("torch", "sacrebleu"):
        assert first["packages"][name] == version(name)
    assert first["python"] == ".".join(map(str, sys.version_info[:3]))
    assert (first["ranks"], first["parameters"]) == (1, 1234)
    assert len(first["devices"]) == 1
    assert lines()[0].startswith(f"transformer_mt {transformer_mt.__version__} ({commit}), ")
    # An installed package has only its version, even within some repository.
    installed = checkout / ".venv" / "transformer_mt" / "__init__.py"
    monkeypatch.setattr(transformer_mt, "__file__", str(installed))
    run_folder.record_start(tmp_path, CPU, 1, 0)
    last = starts(tmp_path)[-1]
    assert (last["revision"], last["version"]) == (None, transformer_mt.__version__)


@pytest.mark.parametrize("text", ["{", '{"starts": 3}', "\udcff"])
def test_damaged_file_is_replaced(tmp_path: Path, text: str, lines: Any) -> None:
    (tmp_path / "run.json").write_bytes(text.encode(errors="surrogateescape"))
    run_folder.record_start(tmp_path, CPU, 1, 7)
    assert [start["step"] for start in starts(tmp_path)] == [7]
    assert "run.json is damaged" in lines()[0]


def test_the_devices_of_all_ranks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: Any
) -> None:
    one, two = {"host": "a", "device": "NVIDIA H100"}, {"host": "b", "device": "NVIDIA H200"}
    monkeypatch.setattr(World, "gather", lambda _, mine: [one, two, two])
    run_folder.record_start(tmp_path, World(torch.device("cpu"), 1, 3), 1, 0)
    assert not (tmp_path / "run.json").exists()  # only the main rank writes
    run_folder.record_start(tmp_path, World(torch.device("cpu"), 0, 3), 1, 0)
    (start,) = starts(tmp_path)
    assert (start["ranks"], start["devices"]) == (3, [one, two, two])
    assert lines()[0].endswith("on 1 × NVIDIA H100, 2 × NVIDIA H200")


SCORE = Score(name="BLEU", score=38.4, signature="nrefs:1|tok:13a", segments=9, verbose="")


def test_the_end_of_a_run_is_recorded(tmp_path: Path) -> None:
    assert run_folder.best_score(tmp_path) is None
    best = {"metric": "bleu", "score": 37.5, "step": 20}
    run_folder.record_start(tmp_path, CPU, 1, 0)
    run_folder.record_end(tmp_path, [8, 24], best, [SCORE])
    content = json.loads((tmp_path / "run.json").read_text())
    assert content["end"]["averaged_updates"] == [8, 24]
    assert run_folder.best_score(tmp_path) == 37.5
    assert len(content["starts"]) == 1
    assert read_scores(tmp_path / "test.json") == [SCORE]
    run_folder.record_start(tmp_path, CPU, 1, 40)
    assert "end" not in json.loads((tmp_path / "run.json").read_text())
