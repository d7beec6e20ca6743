"""Model folders: loading, also at one of the checkpoints; damage; the stored configuration."""

import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import assume, example, given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from support.model_folders import Payload, load_folder, save_step
from support.models import tiny_config

from transformer_mt import checkpoint as ckpt
from transformer_mt import model_folder
from transformer_mt.config import (
    DataConfig,
    SearchConfig,
    SourceConfig,
    TokenizerConfig,
    TrainConfig,
    TrainJob,
)
from transformer_mt.data.subwords.vocabulary_training import train_tokenizer
from transformer_mt.errors import InputError
from transformer_mt.model.transformer import Transformer
from transformer_mt.model_folder import ModelFolder

MODEL = tiny_config()
TEXT = ["a few words to learn from"]


def job(**changes: Any) -> TrainJob:
    source = SourceConfig(tsv="/data/a.tsv")
    data = DataConfig(src_lang="en", tgt_lang="de", train=[source], valid=[source])
    return TrainJob(data=data, model=MODEL, **changes)


@pytest.fixture(scope="module")
def vocabulary() -> bytes:
    return train_tokenizer(TEXT, TokenizerConfig(vocab_size=280))


@pytest.fixture
def folder(tmp_path: Path, vocabulary: bytes) -> Path:
    model_folder.write_config(tmp_path, job())
    (tmp_path / "tokenizer.model").write_bytes(vocabulary)
    torch.manual_seed(1)
    ckpt.save_tensors(Transformer(MODEL, 280).state_dict(), tmp_path / "model.safetensors")
    return tmp_path


def test_weights_are_loaded_from_the_given_step(folder: Path) -> None:
    for step in (5, 20):
        model = Transformer(MODEL, 280)
        with torch.no_grad():
            model.embedding.weight.fill_(step)
        save_step(folder, step, model)
    (folder / "model.safetensors").unlink()  # there is no average yet
    for step in (5, 20):
        model, tokenizer, read = load_folder(folder, step)
        assert model.embedding.weight.unique().tolist() == [step]
        assert not model.training
        assert (tokenizer.vocab_size, read) == (280, job())
    with pytest.raises(InputError, match=r"no model\.safetensors: copy it again, or wait for"):
        ModelFolder(folder).load_model()
    with pytest.raises(InputError, match="no checkpoint of step 6; it has: step_00000005, step_0"):
        ModelFolder(folder, 6).load_model()
    weights = folder / "checkpoints" / "step_00000005" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    with pytest.raises(InputError, match=r"05/model\.safetensors is damaged: its checksum"):
        ModelFolder(folder, 5).load_model()


def test_a_model_folder_is_read_as_it_was_written(folder: Path) -> None:
    torch.manual_seed(1)
    expected = Transformer(MODEL, 280)
    model, tokenizer, read = load_folder(folder)
    torch.testing.assert_close(model.state_dict(), expected.state_dict(), rtol=0, atol=0)
    assert not model.training
    assert read == job()
    assert tokenizer.decode(tokenizer.encode("a word")) == "a word"


def append(folder: Path, text: str) -> None:
    with (folder / "config.yaml").open("a") as file:
        file.write(text)


def pickled(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes(pickle.dumps(Payload()))


def another_vocabulary(folder: Path) -> None:
    (folder / "tokenizer.model").write_bytes(train_tokenizer(TEXT, TokenizerConfig(vocab_size=279)))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (shutil.rmtree, "no model folder"),
        (lambda f: (f / "config.yaml").unlink(), r"not a model folder: it has no config\.yaml"),
        (lambda f: (f / "model.safetensors").unlink(), "wait for the first checkpoint"),
        (
            lambda f: (f / "tokenizer.model").unlink(),
            r"cannot read .*tokenizer\.model: No such file",
        ),
        (
            lambda f: (f / "tokenizer.model").write_bytes(b"x"),
            r"tokenizer\.model is damaged: .*; copy it again",
        ),
        (lambda f: os.truncate(f / "model.safetensors", 99), r"is damaged: .*; copy it again"),
        (lambda f: (f / "config.yaml").write_text("- 1\n"), "is damaged"),
        (lambda f: (f / "config.yaml").write_bytes(b"a: \xff"), "not valid UTF-8"),
        (another_vocabulary, r"embedding\.weight has shape \(280, 8\), expected \(279, 8\)"),
        (lambda f: (f / "config.yaml").write_text("format: 99\n"), "format 99"),
        (
            lambda f: (f / "config.yaml").write_text("model: {}\n"),
            "has format None.*: it is truncated",
        ),
        (lambda f: append(f, "model: {r_drop: 5}\n"), "'r_drop' not in .*another version"),
        (lambda f: append(f, "model: {d_model: many}\n"), "many"),
        (lambda f: append(f, "model: {d_model: 7}\n"), "must be even"),
        (lambda f: append(f, "x: ${oc.env:HOME}\n"), "interpolations"),
        (lambda f: append(f, "${oc.env:HOME}: 1\n"), "interpolations"),
        (lambda f: append(f, 'stage: "\\u0024\\x7boc.env:HOME}"\n'), "interpolations"),
        (lambda f: append(f, "x: !!python/object/apply:os.system [touch HARMED]\n"), "is damaged"),
        (lambda f: append(f, "model: {_target_: os.system}\n"), "'_target_' not in 'ModelConfig'"),
        (pickled("model.safetensors"), "is damaged"),
        (pickled("tokenizer.model"), "is damaged"),
    ],
)
def test_a_damaged_or_hostile_folder_is_rejected_with_one_line(
    folder: Path, damage: Callable[[Path], object], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder.parent)
    damage(folder)
    with pytest.raises(InputError, match=message) as error:
        ModelFolder(folder).load_model()
    assert "\n" not in str(error.value)
    assert str(folder) in str(error.value)
    assert not Path("HARMED").exists()


