"""Checkpoints and model folders: exact, complete or absent, and free of pickle."""

import contextlib
import errno
import io
import json
import os
import pickletools
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from transformer_mt import checkpoint as ckpt
from transformer_mt import files, model_folder
from transformer_mt.config import (
    DataConfig,
    DecodeConfig,
    ModelConfig,
    OptimizerConfig,
    SourceConfig,
    TokenizerConfig,
    TrainJob,
)
from transformer_mt.data.subwords.tokenizer import train_tokenizer
from transformer_mt.errors import InputError, format_os_error
from transformer_mt.model.transformer import Transformer
from transformer_mt.training.optimizer import Optimizer, make_optimizer

MODEL = ModelConfig(d_model=8, d_ff=16, num_heads=2, num_encoder_layers=1, num_decoder_layers=1)
V = 11


def tiny(seed: int, config: ModelConfig = MODEL) -> Transformer:
    torch.manual_seed(seed)
    return Transformer(config, V)


ADAM = OptimizerConfig()
MUON = OptimizerConfig(name="muon", momentum=0.95)


def optimizer_of(model: Transformer, config: OptimizerConfig = ADAM) -> Optimizer:
    optimizer = make_optimizer(model, config)
    optimizer.set_lr(1e-2)
    return optimizer


def update(model: Transformer, optimizer: Optimizer, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=generator)
    optimizer.step()


def save(folder: Path, step: int, seed: int | None = None) -> ckpt.Checkpoint:
    model = tiny(step if seed is None else seed)
    optimizer = optimizer_of(model)
    update(model, optimizer, seed=step)
    return ckpt.save_checkpoint(folder, {"step": step}, ckpt.snapshot(model, optimizer))


def weights(model: Transformer) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def assert_equal(a: Any, b: Any) -> None:
    torch.testing.assert_close(a, b, rtol=0, atol=0)


@pytest.mark.parametrize("config", [ADAM, MUON], ids=["adam", "muon"])
def test_training_resumes_from_a_checkpoint_bit_for_bit(
    tmp_path: Path, config: OptimizerConfig
) -> None:
    model = tiny(1)
    optimizer = optimizer_of(model, config)
    for seed in range(3):
        update(model, optimizer, seed)
    saved = ckpt.save_checkpoint(
        tmp_path, {"step": 3, "note": "ü"}, ckpt.snapshot(model, optimizer)
    )
    assert saved.step == 3
    assert saved.path == tmp_path / "checkpoints" / "step_00000003"

    restored = tiny(2)
    other = optimizer_of(restored, config)
    update(restored, other, seed=9)  # its state is replaced
    (found,) = ckpt.valid_checkpoints(tmp_path)
    assert found == saved
    assert found.state["note"] == "ü"
    ckpt.restore(found, restored, other)
    assert_equal(weights(restored), weights(model))
    assert optimizer.state().keys() == other.state().keys()
    assert_equal(other.state(), optimizer.state())
    assert all(value.any() for value in other.state().values())
    for seed in (3, 4):
        update(model, optimizer, seed)
        update(restored, other, seed)
    assert_equal(weights(restored), weights(model))
    assert_equal(other.state(), optimizer.state())


def test_adams_state_is_stored_under_torchs_names(tmp_path: Path) -> None:
    """The format does not depend on the choice of optimizers."""
    saved = save(tmp_path, 1)
    model = tiny(1)
    adam = torch.optim.Adam(model.parameters(), lr=1e-2, betas=(0.9, 0.98), eps=1e-9, fused=True)
    generator = torch.Generator().manual_seed(1)
    for parameter in model.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=generator)
    adam.step()
    expected = {
        f"{name}.{key}": value
        for name, parameter in model.named_parameters()
        for key, value in adam.state[parameter].items()
    }
    found = load_file(saved.path / "optimizer.safetensors")
    assert_equal(found, expected)
    assert {name: t.dtype for name, t in found.items()} == {
        name: t.dtype for name, t in expected.items()
    }


