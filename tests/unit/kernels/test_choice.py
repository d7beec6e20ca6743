"""Choice of precision and kernel by time, and again for a run that resumes; compilation."""

import logging
import sys
import sysconfig
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from transformer_mt.config import ModelConfig
from transformer_mt.errors import InputError
from transformer_mt.kernels import choice, hardware
from transformer_mt.kernels.choice import Kernels, choose_kernels, should_compile
from transformer_mt.kernels.products import KERNELS, Kernel

CPU, GPU = torch.device("cpu"), torch.device("cuda")
BASE = ModelConfig()
SMALL = ModelConfig(d_model=8, d_ff=16, num_heads=2)


class FakeClock:
    """A clock that only candidates advance."""

    def __init__(self) -> None:
        self.now = 0.0

    def thread_time(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    clock = FakeClock()
    monkeypatch.setattr(choice, "time", clock)
    return clock


Fastest = Callable[..., tuple[int, list[int]]]


@pytest.fixture
def fastest(clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> Fastest:
    """Chooses among candidates, each given by the seconds of its calls, of which the last repeats.

    Without seconds it is not available. Returns the number of the chosen one, and each one's calls.
    """

    def choose(*seconds: list[float]) -> tuple[int, list[int]]:
        calls = [0] * len(seconds)

        def compute(kernels: Kernels, *_: object) -> None:
            number = int(kernels.products)
            if not seconds[number]:
                raise RuntimeError("could not create a primitive descriptor")
            clock.now += seconds[number][min(calls[number], len(seconds[number]) - 1)]
            calls[number] += 1

        monkeypatch.setattr(choice, "_compute", compute)
        candidates = [Kernels("fp32", str(number)) for number in range(len(seconds))]
        return int(choice._fastest(candidates, SMALL, 64).products), calls

    return choose


@pytest.mark.parametrize(
    ("seconds", "chosen"),
    [
        ([[0.02], [0.9, 0.01], [0.03]], 1),  # whatever a first call costs
        ([[0.02], [0.01, 0.3, 0.01]], 1),  # one slow call is an accident
        ([[0.0105], [0.01], [0.02]], 0),  # a gain of 5% is no reason
        ([[0.02], [0.0105], [0.01]], 1),
        ([[0.02], [], [0.01]], 2),  # the processor lacks one
    ],
)
def test_the_first_that_is_as_fast_as_any_is_chosen(
    seconds: list[list[float]], chosen: int, fastest: Fastest
) -> None:
    assert fastest(*seconds)[0] == chosen


def test_without_time_the_first_kernel_is_chosen(fastest: Fastest) -> None:
    # Without hardware support each may take seconds.
    assert fastest([5.0], [0.01]) == (0, [1, 0])


def test_with_time_for_one_call_each_the_fastest_of_these_is_chosen(fastest: Fastest) -> None:
    assert fastest([0.6], [0.4], [0.49]) == (1, [2, 1, 1])


def test_a_thread_that_waits_does_not_change_the_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a busy machine; only the time in which the thread computes counts."""
    seconds = {"torch": 0.02, "onednn": 0.005}

    def compute(kernels: Kernels, *_: object) -> None:
        assert torch.get_num_threads() == 1
        if kernels.products == "onednn":
            time.sleep(0.05)
        end = time.thread_time() + seconds[kernels.products]
        while time.thread_time() < end:
            pass

    monkeypatch.setattr(choice, "HAS_ONEDNN", True)
    monkeypatch.setattr(choice, "_compute", compute)
    threads = torch.get_num_threads()
    assert choose_kernels("auto", "fp32", CPU, SMALL, 64).products == "onednn"
    assert torch.get_num_threads() == threads


@pytest.fixture
def measured(clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> dict[Kernels, float]:
    """Seconds of each choice, which tests may change."""
    monkeypatch.setattr(hardware, "has_fast_bf16", lambda _: True)
    monkeypatch.setattr(choice, "HAS_ONEDNN", True)
    seconds = {
        Kernels("fp32", "torch"): 0.02,
        Kernels("fp32", "onednn"): 0.02,
        Kernels("bf16", "torch"): 0.02,
        Kernels("bf16", "torch_transposed"): 0.02,
    }

    def compute(kernels: Kernels, *_: object) -> None:
        clock.now += seconds[kernels]

    monkeypatch.setattr(choice, "_compute", compute)
    return seconds


@pytest.mark.parametrize(
    ("products", "precision", "fast", "chosen"),
    [
        ("auto", "auto", "bf16 torch_transposed", "bf16 torch_transposed"),
        ("auto", "auto", "fp32 onednn", "fp32 onednn"),
        ("auto", "auto", "fp32 torch", "fp32 torch"),
        ("auto", "fp32", "bf16 torch", "fp32 torch"),
        ("auto", "fp32", "fp32 onednn", "fp32 onednn"),
        ("auto", "bf16", "fp32 onednn", "bf16 torch"),
        ("torch", "auto", "fp32 onednn", "fp32 torch"),
        ("torch", "auto", "bf16 torch", "bf16 torch"),
        ("onednn", "fp32", "fp32 torch", "fp32 onednn"),
        ("onednn", "auto", "bf16 torch", "bf16 torch"),
        ("onednn", "bf16", "fp32 onednn", "bf16 torch"),  # which is oneDNN's
    ],
)
def test_what_the_settings_leave_open_is_chosen_by_time(
    products: str, precision: str, fast: str, chosen: str, measured: dict[Kernels, float]
) -> None:
    measured[Kernels(*fast.split())] = 0.01
    assert choose_kernels(products, precision, CPU, SMALL, 64) == Kernels(*chosen.split())


def test_bf16_needs_its_instructions(
    measured: dict[Kernels, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    measured[Kernels("bf16")] = 0.01
    for fast in (False, True):
        monkeypatch.setattr(hardware, "has_fast_bf16", lambda _, fast=fast: fast)
        expected = Kernels("bf16" if fast else "fp32")
        assert choose_kernels("auto", "auto", CPU, SMALL, 64) == expected
        assert choose_kernels("auto", "auto", GPU, SMALL, 64) == expected  # without a measurement
    assert choose_kernels("auto", "fp16", GPU, SMALL, 64) == Kernels("fp16")


def test_a_gpu_that_emulates_bf16_trains_in_fp32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: False)
    assert choose_kernels("auto", "auto", GPU, SMALL, 64) == Kernels("fp32")


def test_a_resumed_run_keeps_its_choice(
    measured: dict[Kernels, float], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for recorded in list(measured):
        measured.update(dict.fromkeys(measured, 0.01) | {recorded: 0.03})  # now it is the slowest
        assert choose_kernels("auto", "auto", CPU, SMALL, 64, recorded) == recorded
    assert not caplog.records
    # Settings come first.
    onednn = Kernels("fp32", "onednn")
    assert choose_kernels("torch", "auto", CPU, SMALL, 64, onednn) == Kernels("fp32", "torch")
    assert choose_kernels("auto", "bf16", CPU, SMALL, 64, onednn).precision == "bf16"


def test_a_choice_that_is_not_available_is_made_again_in_the_same_precision(
    measured: dict[Kernels, float], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    measured[Kernels("bf16")] = 0.001
    measured[Kernels("fp32", "onednn")] = 0.01
    recorded = Kernels("fp32", "mixed")
    assert choose_kernels("auto", "auto", CPU, SMALL, 64, recorded) == Kernels("fp32", "onednn")
    assert len(caplog.records) == 1


def test_the_products_of_a_layer_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def record(name: str) -> Any:
        def product(a: Tensor, b: Tensor, bias: Tensor | None = None) -> Tensor:
            seen.append((name, a.dtype, tuple(a.shape), tuple(b.shape)))
            return torch.zeros(2, 3)

        return product

    kernel = Kernel(record("forward"), record("input gradient"), record("weight gradient"))
    monkeypatch.setitem(KERNELS, "torch", kernel)
    monkeypatch.setattr(choice, "_REPETITIONS", 1)
    choice._fastest([Kernels("bf16")], SMALL, 100)
    x, weight, y = (100, 8), (16, 8), (100, 16)
    assert seen == [
        ("forward", torch.bfloat16, x, weight),
        ("input gradient", torch.bfloat16, y, weight),
        ("weight gradient", torch.bfloat16, y, x),
    ]


def test_a_measurement_leaves_the_random_numbers_of_the_run() -> None:
    torch.manual_seed(1)
    expected = torch.rand(1)
    torch.manual_seed(1)
    choose_kernels("auto", "fp32", CPU, SMALL, 64)
    assert torch.equal(torch.rand(1), expected)


@pytest.mark.parametrize(
    ("setting", "model", "device", "precision", "picked"),
    [
        (None, BASE, CPU, "bf16", False),
        (True, BASE, CPU, "fp32", True),
        (None, BASE, GPU, "bf16", True),
        (False, BASE, GPU, "bf16", False),
        (None, BASE, GPU, "fp32", False),
        (None, ModelConfig(d_k=16), GPU, "bf16", False),  # Table 3, row B: d_v is 64
        (None, ModelConfig(d_model=96, d_k=12, d_v=12), GPU, "bf16", False),
    ],
)
def test_step_is_compiled_where_possible(
    setting: bool | None,
    model: ModelConfig,
    device: torch.device,
    precision: str,
    picked: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    monkeypatch.setattr(choice, "_has_compiler", lambda: True)
    assert should_compile(setting, model, device, precision) is picked


def test_step_is_not_compiled_without_a_c_compiler(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    monkeypatch.setenv("CC", "/no/such/compiler")
    assert should_compile(None, BASE, GPU, "bf16") is False
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "needs a C compiler (gcc or clang)" in caplog.text
    assert should_compile(None, BASE, GPU, "fp32") is False
    assert should_compile(False, BASE, GPU, "bf16") is False
    assert len(caplog.records) == 1  # no warning where nothing would be compiled
    with pytest.raises(InputError, match=r"train\.compile=true needs a C compiler"):
        should_compile(True, BASE, GPU, "bf16")
    monkeypatch.setenv("CC", sys.executable)  # any program
    headers = Path(sysconfig.get_path("include"), "Python.h").exists()
    assert should_compile(None, BASE, GPU, "bf16") is headers


def test_compile_true_is_rejected_where_impossible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "Tesla T4")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (7, 5))
    with pytest.raises(InputError, match="needs bf16"):
        should_compile(True, BASE, GPU, "fp32")
    with pytest.raises(InputError, match=r"Ampere GPU or later; here: bf16.*Tesla T4"):
        should_compile(True, BASE, GPU, "bf16")
    assert should_compile(None, BASE, GPU, "bf16") is False