def test_a_model_needs_no_settings_of_its_training(folder: Path) -> None:
    """Such as a schedule that a package registers, which this process does not know."""
    append(folder, "schedule: {name: of_a_package}\n")
    assert ModelFolder(folder).load_model().vocab_size == ModelFolder(folder).tokenizer.vocab_size
    with pytest.raises(InputError, match="of_a_package"):
        model_folder.read_config(folder, TrainJob)


def test_a_vocabulary_of_a_different_training_is_rejected(folder: Path) -> None:
    vocabulary = folder / "tokenizer.model"
    job = model_folder.read_config(folder, TrainJob)
    model_folder.write_config(folder, job, model_folder.Tokenizer(vocabulary))
    ModelFolder(folder).load_model()
    content = vocabulary.read_bytes()
    letter = b"\x0a\x01w"  # a piece of one byte, in the file's format
    assert content.count(letter) == 1
    vocabulary.write_bytes(content.replace(letter, b"\x0a\x01Q"))
    model_folder.Tokenizer(vocabulary)  # a valid vocabulary, but a different one
    with pytest.raises(InputError, match=r"tokenizer\.model is damaged or of another tr"):
        ModelFolder(folder).load_model()


names = st.text(st.characters(exclude_characters="\0\x85", exclude_categories=["Cs"]), min_size=1)


@given(st.lists(names, min_size=8, max_size=8))
@example(["a$b", "$", "{x}", "\\", "\\$x\\", "a'b", '"', "}"])
@example(["a\x0b", "\x1c", "\t", "ä\u2028", "\u2029", "\ufeff", "\x7f", "\r\n"])
@example(["null", "1e3", "2001-01-01", "a: b", "# x", "!!python/name:os.system", "x" * 3000, "😀"])
def test_any_strings_of_a_configuration_survive(
    tmp_path_factory: pytest.TempPathFactory, strings: list[str]
) -> None:
    """As names of files and folders, but for interpolations, OmegaConf's mark "???" and U+0085."""
    assume("???" not in strings and "${" not in "\n".join(strings))
    folder, (run_dir, cache_dir, src, tgt, tsv, path, init_from, mirror) = (
        tmp_path_factory.mktemp("folder"),
        strings,
    )
    sources = [SourceConfig(src=src, tgt=tgt), SourceConfig(tsv=tsv, tag="<$a\\>")]
    written = TrainJob(
        run_dir=run_dir,
        cache_dir=cache_dir,
        data=DataConfig(
            src_lang="en", tgt_lang="de", train=sources, valid=sources[:1], mirror=mirror
        ),
        tokenizer=TokenizerConfig(path=path),
        train=TrainConfig(init_from=init_from),
        decode=SearchConfig(length_penalty=1 / 3),
    )
    model_folder.write_config(folder, written)
    assert model_folder.read_config(folder, TrainJob) == written


def test_a_truncated_configuration_is_rejected(folder: Path) -> None:
    path = folder / "config.yaml"
    intact = path.read_bytes()
    assert b"length_penalty: 0.6\n" in intact  # truncated to 0. it would change the search
    for size in range(0, len(intact) - 2, 97):
        path.write_bytes(intact[:size])
        with pytest.raises(InputError, match=r"config\.yaml"):
            model_folder.read_config(folder, TrainJob)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_rejected(folder: Path, value: float) -> None:
    """CTranslate2 would otherwise produce empty lines or plausible text."""
    model, _, _ = load_folder(folder)
    with torch.no_grad():
        model.embedding.weight[7, 3] = value
    ckpt.save_tensors(model.state_dict(), folder / "model.safetensors")
    with pytest.raises(InputError, match=r"embedding\.weight is not finite"):
        ModelFolder(folder).load_model()


def test_a_flipped_bit_of_the_weights_is_detected(folder: Path) -> None:
    path = folder / "model.safetensors"
    intact = path.read_bytes()
    for place in (-1, -len(intact) // 2):
        content = bytearray(intact)
        content[place] ^= 1
        path.write_bytes(content)
        with pytest.raises(InputError, match=r"model\.safetensors is damaged: its checksum is wr"):
            ModelFolder(folder).load_model()
    # Weights that another program wrote have no checksum.
    path.write_bytes(intact)
    tensors = load_file(path)
    save_file(tensors, path)
    loaded = ModelFolder(folder).load_model().state_dict()
    torch.testing.assert_close(loaded, tensors, rtol=0, atol=0)
