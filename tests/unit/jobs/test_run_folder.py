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
from support.errors import input_error
from support.model_folders import JOB

import transformer_mt
from transformer_mt import model_folder, run_layout
from transformer_mt.config import CardConfig, TrainJob
from transformer_mt.distributed.world import World
from transformer_mt.errors import InputError
from transformer_mt.evaluation.scores import Score, to_json
from transformer_mt.jobs import resume, run_folder
from transformer_mt.training.progress import TrainingState

CPU = World(torch.device("cpu"))


FINGERPRINTS = {"corpus": "1", "valid": "2", "test": "3"}
SCORE = Score(name="BLEU", score=38.4, signature="nrefs:1|tok:13a", segments=9, verbose="")


@pytest.fixture(autouse=True)
def log_level(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "transformer_mt")


def starts(folder: Path) -> list[dict[str, Any]]:
    return list(json.loads((folder / "run.json").read_text())["starts"])


def write_started_run(folder: Path, job: TrainJob = JOB) -> None:
    """The files of a run that has started on data with ``FINGERPRINTS``."""
    model_folder.write_config(folder, job)
    report = folder / run_layout.CLEANING_REPORT
    report.parent.mkdir()
    report.write_text(json.dumps(FINGERPRINTS))


def prepared(*changed: str) -> Any:
    """The data, with other checksums of the parts that have changed."""
    fingerprints = FINGERPRINTS | dict.fromkeys(changed, "another")
    return SimpleNamespace(fingerprints=fingerprints, test=["pairs"])


def test_only_some_settings_may_differ_when_a_run_resumes(tmp_path: Path) -> None:
    write_started_run(tmp_path)
    for train in ({"max_steps": 7}, {"clip_norm": 1.0}, {"average_checkpoints": 2}):
        assert resume.check(tmp_path, replace(JOB, train=replace(JOB.train, **train)))
    moved = [replace(JOB, tokenizer=replace(JOB.tokenizer, path=name)) for name in ("a", "b")]
    model_folder.write_config(tmp_path, moved[0])
    assert resume.check(tmp_path, moved[1])  # the vocabulary itself is compared
    with pytest.raises(InputError, match=r"tokenizer\.path was a, now None"):
        resume.check(tmp_path, JOB)
    model_folder.write_config(tmp_path, JOB)
    different = replace(JOB, train=replace(JOB.train, seed=2, max_steps=7))
    with pytest.raises(InputError, match=r"different configuration \(train\.seed was 1, now 2\): "):
        resume.check(tmp_path, different)


def test_scores_are_those_of_the_model_and_the_test_set(tmp_path: Path) -> None:
    def current(job: TrainJob = JOB, data: Any = None) -> list[Score] | None:
        recorded = resume.check(tmp_path, job)
        assert recorded
        recorded.check_data(job, data or prepared())  # another test set is accepted
        return recorded.current_scores(job, data or prepared())

    assert resume.check(tmp_path, JOB) is None
    write_started_run(tmp_path)
    for name in (run_layout.WEIGHTS, run_layout.MODEL_CARD):
        (tmp_path / name).touch()
    assert current() is None  # it is not scored yet
    (tmp_path / run_layout.TEST_SCORES).write_text(to_json([SCORE]))
    assert current() == [SCORE]
    assert current(replace(JOB, decode=replace(JOB.decode, beam_size=8))) is None
    assert current(replace(JOB, card=CardConfig(name="org/name"))) is None
    assert current(data=prepared("test")) is None
    without_test = SimpleNamespace(fingerprints=FINGERPRINTS | {"test": "none"}, test=[])
    assert current(data=without_test) == [SCORE]
    (tmp_path / run_layout.TEST_SCORES).write_text("[")
    with pytest.raises(InputError, match=r"test\.json is damaged: .*; delete it"):
        current()
    (tmp_path / run_layout.MODEL_CARD).unlink()
    assert current() is None
    (tmp_path / run_layout.CLEANING_REPORT).write_text('{"corpus": "1"')
    with pytest.raises(InputError, match=r"cleaning\.json is damaged: .*; delete it"):
        current()


@pytest.mark.parametrize("name", [*run_layout.WRITTEN, "data/valid.en", "data/test.de"])
def test_a_folder_with_files_that_a_run_would_replace_is_refused(name: str, tmp_path: Path) -> None:
    job = replace(JOB, data=replace(JOB.data, valid=[], test=[], valid_pairs=9, test_pairs=9))
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("format: mine")
    with pytest.raises(InputError, match=rf"{tmp_path}/{name} .*"):
        resume.check(tmp_path, job)
    assert (tmp_path / name).read_text() == "format: mine"


@pytest.mark.parametrize("key", ["valid_pairs", "test_pairs"])
def test_other_numbers_of_held_out_pairs_are_refused_before_preparation(
    key: str, tmp_path: Path
) -> None:
    started = replace(JOB, data=replace(JOB.data, valid=[], test=[], valid_pairs=9, test_pairs=9))
    write_started_run(tmp_path, started)
    assert resume.check(tmp_path, started)
    job = replace(started, data=replace(started.data, **{key: 8}))
    with pytest.raises(InputError, match=rf"\(data\.{key} was 9, now 8\)"):
        resume.check(tmp_path, job)


