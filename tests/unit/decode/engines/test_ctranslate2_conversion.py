"""Converted models: complete, of the current weights, usable by any CTranslate2 program."""

import shutil
from pathlib import Path

import ctranslate2
import pytest
import torch
from support.errors import input_error
from support.model_folders import load_folder, write_model

from transformer_mt import checkpoint as ckpt
from transformer_mt import run_layout
from transformer_mt.decode.engines.converted_models import find_or_convert
from transformer_mt.errors import InputError
from transformer_mt.model.layers import FeedForward
from transformer_mt.model.transformer import Transformer
from transformer_mt.model_folder import ModelFolder


def change_weights(folder: Path) -> Transformer:
    """Writes other weights into a model folder; returns their model."""
    model, _, _ = load_folder(folder)
    with torch.no_grad():
        model.embedding.weight[5, 5] += 1
    ckpt.save_tensors(model.state_dict(), folder / run_layout.WEIGHTS)
    return model


def convert(folder: Path, compute_type: str = "float32") -> Path:
    return find_or_convert(ModelFolder(folder), compute_type)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model folder; the cache is in ``tmp_path``."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    write_model(tmp_path / "run")
    return tmp_path / "run"


def files(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_ino for path in folder.iterdir()}


@pytest.mark.parametrize("compute_type", ["float32", "int8"])
def test_a_model_whose_layers_were_changed_is_refused(
    folder: Path, compute_type: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    forward = FeedForward.forward
    monkeypatch.setattr(FeedForward, "forward", lambda self, x: 2 * forward(self, x))
    with input_error("does not compute what the layers of this model do"):
        convert(folder, compute_type)


def test_converted_once_for_each_model(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    place = convert(folder)
    assert place.parent == folder / "ctranslate2"
    assert caplog.messages == [f"converting the model for CTranslate2: {place}"]
    before = files(place)
    assert set(before) == {
        *("config.json", "model.bin", "shared_vocabulary.json", "tokenizer.model"),
    }
    assert convert(folder) == place
    assert len(caplog.messages) == 1
    assert files(place) == before
    change_weights(folder)
    changed = convert(folder)
    assert (changed / "model.bin").read_bytes() != (place / "model.bin").read_bytes()


def test_cache_is_used_if_the_folder_cannot_be_written(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / "ctranslate2").touch()  # no folder can have the name; permissions do not stop root
    home = folder.parent / "home"
    place = convert(folder)
    assert place.is_relative_to(home / ".cache" / "transformer_mt")
    assert caplog.messages == [f"converting the model for CTranslate2: {place}"]
    ctranslate2.Translator(str(place))
    assert convert(folder) == place
    assert len(caplog.messages) == 1
    shutil.rmtree(home)
    home.write_text("")
    with pytest.raises(InputError, match=r"cannot write the cache .*Not a directory"):
        convert(folder)


def test_cache_is_used_for_a_folder_of_links(folder: Path) -> None:
    """As that of the Hugging Face Hub is, whose files are shared by all revisions."""
    weights = folder / run_layout.WEIGHTS
    weights.symlink_to(weights.rename(folder.parent / "blob"))
    assert not convert(folder).is_relative_to(folder)