@pytest.mark.parametrize("saved", [ADAM, MUON], ids=["adam", "muon"])
def test_the_state_of_a_different_optimizer_is_rejected(
    tmp_path: Path, saved: OptimizerConfig
) -> None:
    model, (other,) = tiny(1), (c for c in (ADAM, MUON) if c is not saved)
    optimizer = optimizer_of(model, saved)
    update(model, optimizer, seed=1)
    checkpoint = ckpt.save_checkpoint(tmp_path, {"step": 1}, ckpt.snapshot(model, optimizer))
    with pytest.raises(InputError, match=r"optimizer\.safetensors does not fit .* None"):
        ckpt.restore(checkpoint, model, optimizer_of(model, other))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_weights_are_stored_exactly(tmp_path: Path, dtype: torch.dtype) -> None:
    model = tiny(1).to(dtype)
    special = torch.tensor([0.0, -0.0, float("inf"), float("nan"), 1e-40, 1 / 3], dtype=dtype)
    with torch.no_grad():
        next(model.parameters()).view(-1)[:6] = special
    ckpt.save_tensors(ckpt.parameters(model), tmp_path / "w.safetensors")
    loaded = tiny(2).to(dtype)
    ckpt.load_weights(loaded, tmp_path / "w.safetensors")
    for one, two in zip(model.parameters(), loaded.parameters(), strict=True):
        assert one.detach().contiguous().view(torch.uint8).tolist() == (
            two.detach().contiguous().view(torch.uint8).tolist()
        )


def test_checkpoints_are_found_oldest_first(tmp_path: Path) -> None:
    for step in (20, 100, 3):
        save(tmp_path, step)
    assert [c.step for c in ckpt.valid_checkpoints(tmp_path)] == [3, 20, 100]
    assert ckpt.valid_checkpoints(tmp_path / "nothing") == []