@pytest.mark.parametrize(
    ("changed", "drop_held_out", "remedy"),
    [
        (["valid"], True, "validation data .*or delete that folder"),
        (["corpus"], True, "training data .*or delete that folder"),
        (["corpus", "test"], False, "training data .*or delete that folder"),
        (["corpus", "test"], True, "training data .*restore it, and score other test sets with"),
    ],
)
def test_other_data_are_refused(
    changed: list[str], drop_held_out: bool, remedy: str, tmp_path: Path
) -> None:
    cleaning = replace(JOB.data.cleaning, drop_held_out=drop_held_out)
    job = replace(JOB, data=replace(JOB.data, cleaning=cleaning))
    write_started_run(tmp_path, job)
    recorded = resume.check(tmp_path, job)
    assert recorded
    recorded.check_data(job, prepared())
    with pytest.raises(InputError, match=remedy) as refused:
        recorded.check_data(job, prepared(*changed))
    assert f"changed since {tmp_path} was started: " in str(refused.value)
    held_out = replace(job, data=replace(job.data, valid=[], valid_pairs=9))
    if "valid" in changed:
        with input_error(f"set data.valid and data.test to files of {tmp_path}/data$"):
            recorded.check_data(held_out, prepared(*changed))


COMMIT = """
git init -q
git add .
git -c user.name=a -c user.email=a@b commit -q -m one
git tag v1  # the revision is the commit, whatever it is also called
git rev-parse --short HEAD
"""


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_every_start_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    checkout = tmp_path / "checkout"  # of the package, as it seems
    code = checkout / "transformer_mt/__init__.py"
    code.parent.mkdir(parents=True)
    code.touch()
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)  # not the user's settings
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    commit = subprocess.check_output(["bash", "-ec", COMMIT], cwd=checkout, text=True).strip()
    monkeypatch.setattr(transformer_mt, "__file__", str(code))
    monkeypatch.setattr(sys, "argv", ["mt-train", "run_dir=a b"])
    run_folder.record_start(tmp_path, CPU, 1234, 0, "bf16")
    (checkout / "new").touch()  # what git does not know makes nothing dirty
    run_folder.record_start(tmp_path, CPU, 1234, 40, "bf16")
    code.write_text("changed")
    run_folder.record_start(tmp_path, CPU, 1234, 60, "bf16")
    # An installed package has only its version, even within some repository.
    installed = checkout / ".venv/transformer_mt/__init__.py"
    installed.parent.mkdir(parents=True)
    monkeypatch.setattr(transformer_mt, "__file__", str(installed))
    run_folder.record_start(tmp_path, CPU, 1234, 80, "bf16")
    found = starts(tmp_path)
    revisions = [commit, commit, f"{commit}-dirty", None]
    assert [start["step"] for start in found] == [0, 40, 60, 80]
    assert [start["revision"] for start in found] == revisions
    first = found[0]
    assert first["command"] == "mt-train 'run_dir=a b'"
    assert first["packages"]["torch"] == version("torch")
    assert (first["ranks"], first["parameters"], len(first["devices"])) == (1, 1234, 1)
    assert first["precision"] == "bf16"
    about = f"transformer_mt {transformer_mt.__version__} ({commit}), "
    assert caplog.messages[0].startswith(about)


def test_a_damaged_record_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_bytes(b"{")
    with pytest.raises(InputError, match=r"run\.json is damaged: .*; delete it"):
        run_folder.record_start(tmp_path, CPU, 1, 7, "fp32")


def test_the_devices_of_all_ranks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = {"host": "a", "device": "NVIDIA H100"}, {"host": "b", "device": "NVIDIA H200"}
    monkeypatch.setattr(World, "gather", lambda _, mine: [one, two, two])
    run_folder.record_start(tmp_path, World(CPU.device, 1, 3), 1, 0, "bf16")
    assert not (tmp_path / "run.json").exists()  # only the main rank writes
    run_folder.record_start(tmp_path, World(CPU.device, 0, 3), 1, 0, "bf16")
    (start,) = starts(tmp_path)
    assert (start["ranks"], start["devices"]) == (3, [one, two, two])
    assert caplog.messages[0].endswith("on 1 × NVIDIA H100, 2 × NVIDIA H200")


def test_the_end_of_a_run_is_recorded(tmp_path: Path) -> None:
    state = TrainingState(step=24, seconds=90.0, best=37.5, best_step=20)
    starts = run_folder.record_start(tmp_path, CPU, 1, 0, "bf16")
    end = run_folder.record_end(tmp_path, starts, state, [8, 24], "bleu")
    content = json.loads((tmp_path / "run.json").read_text())
    assert content == {"starts": starts, "end": end}
    assert content["end"]["averaged_updates"] == [8, 24]
    assert content["end"]["best"] == {"metric": "bleu", "score": 37.5, "step": 20}
    assert len(starts) == 1
    run_folder.record_start(tmp_path, CPU, 1, 40, "bf16")
    assert "end" not in json.loads((tmp_path / "run.json").read_text())
