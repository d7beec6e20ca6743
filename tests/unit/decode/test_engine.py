"""Which engine does a job: by a fixed rule, whatever the machine is doing."""

import os
import subprocess
import sys
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from support.model_folders import JOB, convert, write_model
from support.models import make_tokenizer
from support.paths import ROOT

from transformer_mt import model_folder, run_layout
from transformer_mt.config import ModelConfig, TranslateJob
from transformer_mt.decode import engine as engine_module
from transformer_mt.decode.engine import EngineRequest, open_engine
from transformer_mt.decode.engines import converted_models
from transformer_mt.decode.engines import torch_engine as torch_engine_module
from transformer_mt.decode.translator import Translator
from transformer_mt.errors import InputError
from transformer_mt.kernels import hardware


def built(name: str, compute_type: str) -> Any:
    """Stands for an engine."""
    return SimpleNamespace(name=name, compute_type=compute_type, max_tokens=9)


@pytest.fixture
def choose(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> Any:
    """Returns the engine and the type that are chosen, and the messages."""

    def torch_engine(*arguments: Any) -> Any:
        return built("torch", arguments[-1])

    make_tokenizer(tmp_path)
    (tmp_path / "m").rename(tmp_path / run_layout.TOKENIZER)
    monkeypatch.setattr(hardware, "has_fast_bf16", lambda _: False)
    monkeypatch.setattr(torch_engine_module, "TorchEngine", torch_engine)
    network = SimpleNamespace(to=lambda _: None)
    monkeypatch.setattr(model_folder.ModelFolder, "load_model", lambda _: network)
    monkeypatch.setattr(converted_models, "find_or_convert", lambda *_: Path())
    ct2_engine = lambda *_, compute_type, **__: built("ct2", compute_type)  # noqa: E731
    monkeypatch.setattr(converted_models, "CTranslate2Engine", ct2_engine)

    def chosen(
        engine: str = "auto",
        compute_type: str = "auto",
        device: str = "cpu",
        model: ModelConfig = JOB.model,
        **settings: Any,
    ) -> tuple[str, list[str]]:
        model_folder.write_config(tmp_path, replace(JOB, model=model))
        settings |= {"model": str(tmp_path), "engine": engine, "compute_type": compute_type}
        monkeypatch.setattr(engine_module, "_pick_device", lambda _: device)
        request = EngineRequest(TranslateJob(**settings))
        caplog.clear()
        opened = open_engine(request)
        return f"{opened.name} {opened.compute_type}", caplog.messages

    return chosen


def test_a_model_in_memory_follows_the_same_rule(
    choose: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Validations and the test set of a training run."""
    for fast, place in product((False, True), ("cpu", "cuda:0")):
        monkeypatch.setattr(hardware, "has_fast_bf16", lambda _, fast=fast: fast)
        weight = SimpleNamespace(device=torch.device(place))
        model: Any = SimpleNamespace(embedding=SimpleNamespace(weight=weight))
        tokenizer: Any = None
        engine = Translator.of_model(model, tokenizer, JOB).engine
        assert f"{engine.name} {engine.compute_type}" == choose("torch", "auto", place)[0]


@pytest.mark.parametrize(
    ("engine", "compute_type", "device", "slow_bf16", "fast_bf16"),
    [
        ("auto", "auto", "cpu", "ct2 float32", "ct2 float32"),
        ("torch", "auto", "cpu", "torch float32", "torch float32"),
        ("auto", "auto", "cuda", "torch float32", "torch bfloat16"),
        ("ctranslate2", "auto", "cuda", "ct2 float32", "ct2 bfloat16"),
        ("auto", "float32", "cuda", "torch float32", "torch float32"),
        ("auto", "fast", "cpu", "ct2 int8", "ct2 int8"),
        ("torch", "fast", "cpu", "torch float32", "torch bfloat16"),
        ("auto", "fast", "cuda", "torch float32", "torch bfloat16"),
        ("auto", "int8", "cpu", "ct2 int8", "ct2 int8"),
        ("auto", "bfloat16", "cpu", "torch bfloat16", "torch bfloat16"),
        ("auto", "float16", "cuda", "torch float16", "torch float16"),
    ],
)
def test_the_engine_and_its_type(
    choose: Any,
    monkeypatch: pytest.MonkeyPatch,
    engine: str,
    compute_type: str,
    device: str,
    slow_bf16: str,
    fast_bf16: str,
) -> None:
    """They depend on whether the processor or the GPU is fast in bfloat16."""
    monkeypatch.setattr(converted_models, "check_available", lambda *_: None)
    for is_fast, expected in ((False, slow_bf16), (True, fast_bf16)):
        monkeypatch.setattr(hardware, "has_fast_bf16", lambda _, fast=is_fast: fast)
        chosen, messages = choose(engine, compute_type, device)
        assert chosen == expected
        assert messages == [] or compute_type == "fast"


def test_jobs_that_ctranslate2_cannot_do(choose: Any, tmp_path: Path) -> None:
    chosen, (message,) = choose(compute_type="fast", sampling=True)
    assert chosen == "torch float32"
    assert message.startswith("compute_type=fast: using engine=torch")
    with pytest.raises(InputError, match=r"is not one of: auto, torch, .*ctranslate2"):
        choose("none")
    with pytest.raises(InputError, match="compute_type='float8' is not one of"):
        choose(compute_type="float8")
    with pytest.raises(InputError, match="float16 needs a GPU"):
        choose("torch", "float16")
    with pytest.raises(InputError, match="compute_type=int8 needs engine=ctranslate2: set"):
        choose("torch", "int8")
    for name, settings in (
        ("step", {"step": 5}),
        ("prefix", {"prefix": "aligned"}),
        ("score", {"score": "aligned"}),
        ("sampling", {"sampling": True}),
        ("ensemble", {"ensemble": [str(tmp_path)]}),
        ("max_source_tokens=2048", {"max_source_tokens": 2048}),
        ("alignment", {"alignment": True, "format": "jsonl"}),
        (r"model\.d_k=5", {"model": replace(JOB.model, d_k=5)}),
    ):
        assert choose(**settings)[0] == "torch float32"
        with pytest.raises(InputError, match=f"does not support {name}"):
            choose("ctranslate2", **settings)
        with pytest.raises(InputError, match=f"int8 .* does not support {name}"):
            choose(compute_type="int8", **settings)


def test_log_probabilities_of_tokens_are_pytorch_s(choose: Any) -> None:
    """They choose it unless something else was asked for."""
    assert choose(format="jsonl")[0] == "torch float32"
    assert choose(compute_type="fast", format="jsonl")[0] == "ct2 int8"
    assert choose("ctranslate2", format="jsonl")[0] == "ct2 float32"


def test_without_ctranslate2(choose: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "find_spec", lambda _: None)
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    assert choose() == ("torch float32", [])
    assert choose(compute_type="fast")[0] == "torch float32"
    with pytest.raises(InputError, match="pip install"):
        choose("ctranslate2")
    monkeypatch.setattr(engine_module, "find_spec", lambda _: object())  # a broken installation
    chosen, (message,) = choose()
    assert chosen == "torch float32"
    assert message.endswith("; using engine=torch")


CHILD = """
import sys
from transformer_mt.cli.main import mt_translate

mt_translate()
slow = {"torch", "pandas", "matplotlib", "datasets", "sacremoses"}
print(sorted(slow & sys.modules.keys()), file=sys.stderr)
"""


def test_ctranslate2_does_not_load_torch(tmp_path: Path) -> None:
    """Once the model is converted."""
    folder = tmp_path / "model"
    write_model(folder)
    convert(folder)
    done = subprocess.run(
        [sys.executable, "-c", CHILD, f"model='{folder}'", "device=cpu"],
        input="the dog\n\n",
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.stderr == "[]\n"
    assert done.stdout.count("\n") == 2