@pytest.mark.parametrize("number", range(1, 8))
def test_an_interrupted_save_leaves_existing_checkpoints_intact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Interrupted at the number-th disk access, the new checkpoint is complete or absent."""
    save(tmp_path, 1)
    before = (tmp_path / "checkpoints" / "step_00000001" / "model.safetensors").read_bytes()
    calls = 0

    class Killed(BaseException):
        pass

    def count(real: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == number:
                raise Killed
            return real(*args, **kwargs)

        return counted

    with monkeypatch.context() as patch:
        patch.setattr(ckpt, "save_file", count(save_file))
        patch.setattr(os, "fsync", count(os.fsync))
        patch.setattr(Path, "rename", count(Path.rename))
        with pytest.raises(Killed):
            save(tmp_path, 2)
    found = ckpt.valid_checkpoints(tmp_path)
    assert [c.step for c in found] in ([1], [1, 2])
    assert [p.name for p in (tmp_path / "checkpoints").glob("step_*")] == [
        c.path.name for c in found
    ]
    assert (tmp_path / "checkpoints" / "step_00000001" / "model.safetensors").read_bytes() == before
    save(tmp_path, 2)  # leftovers are removed
    assert [c.step for c in ckpt.valid_checkpoints(tmp_path)] == [1, 2]
    assert sorted(p.name for p in (tmp_path / "checkpoints").iterdir()) == [
        "step_00000001",
        "step_00000002",
    ]


def test_a_file_is_written_under_a_temporary_name(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with files.atomic(path) as temporary:
        temporary.write_text("ne")
        assert path.read_text() == "old"
    assert path.read_text() == "ne"
    with contextlib.suppress(InterruptedError), files.atomic(path) as temporary:
        temporary.write_text("half")
        raise InterruptedError
    assert path.read_text() == "ne"
    assert list(tmp_path.iterdir()) == [path]


def flip(name: str, offset: int) -> Callable[[Path], object]:
    def damage(folder: Path) -> None:
        content = bytearray((folder / name).read_bytes())
        content[offset] ^= 0x10
        (folder / name).write_bytes(content)

    return damage


def cut(name: str) -> Callable[[Path], object]:
    return lambda folder: os.truncate(folder / name, (folder / name).stat().st_size - 1)


def state(**changes: Any) -> Callable[[Path], object]:
    def damage(folder: Path) -> None:
        path = folder / "state.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return damage


def empty(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()


DAMAGES: dict[str, Callable[[Path], object]] = {
    "a bit of a weight": flip("model.safetensors", -1),
    "a bit of the header": flip("model.safetensors", 20),
    "a bit of Adam's state": flip("optimizer.safetensors", -100),
    "weights cut": cut("model.safetensors"),
    "optimizer cut": cut("optimizer.safetensors"),
    "weights empty": lambda f: os.truncate(f / "model.safetensors", 0),
    "no weights": lambda f: (f / "model.safetensors").unlink(),
    "no optimizer": lambda f: (f / "optimizer.safetensors").unlink(),
    "no state": lambda f: (f / "state.json").unlink(),
    "empty folder": empty,
    "state cut": cut("state.json"),
    "state empty": lambda f: (f / "state.json").write_text(""),
    "state not UTF-8": lambda f: (f / "state.json").write_bytes(b"\xff"),
    "state a list": lambda f: (f / "state.json").write_text("[1]"),
    "state null": lambda f: (f / "state.json").write_text("null"),
    "another format": state(format=1),
    "no format": state(format=None),
    "another step": state(step=90),
    "no step": state(step=None),
    "another number": state(note=3),
    "no checksums": state(sha256={}),
    "checksums of no kind": state(sha256=None),
    "checksums a list": state(sha256=["model.safetensors", "optimizer.safetensors"]),
    "checksum of a file elsewhere": state(sha256={"/etc/hostname": "0"}),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_checkpoint_is_reported_and_the_one_before_it_used(
    tmp_path: Path, damage: Callable[[Path], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    warnings: list[str] = []
    monkeypatch.setattr(ckpt.log, "warning", lambda text, *args: warnings.append(text % args))
    save(tmp_path, 10)
    damaged = save(tmp_path, 20).path
    assert len(ckpt.valid_checkpoints(tmp_path)) == 2
    assert warnings == []
    damage(damaged)
    assert [c.step for c in ckpt.valid_checkpoints(tmp_path)] == [10]
    (warning,) = warnings
    assert f"{damaged} cannot be used" in warning
    save(tmp_path, 20)  # training reaches this step again
    assert [c.step for c in ckpt.valid_checkpoints(tmp_path)] == [10, 20]


def test_any_flipped_bit_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ckpt.log, "warning", lambda *_: None)
    path = save(tmp_path, 1).path
    rng = np.random.default_rng(0)
    for name in ("model.safetensors", "optimizer.safetensors", "state.json"):
        whole = (path / name).read_bytes()
        for place in rng.integers(0, len(whole), 50):
            flipped = bytearray(whole)
            flipped[place] ^= 1 << int(rng.integers(8))
            (path / name).write_bytes(flipped)
            assert ckpt.valid_checkpoints(tmp_path) == []
        (path / name).write_bytes(whole)
    assert len(ckpt.valid_checkpoints(tmp_path)) == 1


def test_the_average_is_the_element_wise_mean(tmp_path: Path) -> None:
    checkpoints = [save(tmp_path, step) for step in (1, 2, 3, 4, 5)]
    found = ckpt.average(checkpoints[1:])
    assert found.keys() == weights(tiny(9)).keys()
    for name, tensor in found.items():
        arrays = []
        for checkpoint in checkpoints[1:]:
            with safe_open(checkpoint.path / "model.safetensors", "numpy") as file:
                arrays.append(file.get_tensor(name))
        mean = np.mean(np.stack(arrays), axis=0, dtype=np.float64).astype(np.float32)
        np.testing.assert_array_equal(tensor.numpy(), mean)


def test_the_average_of_one_checkpoint_is_its_weights(tmp_path: Path) -> None:
    assert_equal(ckpt.average([save(tmp_path, 1)]), weights_of(1, tmp_path))


def weights_of(step: int, folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "checkpoints" / f"step_{step:08d}" / "model.safetensors")


def test_a_snapshot_does_not_change_with_the_model(tmp_path: Path) -> None:
    model = tiny(1)
    optimizer = optimizer_of(model)
    update(model, optimizer, seed=1)
    taken, before = ckpt.snapshot(model, optimizer), weights(model)
    update(model, optimizer, seed=2)
    ckpt.save_checkpoint(tmp_path, {"step": 1}, taken)
    assert_equal(weights_of(1, tmp_path), before)


def test_validation_metrics_are_stored_in_the_checkpoint(tmp_path: Path) -> None:
    saved = save(tmp_path, 1)
    assert saved.validation is None
    ckpt.write_validation(saved, {"nll": 1 / 3, "bleu": 20.0})
    (found,) = ckpt.valid_checkpoints(tmp_path)
    assert found.validation == {"nll": 1 / 3, "bleu": 20.0}
    path = saved.path / "validation.json"
    whole = path.read_text()
    for damage in ("", "[1]", "{", "null", '{"values": {}}', whole.replace("20.0", "21.0")):
        assert damage != whole
        path.write_text(damage)
        assert found.validation is None  # the validation is repeated


def test_file_modes_follow_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        path = save(tmp_path, 1).path / "model.safetensors"
        ckpt.save_tensors(ckpt.parameters(tiny(1)), tmp_path / "model.safetensors")
    finally:
        os.umask(before)
    for file in (path, tmp_path / "model.safetensors"):
        assert file.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("how", ["deleted", "saved again"])
def test_an_interrupted_deletion_leaves_no_damaged_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    saved = save(tmp_path, 1)

    def cut(path: Path, **_: Any) -> None:
        if path.exists():
            next(path.iterdir()).unlink()
            raise InterruptedError

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", cut)
        with pytest.raises(InterruptedError):
            ckpt.delete_checkpoint(saved.path) if how == "deleted" else save(tmp_path, 1)
    assert list((tmp_path / "checkpoints").glob("step_*")) == []
    save(tmp_path, 1)
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step_00000001"]


def test_a_failed_save_frees_its_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    save(tmp_path, 1)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space"):
            save(tmp_path, 2)
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step_00000001"]


def test_weights_of_a_different_model_are_rejected(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    ckpt.save_tensors(ckpt.parameters(tiny(1)), path)
    wider = tiny(1, replace(MODEL, d_ff=32))
    before = weights(wider)
    with pytest.raises(InputError, match=r"does not fit .*feed_forward.*shape .*16.*expected .*32"):
        ckpt.load_weights(wider, path)
    assert_equal(weights(wider), before)
    with pytest.raises(InputError, match=r"encoder\.1\..* has shape None"):
        ckpt.load_weights(tiny(1, replace(MODEL, num_encoder_layers=2)), path)
    path.write_bytes(b"rubbish" * 10)
    with pytest.raises(InputError, match=r"is damaged .*: copy it again"):
        ckpt.load_weights(tiny(1), path)
    path.unlink()
    with pytest.raises(InputError, match=r"^cannot read .*: No such file or directory$"):
        ckpt.load_weights(tiny(1), path)


# Model folders.


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


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (shutil.rmtree, "no model folder"),
        (lambda f: (f / "config.yaml").unlink(), r"not a model folder: cannot read config\.yaml"),
        (lambda f: (f / "model.safetensors").unlink(), "not reached the first checkpoint"),
        (lambda f: (f / "tokenizer.model").unlink(), "cannot load the vocabulary"),
        (lambda f: (f / "tokenizer.model").write_bytes(b"x"), "not a SentencePiece model"),
        (lambda f: os.truncate(f / "model.safetensors", 99), r"is damaged .*: copy it again"),
        (lambda f: (f / "config.yaml").write_text("a: [1"), "is damaged"),
        (lambda f: (f / "config.yaml").write_text("[" * 9999), "is damaged"),
        (lambda f: append(f, "run_dir: &a [*a]\n"), "is damaged"),
        (lambda f: append(f, f"x: {'9' * 5000}\n"), "is damaged"),
        (lambda f: (f / "config.yaml").write_text(""), "is damaged"),
        (lambda f: (f / "config.yaml").write_text("- 1\n"), "is damaged"),
        (lambda f: (f / "config.yaml").write_text("text"), "is damaged"),
        (lambda f: (f / "config.yaml").write_bytes(b"a: \xff"), "is damaged"),
        (lambda f: (f / "config.yaml").write_text("format: 99\n"), "format 99"),
        (lambda f: (f / "config.yaml").write_text("model: {}\n"), "has no format: it is truncated"),
        (lambda f: (f / "tokenizer.model").write_bytes(b""), "the file is empty"),
        (lambda f: append(f, "nonsense: 1\n"), "nonsense"),
        (lambda f: append(f, "model: {d_model: many}\n"), "many"),
        (lambda f: append(f, "model: {d_model: 7}\n"), "must be even"),
        (lambda f: append(f, "x: ${oc.env:HOME}\n"), "interpolations"),
        (lambda f: append(f, "x: !!python/object/apply:os.system [echo]\n"), "is damaged"),
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


def test_a_vocabulary_that_is_not_that_of_the_training(folder: Path) -> None:
    vocabulary = folder / "tokenizer.model"
    job = model_folder.read_config(folder)
    model_folder.write_config(folder, job, vocabulary)
    model_folder.load_model(folder)
    content = vocabulary.read_bytes()
    letter = b"\x0a\x01w"  # a piece of one byte, in the file's format
    assert content.count(letter) == 1
    vocabulary.write_bytes(content.replace(letter, b"\x0a\x01Q"))
    model_folder.Tokenizer(vocabulary)  # it is one, but another
    with pytest.raises(InputError, match=r"tokenizer\.model is damaged or of another tr"):
        model_folder.load_model(folder)


def test_missing_weights_of_a_run_that_has_checkpoints(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "checkpoints" / "step_00000007").mkdir(parents=True)
    with pytest.raises(InputError, match=r"no model\.safetensors: copy it again, or set step=7 to"):
        model_folder.load_model(folder)


def append(folder: Path, text: str) -> None:
    with (folder / "config.yaml").open("a") as file:
        file.write(text)


ODD_STRINGS = [
    "plain",
    "with space",
    " leading and trailing ",
    "null",
    "~",
    "yes",
    "1",
    "1e3",
    "0x1F",
    "2001-01-01",
    "",
    "a: b",
    "- a",
    "# no comment",
    "'single' \"double\"",
    "back\\slash",
    "[a, {b: c}]",
    "tab\tnewline\nend\n",
    "Größe 中文 😀",
    "\u2028\u0085\ufeff\x7f",
    "!!python/name:os.system",
    "&a *a %x @x `x` |x >x",
    "x" * 3000,
    "$HOME $(x) {x}",
]


@pytest.mark.parametrize("text", ODD_STRINGS)
def test_a_configuration_survives_writing_and_reading(tmp_path: Path, text: str) -> None:
    source = SourceConfig(src=text or "s", tgt=text or "t")
    data = DataConfig(src_lang="en", tgt_lang="de", train=[source], valid=[source, source])
    written = TrainJob(
        run_dir=text or "r",
        data=data,
        tokenizer=TokenizerConfig(path=text),
        decode=DecodeConfig(length_penalty=1 / 3),
    )
    model_folder.write_config(tmp_path, written)
    assert model_folder.read_config(tmp_path) == written


def test_numbers_of_a_configuration_are_stored_exactly(tmp_path: Path) -> None:
    written = job(decode=DecodeConfig(length_penalty=0.1 + 0.2))
    for value in (1e-9, 1e22, 5e-324, 3.0, 1e-5):
        optimizer = replace(written.optimizer, eps=value)
        model_folder.write_config(tmp_path, replace(written, optimizer=optimizer))
        assert model_folder.read_config(tmp_path).optimizer.eps == value
    assert model_folder.read_config(tmp_path).decode.length_penalty == 0.1 + 0.2


def test_a_truncated_configuration_is_rejected(folder: Path) -> None:
    path = folder / "config.yaml"
    whole = path.read_bytes()
    assert b"length_penalty: 0.6\n" in whole  # cut off as 0. it would be another search
    for size in range(0, len(whole) - 2, 23):
        path.write_bytes(whole[:size])
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
    whole = path.read_bytes()
    for place in (-1, -len(whole) // 2):
        content = bytearray(whole)
        content[place] ^= 1
        path.write_bytes(content)
        with pytest.raises(InputError, match=r"model\.safetensors is damaged: its checksum is wr"):
            model_folder.load_model(folder)
    # Weights that another program wrote have no checksum.
    path.write_bytes(whole)
    tensors = load_file(path)
    save_file(tensors, path)
    assert_equal(weights(model_folder.load_model(folder)[0]), tensors)


def test_a_full_disk_is_reported_with_the_file(tmp_path: Path) -> None:
    def write() -> None:
        with files.atomic(tmp_path / "out.de"):
            raise OSError(errno.ENOSPC, "No space left on device")  # like a write

    with pytest.raises(OSError, match="No space left") as caught:
        write()
    assert format_os_error(caught.value) == f"No space left on device: {tmp_path / 'out.de'}"


def is_pickle(content: bytes) -> bool:
    try:
        return any(
            opcode.name == "STOP" for opcode, _, _ in pickletools.genops(io.BytesIO(content))
        )
    except Exception:
        return False


def test_nothing_in_a_checkpoint_is_a_pickle(tmp_path: Path, folder: Path) -> None:
    assert is_pickle(b"\x80\x04K\x01.")  # the test can fail
    save(tmp_path / "checkpoints", 1)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) >= 6
    for path in files:
        content = path.read_bytes()
        assert not is_pickle(content), path
        assert not content.startswith(b"PK"), path  # a torch.save archive
        assert path.suffix in (".safetensors", ".json", ".yaml", ".model")
