"""MarianMT folders made to harm: one line, nothing is executed, and little memory."""

import json
import pickle
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo  # which the first ``torch.load`` would import within the bounds of a test
from hostile_folders import Payload, fifo, sparse
from test_hostile_folders import _bounded, assert_one_line  # noqa: F401

from transformer_mt import Translator
from transformer_mt.errors import InputError

D, V = 16, 8
CONFIG = {
    "model_type": "marian",
    "d_model": D,
    "vocab_size": V,
    "decoder_start_token_id": V - 1,
    "activation_function": "swish",
    "scale_embedding": True,
    **{f"{side}_layers": 1 for side in ("encoder", "decoder")},
    **{f"{side}_attention_heads": 2 for side in ("encoder", "decoder")},
    **{f"{side}_ffn_dim": 32 for side in ("encoder", "decoder")},
}
PIECES = ["</s>", "<unk>", "a", "b", "c", "d", "e", "<pad>"]
Harm = Callable[[Path], object]


def save(folder: Path, tensors: object, *, zipped: bool = True) -> None:
    path = folder / "pytorch_model.bin"
    torch.save(tensors, path, _use_new_zipfile_serialization=zipped)


def weights(**more: object) -> dict[str, object]:
    return {"model.shared.weight": torch.zeros(V, D), **more}


def settings(folder: Path, **changes: object) -> None:
    (folder / "config.json").write_text(json.dumps(CONFIG | changes))


def huge_by_strides(folder: Path) -> None:
    """A matrix of a terabyte, whose rows are the same four bytes."""
    save(folder, {"model.shared.weight": torch.zeros(1).expand(10**9, 250)})


def absurd_storage(folder: Path) -> None:
    """The old format, with a storage of more elements than the file has."""
    save(folder, weights(), zipped=False)
    path = folder / "pytorch_model.bin"
    content = path.read_bytes()
    old = pickle.dumps(V * D, protocol=2)[2:-1]
    assert content.count(old)
    path.write_bytes(content.replace(old, pickle.dumps(2**31 - 1, protocol=2)[2:-1]))


def sparse_file(folder: Path) -> None:
    save(folder, weights())
    sparse(folder / "pytorch_model.bin")


HARM: dict[str, tuple[Harm, str]] = {
    "code": (lambda f: save(f, weights(x=Payload())), "more than tensors"),
    "code, old format": (
        lambda f: save(f, weights(x=Payload()), zipped=False),
        "more than tensors",
    ),
    "plain pickle of code": (
        lambda f: (f / "pytorch_model.bin").write_bytes(pickle.dumps(Payload())),
        "cannot read",
    ),
    "no tensors": (lambda f: save(f, [1, 2]), "not a dictionary of tensors"),
    "number as name": (lambda f: save(f, {1: torch.zeros(1)}), "not a dictionary of tensors"),
    "strides": (huge_by_strides, r"shape \(1000000000, 250\), expected \(8, 16\)"),
    "unknown tensor": (lambda f: save(f, weights(x=torch.zeros(1))), "expected no such tensor"),
    "missing tensors": (lambda f: save(f, weights()), "has no tensor model.encoder.layers.0"),
    "integers": (
        lambda f: save(f, {"model.shared.weight": torch.zeros(V, D, dtype=torch.int8)}),
        "not a dense tensor",
    ),
    "sparse": (
        lambda f: save(f, {"model.shared.weight": torch.zeros(V, D).to_sparse()}),
        "not a dense tensor|more than tensors",
    ),
    "absurd storage": (absurd_storage, "cannot read"),
    "sparse file": (sparse_file, "cannot read"),
    "FIFO as weights": (lambda f: fifo(f / "pytorch_model.bin"), "not a regular file"),
    "FIFO as vocabulary": (lambda f: fifo(f / "vocab.json"), "not a regular file"),
    "FIFO as config": (lambda f: fifo(f / "config.json"), "not a regular file"),
    "nested config": (
        lambda f: (f / "config.json").write_text("[" * 100_000),
        r"config\.json: nested too deeply",
    ),
    "vocabulary of lists": (
        lambda f: (f / "vocab.json").write_text(json.dumps({p: [] for p in PIECES})),
        "must be 0, 1, 2",
    ),
    "surrogate": (
        lambda f: (f / "vocab.json").write_text('{"\\ud800": 0, "a": 1, "b": 2, "c": 3}'),
        "surrogates not allowed",
    ),
}
WIDE = {"d_model": 10**5, "encoder_ffn_dim": 10**5, "decoder_ffn_dim": 10**5}
DEEP = {"encoder_layers": 1000, "decoder_layers": 1000}
SETTINGS: dict[str, tuple[dict[str, Any], str]] = {
    "no size": ({"d_model": None}, r"config\.json: it is not an object with"),
    "a lie": ({"vocab_size": 99}, "its vocabulary has 8 pieces, not vocab_size=99"),
    "absurd size": ({"d_model": 10**9}, r"model\.d_model=1000000000 must be"),
    "two widths": ({"encoder_ffn_dim": 64}, "encoder and decoder differ in ffn_dim: 64 and 32"),
    "start": ({"decoder_start_token_id": 5}, "its decoder starts with d, not with <pad> or <s>"),
    "no such id": ({"decoder_start_token_id": -1}, "decoder_start_token_id=-1 is not an id"),
    "a million layers": ({"decoder_layers": 10**6}, "num_decoder_layers=1000000"),
    "wide and deep": (WIDE | DEEP, "neither model.safetensors nor pytorch_model.bin"),
    "type": ({"model_type": "bart"}, "of type bart: .* only type marian can be used"),
    "activation": ({"activation_function": "mish\x1b"}, r"activation_function=mish\\x1b is not"),
    "activation as list": ({"activation_function": []}, "is not supported"),
    "dropout as text": ({"dropout": "x"}, "dropout=x is not a number"),
    "not a number": ({"max_position_embeddings": float("nan")}, "=nan is not a"),
    "penalty too large": ({"length_penalty": 10**400}, "is not a number, or too"),
}
HARM |= {name: (partial(settings, **new), message) for name, (new, message) in SETTINGS.items()}


@pytest.mark.parametrize("name", HARM)
def test_folder_is_refused(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "model"
    folder.mkdir()
    settings(folder)
    (folder / "vocab.json").write_text(json.dumps({p: i for i, p in enumerate(PIECES)}))
    for side in ("source.spm", "target.spm"):
        (folder / side).write_bytes(b"never read")
    harm, message = HARM[name]
    harm(folder)
    with pytest.raises(InputError, match=message) as error:
        Translator.load(folder, device="cpu")
    assert str(folder) in str(error.value)
    assert_one_line(error.value)
    assert not (tmp_path / "HARMED").exists()
    assert not list((tmp_path / "cache").rglob("model.safetensors"))
