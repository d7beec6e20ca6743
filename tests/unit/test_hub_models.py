"""References to models on the Hub, fetched by the real client from a server on this machine."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from huggingface_hub import constants
from support import hub_server
from support.errors import input_error
from support.hub_server import Hub
from support.paths import ROOT

from transformer_mt import Translator, hub_models
from transformer_mt.errors import InputError
from transformer_mt.jobs.resolved_job import with_initial_model
from transformer_mt.model_folder import load_model, write_config

MODEL = ROOT / "tests/e2e/fixtures/model"
FILES = {"config.yaml", "tokenizer.model", "model.safetensors"}
NAME = "some-org/en-de.tiny"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    cache = tmp_path / "cache"
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    return cache


@pytest.fixture
def hub(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A Hub with the model, and other files that nobody may download."""
    with hub_server.serve() as hub:
        monkeypatch.setattr(constants, "ENDPOINT", hub.url)
        template = hub.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        more = {"pytorch_model.bin": b"\x80\x04.", "modeling.py": b"1/0", "sub/config.yaml": b"x"}
        hub.push(NAME, hub_server.read_files(MODEL) | more, "v1")
        yield hub


def test_only_what_translation_needs_is_downloaded(hub: Hub) -> None:
    folder = hub_models.resolve(f"hf://{NAME}")
    assert {path.name for path in folder.iterdir()} == FILES
    assert {Path(path).name for path in hub.downloads()} == FILES
    assert all((folder / name).read_bytes() == (MODEL / name).read_bytes() for name in FILES)
    local, remote = (
        Translator.load(name, device="cpu", engine="torch") for name in (MODEL, f"hf://{NAME}@v1")
    )
    assert remote.translate(["a b", "c"]) == local.translate(["a b", "c"])
    assert len(hub.downloads()) == 3  # not again


def test_a_revision_is_a_branch_a_tag_or_a_commit(hub: Hub) -> None:
    old = hub_models.resolve(f"hf://{NAME}")
    files = hub_server.read_files(MODEL)
    commit = hub.push(NAME, files | {"tokenizer.model": b"new"})
    new = hub_models.resolve(f"hf://{NAME}")
    assert (new / "tokenizer.model").read_bytes() == b"new"
    assert new.name == commit
    assert hub_models.resolve(f"hf://{NAME}@v1") == old
    assert hub_models.resolve(f"hf://{NAME}@{old.name}") == old
    assert hub_models.resolve(f"hf://{NAME}@main") == new
    assert hub_models.pin(f"hf://{NAME}@v1") == f"hf://{NAME}@{old.name}"


@pytest.mark.parametrize(
    ("state", "message"), [("down", "500 Internal"), ("offline", "HF_HUB_OFFLINE")]
)
def test_the_cache_is_used_where_the_hub_cannot_be_reached(
    hub: Hub, state: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = hub_models.resolve(f"hf://{NAME}")
    pinned = hub_models.pin(f"hf://{NAME}")
    hub.requests.clear()
    assert hub_models.resolve(pinned) == folder
    if state == "down":
        hub.status = 500
    else:
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert hub_models.resolve(f"hf://{NAME}") == folder
    for other in ("hf://a/b", f"hf://{NAME}@v2"):
        with pytest.raises(InputError, match=f"cannot fetch {other}: .*{message}.*--local-dir"):
            hub_models.resolve(other)
    assert bool(hub.requests) == (state == "down")
    (folder / "model.safetensors").unlink()  # an incomplete copy
    with pytest.raises(InputError, match=f"cannot fetch hf://{NAME}"):
        hub_models.resolve(f"hf://{NAME}")


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("hf://no-org/nothing", r"hf://no-org/nothing does not exist or is private"),
        (f"hf://{NAME}@v9", r"@v9: there is no such branch"),
        (f"hf://{NAME}@{'0' * 40}", r"@0{40}: there is no such branch"),
        ("hf://some-org/gated", r"gated.*accept its conditions at http"),
        ("hf://some-org/bert", r"not a model of transformer_mt: it has no config\.yaml$"),
        ("hf://bert", r"write hf://ORG/NAME or hf://ORG/NAME@REVISION"),
        ("hf://../..", r"hf://\.\./\.\.: "),
    ],
)
def test_what_cannot_be_had_is_refused_in_one_line(hub: Hub, reference: str, message: str) -> None:
    hub.push("some-org/bert", {"config.json": b"{}", "model.safetensors": bytes(10**6)})
    hub.push("some-org/gated", hub_server.read_files(MODEL))
    hub.gated.add("some-org/gated")
    with input_error(message):
        hub_models.resolve(reference)
    assert not any("safetensors" in path for path in hub.downloads()) or "gated" in reference


def test_fine_tuning_stays_with_the_commit_that_it_started_from(
    hub: Hub, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained, run_dir, name = load_model(MODEL)[2], tmp_path / "run", f"hf://{NAME}"
    train = replace(trained.train, init_from=name)
    job = replace(trained, run_dir=str(run_dir), train=train)
    started = with_initial_model(job, name)
    folder = hub_models.resolve(name)
    assert started.train.init_from == f"{name}@{folder.name}"
    assert started.tokenizer.path == str(folder / "tokenizer.model")
    run_dir.mkdir()
    write_config(run_dir, started)
    hub.push(NAME, hub_server.read_files(MODEL) | {"more": b""})
    assert with_initial_model(job, name) == started
    tagged = replace(job, train=replace(train, init_from=f"{name}@main"))
    assert with_initial_model(tagged, f"{name}@main").train.init_from != started.train.init_from
    # Once there is a checkpoint, neither the Hub nor the cache is needed.
    (run_dir / "checkpoints/step_00000001").mkdir(parents=True)
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    shutil.rmtree(cache)
    assert with_initial_model(job, name) == started
