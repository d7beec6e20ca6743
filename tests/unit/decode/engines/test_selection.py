"""Which engines may do a job, the first of them without a measurement."""

import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from support.models import random_model

from transformer_mt.config import DecodeConfig
from transformer_mt.decode.engines import selection
from transformer_mt.decode.engines.selection import EngineRequest
from transformer_mt.kernels import hardware

CPU, GPU = torch.device("cpu"), torch.device("cuda")


def candidates(
    engine: str = "auto",
    compute_type: str = "auto",
    device: torch.device = CPU,
    **settings: Any,
) -> list[str]:
    request = EngineRequest(
        folder=Path(),
        models=settings.pop("models", [random_model()]),
        tokenizer=SimpleNamespace(),  # type: ignore[arg-type]
        config=DecodeConfig(**settings),
        device=device,
        compute_type=compute_type,
    )
    found = selection._candidates(engine, request)
    return [f"{each.engine} {each.compute_type}" for each in found]


@pytest.fixture(autouse=True)
def _without_fast_bf16(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "has_fast_bf16", lambda _: False)


needs_ctranslate2 = pytest.mark.skipif(
    find_spec("ctranslate2") is None, reason="CTranslate2 is not installed (the extra 'fast')"
)


@needs_ctranslate2
@pytest.mark.parametrize("compute_type", ["auto", "float32"])
def test_auto_never_trades_accuracy(compute_type: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for fast in (False, True):
        monkeypatch.setattr(hardware, "has_fast_bf16", lambda _, fast=fast: fast)
        found = candidates(compute_type=compute_type)
        assert found == ["ctranslate2 float32", "torch float32"]
        assert candidates("torch", compute_type) == ["torch float32"]
        assert candidates("ctranslate2", compute_type) == ["ctranslate2 float32"]
        assert candidates("auto", compute_type, GPU) == ["torch float32"]


@needs_ctranslate2
def test_fast_tries_every_type(monkeypatch: pytest.MonkeyPatch) -> None:
    both = ["ctranslate2 float32", "torch float32"]
    assert candidates(compute_type="fast") == ["ctranslate2 int8", *both]
    assert candidates("ctranslate2", "fast") == ["ctranslate2 int8", "ctranslate2 float32"]
    assert candidates("torch", "fast") == ["torch float32"]
    assert candidates(compute_type="fast", device=GPU) == ["torch float32"]
    monkeypatch.setattr(hardware, "has_fast_bf16", lambda _: True)
    assert candidates(compute_type="fast") == ["ctranslate2 int8", "torch bfloat16", *both]
    bf16 = ["torch bfloat16", "torch float32"]
    assert candidates("torch", "fast") == bf16
    assert candidates(compute_type="fast", device=GPU) == bf16
    assert candidates(compute_type="fast", min_length=3) == bf16


@needs_ctranslate2
def test_jobs_that_ctranslate2_cannot_do() -> None:
    for settings in ({"min_length": 2}, {"sampling": True}, {"models": [random_model(d_k=5)]}):
        assert candidates(**settings) == ["torch float32"]
        assert candidates("ctranslate2", **settings) == ["ctranslate2 float32"]  # which refuses


@pytest.mark.parametrize("engine", ["auto", "torch", "ctranslate2"])
@pytest.mark.parametrize("compute_type", ["int8", "bfloat16", "float16"])
def test_a_named_type_is_what_is_asked_for(engine: str, compute_type: str) -> None:
    has_it = "ctranslate2" if compute_type == "int8" else "torch"
    expected = f"{has_it if engine == 'auto' else engine} {compute_type}"
    assert candidates(engine, compute_type) == [expected]


def test_without_ctranslate2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "find_spec", lambda _: None)
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    assert candidates() == candidates(compute_type="fast") == ["torch float32"]
    assert candidates("ctranslate2") == ["ctranslate2 float32"]
