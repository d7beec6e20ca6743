"""References to models on the Hub: what is fetched of them, revisions, errors, fine-tuning."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from support import fake_hub
from support.errors import input_error
from support.fake_hub import Hub
from support.paths import ROOT

from transformer_mt import Translator, hub_models
from transformer_mt.config import TrainJob
from transformer_mt.jobs.resolved_job import with_initial_model
from transformer_mt.model_folder import read_config, write_config

MODEL = ROOT / "tests/e2e/fixtures/model"
FILES = {"config.yaml", "tokenizer.model", "model.safetensors"}
NAME = "some-org/en-de.tiny"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    """A Hub with the model, and other files that nobody may download."""
    hub = fake_hub.install(tmp_path / "cache", monkeypatch)
    more = {"pytorch_model.bin": b"\x80\x04.", "modeling.py": b"1/0", "sub/config.yaml": b"x"}
    hub.push(NAME, fake_hub.read_files(MODEL) | more, "v1")
    return hub


def test_only_what_translation_needs_is_downloaded(hub: Hub) -> None:
    folder = hub_models.resolve(f"hf://{NAME}")
    assert {path.name for path in folder.iterdir()} == {*hub.downloads} == FILES
    local, remote = (
        Translator.load(name, device="cpu", engine="torch") for name in (MODEL, f"hf://{NAME}@v1")
    )
    assert remote.translate(["a b", "c"]) == local.translate(["a b", "c"])


def test_a_revision_is_a_branch_a_tag_or_a_commit(hub: Hub) -> None:
    old = hub_models.resolve(f"hf://{NAME}")
    commit = hub.push(NAME, fake_hub.read_files(MODEL) | {"tokenizer.model": b"new"})
    new = hub_models.resolve(f"hf://{NAME}")
    assert new.name == commit != old.name
    assert hub_models.resolve(f"hf://{NAME}@{old.name}") == old
    assert hub_models.pin(f"hf://{NAME}@v1") == f"hf://{NAME}@{old.name}"


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("hf://no-org/nothing", r"hf://no-org/nothing does not exist, is private or gated"),
        (f"hf://{NAME}@v9", r"@v9: there is no such branch"),
        ("hf://some-org/bert", r"not a model of transformer_mt: it has no config\.yaml$"),
        ("hf://bert", r"write hf://ORG/NAME or hf://ORG/NAME@REVISION"),
        ("hf://a/down", r"cannot fetch hf://a/down: 500 Internal\. A copy .*--local-dir"),
    ],
)
def test_what_cannot_be_had_is_refused_in_one_line(hub: Hub, reference: str, message: str) -> None:
    hub.push("some-org/bert", {"config.json": b"{}", "model.safetensors": bytes(10**6)})
    if "down" in reference:
        hub.error = OSError("500 Internal\nand more")
    with input_error(message):
        hub_models.resolve(reference)


def test_fine_tuning_stays_with_the_commit_that_it_started_from(hub: Hub, tmp_path: Path) -> None:
    trained, run_dir, name = read_config(MODEL, TrainJob), tmp_path / "run", f"hf://{NAME}"
    train = replace(trained.train, init_from=name)
    job = replace(trained, run_dir=str(run_dir), train=train)
    started = with_initial_model(job, name)
    folder = hub_models.resolve(name)
    assert started.train.init_from == f"{name}@{folder.name}"
    assert started.tokenizer.path == str(folder / "tokenizer.model")
    run_dir.mkdir()
    write_config(run_dir, started)
    hub.push(NAME, fake_hub.read_files(MODEL) | {"more": b""})
    assert with_initial_model(job, name) == started
    assert with_initial_model(job, f"{name}@main") == started
    newer = f"{name}@{hub_models.resolve(name).name}"
    assert with_initial_model(job, newer).train.init_from == newer != started.train.init_from
    # Once there is a checkpoint, neither the Hub nor the cache is needed.
    (run_dir / "checkpoints/step_00000001").mkdir(parents=True)
    hub.error = OSError("down")
    shutil.rmtree(hub.cache)
    assert with_initial_model(job, name) == started
