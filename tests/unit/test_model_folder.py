"""Model folders: loading, also at one of the checkpoints; damage; the stored configuration."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from hypothesis import assume, example, given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor

from transformer_mt import checkpoint as ckpt
from transformer_mt import model_folder, run_layout
from transformer_mt.config import (
    DataConfig,
    ModelConfig,
    SearchConfig,
    SourceConfig,
    TokenizerConfig,
    TrainConfig,
    TrainJob,
)
from transformer_mt.data.subwords.vocabulary_training import train_tokenizer
from transformer_mt.errors import InputError
from transformer_mt.model.transformer import Transformer

MODEL = ModelConfig(d_model=8, d_ff=16, num_heads=2, num_encoder_layers=1, num_decoder_layers=1)


def weights(model: Transformer) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in model.named_parameters()}


def assert_equal(actual: object, expected: object) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=0)


@pytest.fixture
def run_with_steps(tmp_path: Path) -> Path:
    """A run with checkpoints of steps 5 and 20, and no average yet."""
    source = [SourceConfig(sample="train")]
    data = DataConfig(src_lang="en", tgt_lang="de", train=source, valid=source)
    model_folder.write_config(tmp_path, TrainJob(data=data, model=MODEL))
    text = train_tokenizer(["a b c d"] * 9, TokenizerConfig(vocab_size=269))
    (tmp_path / run_layout.TOKENIZER).write_bytes(text)
    for step in (5, 20):
        model = Transformer(MODEL, 269)
        with torch.no_grad():
            model.embedding.weight.fill_(step)
        tensors = ckpt.snapshot(model, {"moment": torch.zeros(1)})
        ckpt.save_checkpoint(tmp_path, {"step": step}, tensors)
    return tmp_path


def test_weights_are_loaded_from_the_given_step(run_with_steps: Path) -> None:
    for step in (5, 20):
        model, tokenizer, job = model_folder.load_model(run_with_steps, step)
        assert model.embedding.weight.unique().tolist() == [step]
        assert not model.training
        assert (tokenizer.vocab_size, job.model) == (269, MODEL)
    with pytest.raises(
        InputError, match=r"no model\.safetensors: copy it again, or set step=20 to"
    ):
        model_folder.load_model(run_with_steps)
    with pytest.raises(InputError, match="has no checkpoint of step 6; it has: 5, 20"):
        model_folder.load_model(run_with_steps, 6)
    with pytest.raises(InputError, match="no model folder"):
        model_folder.load_model(run_with_steps / "nowhere", 5)
    weights = run_with_steps / "checkpoints" / "step_00000005" / run_layout.WEIGHTS
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    with pytest.raises(InputError, match="step_00000005 cannot be used: the checksum of model"):
        model_folder.load_model(run_with_steps, 5)


def job(**changes: Any) -> TrainJob:
    source = SourceConfig(tsv="/data/a.tsv")
    data = DataConfig(src_lang="en", tgt_lang="de", train=[source], valid=[source])
    return TrainJob(data=data, model=MODEL, **changes)


@pytest.fixture(scope="module")
def vocabulary() -> bytes:
    config = TokenizerConfig(vocab_size=280)
    return train_tokenizer(["a few words to learn from"], config)


@pytest.fixture
def folder(tmp_path: Path, vocabulary: bytes) -> Path:
    model_folder.write_config(tmp_path, job())
    (tmp_path / "tokenizer.model").write_bytes(vocabulary)
    torch.manual_seed(1)
    ckpt.save_tensors(ckpt.parameters(Transformer(MODEL, 280)), tmp_path / "model.safetensors")
    return tmp_path


def test_a_model_folder_is_read_as_it_was_written(folder: Path) -> None:
    torch.manual_seed(1)
    expected = Transformer(MODEL, 280)
    model, tokenizer, read = model_folder.load_model(folder)
    assert_equal(weights(model), weights(expected))
    assert not model.training
    assert read == job()
    assert tokenizer.decode(tokenizer.encode(["a word"])) == ["a word"]


def test_a_folder_whose_name_is_not_utf8_is_not_damaged(folder: Path, tmp_path: Path) -> None:
    named = tmp_path / "caf\udce9"
    shutil.copytree(folder, named, ignore=shutil.ignore_patterns(named.name))
    for read in (model_folder.load_model, model_folder.load_tokenizer, model_folder.locate):
        with pytest.raises(InputError, match=r"not valid UTF-8.*rename") as error:
            read(named)  # type: ignore[operator]
        assert "damaged" not in str(error.value)


def append(folder: Path, text: str) -> None:
    with (folder / "config.yaml").open("a") as file:
        file.write(text)


def another_vocabulary(folder: Path) -> None:
    vocabulary = train_tokenizer(["a few words to learn from"], TokenizerConfig(vocab_size=279))
    (folder / "tokenizer.model").write_bytes(vocabulary)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (shutil.rmtree, "no model folder"),
        (lambda f: (f / "config.yaml").unlink(), r"not a model folder: cannot read config\.yaml"),
        (lambda f: (f / "model.safetensors").unlink(), "not reached the first checkpoint"),
        (lambda f: (f / "tokenizer.model").unlink(), "cannot load the vocabulary"),
        (lambda f: (f / "tokenizer.model").write_bytes(b"x"), "not a SentencePiece model"),
        (lambda f: os.truncate(f / "model.safetensors", 99), r"is damaged .*: copy it again"),
        (lambda f: append(f, f"x: {'9' * 5000}\n"), "is damaged"),
        (lambda f: (f / "config.yaml").write_text("- 1\n"), "is damaged"),
        (lambda f: (f / "config.yaml").write_bytes(b"a: \xff"), "is damaged"),
        (another_vocabulary, r"embedding\.weight has shape \(280, 8\), expected \(279, 8\)"),
        (lambda f: (f / "config.yaml").write_text("format: 99\n"), "format 99"),
        (lambda f: (f / "config.yaml").write_text("model: {}\n"), "has no format: it is truncated"),
        (lambda f: (f / "tokenizer.model").write_bytes(b""), "the file is empty"),
        (lambda f: append(f, "nonsense: 1\n"), "nonsense"),
        (lambda f: append(f, "model: {d_model: many}\n"), "many"),
        (lambda f: append(f, "model: {d_model: 7}\n"), "must be even"),
        (lambda f: append(f, "x: ${oc.env:HOME}\n"), "interpolations"),
        (lambda f: append(f, "${oc.env:HOME}: 1\n"), "interpolations"),
        (lambda f: append(f, "card: {name: !!binary JHtvYy5lbnY6SE9NRX0=}\n"), "is damaged"),
    ],
)
def test_a_damaged_folder_is_rejected_with_one_line(
    folder: Path, damage: Callable[[Path], object], message: str
) -> None:
    damage(folder)
    with pytest.raises(InputError, match=message) as error:
        model_folder.load_model(folder)
    assert "\n" not in str(error.value)
    assert str(folder) in str(error.value)


def test_a_vocabulary_of_a_different_training_is_rejected(folder: Path) -> None:
    vocabulary = folder / "tokenizer.model"
    job = model_folder.read_config(folder)
    model_folder.write_config(folder, job, vocabulary)
    model_folder.load_model(folder)
    content = vocabulary.read_bytes()
    letter = b"\x0a\x01w"  # a piece of one byte, in the file's format
    assert content.count(letter) == 1
    vocabulary.write_bytes(content.replace(letter, b"\x0a\x01Q"))
    model_folder.Tokenizer(vocabulary)  # a valid vocabulary, but a different one
    with pytest.raises(InputError, match=r"tokenizer\.model is damaged or of another tr"):
        model_folder.load_model(folder)


pieces = st.sampled_from(["\\", "${", "}", "${oc.env:HF_TOKEN}", "$", "{", "'", '"', " ", "a", ":"])
text_with_interpolations = st.lists(pieces, min_size=1, max_size=8).map("".join)


names = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1)


@given(st.lists(names | text_with_interpolations, min_size=8, max_size=8))
@example(
    ["w ${BUILD} x", "p/x${DATA}.tsv", "\\${", "\\\\${oc.env:HOME}", "${", "a$${b}", "\\", "${x}\\"]
)
@example(["a\x85", "\x85", "\x85a", "ä\u2028", "\u2029", "\ufeff", "\x7f", "\r\n"])
@example(["null", "1e3", "2001-01-01", "a: b", "# x", "!!python/name:os.system", "x" * 3000, "😀"])
def test_any_strings_of_a_configuration_survive(
    tmp_path_factory: pytest.TempPathFactory, strings: list[str]
) -> None:
    """As names of files and folders; OmegaConf has no escape for its mark of a missing value."""
    assume("???" not in strings)
    folder, (run_dir, cache_dir, src, tgt, tsv, path, init_from, mirror) = (
        tmp_path_factory.mktemp("folder"),
        strings,
    )
    sources = [SourceConfig(src=src, tgt=tgt), SourceConfig(tsv=tsv, tag="<${a}\\>")]
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
    assert model_folder.read_config(folder) == written


@given(text_with_interpolations)
@example("\\${oc.env:HF_TOKEN}")
@example("\\\\${oc.env:HF_TOKEN}")
@example("\\${${oc.env:HF_TOKEN}")
def test_an_escape_hides_no_interpolation(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    folder = tmp_path_factory.mktemp("folder")
    model_folder.write_config(folder, job(run_dir="RUN_DIR"))
    config = folder / "config.yaml"
    config.write_text(config.read_text().replace("RUN_DIR", json.dumps(text)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_TOKEN", "hf_secret")
        try:
            read = model_folder.read_config(folder).run_dir
        except InputError as error:
            read = str(error)
    assert "hf_secret" not in read


def test_a_configuration_of_half_a_megabyte_can_be_read(tmp_path: Path) -> None:
    """As of a thousand sources, which take longer to write."""
    path = "/data" * 600
    sources = [SourceConfig(src=f"{path}-{i}.en.gz", tgt=f"{path}-{i}.de.gz") for i in range(80)]
    data = DataConfig(src_lang="en", tgt_lang="de", train=sources, valid=sources[:1])
    written = TrainJob(data=data, model=MODEL)
    model_folder.write_config(tmp_path, written)
    assert model_folder.read_config(tmp_path) == written


def test_a_truncated_configuration_is_rejected(folder: Path) -> None:
    path = folder / "config.yaml"
    intact = path.read_bytes()
    assert b"length_penalty: 0.6\n" in intact  # truncated to 0. it would change the search
    for size in range(0, len(intact) - 2, 97):
        path.write_bytes(intact[:size])
        with pytest.raises(InputError, match=r"config\.yaml"):
            model_folder.read_config(folder)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_rejected(folder: Path, value: float) -> None:
    """CTranslate2 would otherwise produce empty lines or plausible text."""
    model, _, _ = model_folder.load_model(folder)
    with torch.no_grad():
        model.embedding.weight[7, 3] = value
    ckpt.save_tensors(ckpt.parameters(model), folder / "model.safetensors")
    with pytest.raises(InputError, match=r"embedding\.weight is not finite"):
        model_folder.load_model(folder)


def test_a_flipped_bit_of_the_weights_is_detected(folder: Path) -> None:
    path = folder / "model.safetensors"
    intact = path.read_bytes()
    for place in (-1, -len(intact) // 2):
        content = bytearray(intact)
        content[place] ^= 1
        path.write_bytes(content)
        with pytest.raises(InputError, match=r"model\.safetensors is damaged: its checksum is wr"):
            model_folder.load_model(folder)
    # Weights that another program wrote have no checksum.
    path.write_bytes(intact)
    tensors = load_file(path)
    save_file(tensors, path)
    assert_equal(weights(model_folder.load_model(folder)[0]), tensors)


def test_folders_of_earlier_versions_are_read(run_with_steps: Path) -> None:
    """With settings that have been removed, such as selection by COMET."""
    config = run_with_steps / run_layout.CONFIG
    before = model_folder.read_config(run_with_steps)
    values = yaml.safe_load(config.read_text())
    for key, accepted in model_folder._REMOVED.items():
        *groups, name = key.split(".")
        settings = values
        for group in groups:
            settings = settings.setdefault(group, {})
        settings[name] = accepted[-1] if accepted else 0.5
    assert values["train"]["best_by"] == "comet"
    values["data"]["augment"] = {"upper_case": 0.0, "typing_errors": 0.0}
    config.write_text(yaml.safe_dump(values, sort_keys=False))
    assert model_folder.read_config(run_with_steps) == before


def test_an_unknown_setting_is_rejected(run_with_steps: Path) -> None:
    config = run_with_steps / run_layout.CONFIG
    config.write_text(config.read_text().replace("\ntrain:\n", "\ntrain:\n  r_drop: 5.0\n"))
    with pytest.raises(InputError, match=r"unknown setting train\.r_drop; another version wrote"):
        model_folder.read_config(run_with_steps)
