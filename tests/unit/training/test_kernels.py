"""Choice of CPU kernels: by time, once per machine, and again for a run that resumes."""

from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path

import pytest
import torch
from support.models import random_model
from torch import Tensor

from transformer_mt.config import ModelConfig
from transformer_mt.model.attention import CrossAttention, SelfAttention
from transformer_mt.kernels import hardware
from transformer_mt.kernels.products import Linear, ProductKernels, parameter_gradient
from transformer_mt.training import kernels as kernels_module
from transformer_mt.training.kernels import Kernels, choose_kernels, choose_threads, named_kernels

SHAPES = {"330x16", "48x16", "16x16", "32x16", "16x32", "64x16"}
"""Weights of ``random_model``: output layer, W^QKV, W^O and W^Q, feed-forward, W^KV of 2 layers."""


class FakeClock:
    """A clock that only candidates advance."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now

    def taking(self, *seconds: float) -> "Candidate":
        return Candidate(self, list(seconds))


class Candidate:
    """A kernel whose calls take the given seconds; the last repeats."""

    def __init__(self, clock: FakeClock, seconds: list[float]):
        self.clock, self.seconds, self.calls = clock, seconds, 0

    def __call__(self) -> None:
        self.clock.now += self.seconds[min(self.calls, len(self.seconds) - 1)]
        self.calls += 1


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    clock = FakeClock()
    monkeypatch.setattr(kernels_module, "time", clock)
    return clock


def test_the_fastest_kernel_is_chosen_whatever_its_first_call_costs(clock: FakeClock) -> None:
    candidates = {"a": clock.taking(0.02), "b": clock.taking(0.9, 0.01), "c": clock.taking(0.03)}
    assert kernels_module._fastest(dict(candidates), deadline=100.0) == "b"


def test_one_slow_call_does_not_disqualify_a_kernel(clock: FakeClock) -> None:
    candidates = {"a": clock.taking(0.02), "b": clock.taking(0.01, 0.5, 0.01)}
    assert kernels_module._fastest(dict(candidates), deadline=100.0) == "b"


def test_kernels_that_the_processor_lacks_are_left_out(clock: FakeClock) -> None:
    def missing() -> None:
        raise RuntimeError("could not create a primitive descriptor")

    candidates = {"a": clock.taking(0.02), "b": missing, "c": clock.taking(0.01)}
    assert kernels_module._fastest(candidates, deadline=100.0) == "c"


def test_without_time_the_first_kernel_is_chosen(clock: FakeClock) -> None:
    slow, fast = clock.taking(5.0), clock.taking(0.01)
    assert kernels_module._fastest({"slow": slow, "fast": fast}, deadline=2.0) == "slow"
    assert slow.calls <= 1  # a kernel without hardware support may take seconds


def test_with_time_for_one_call_each_the_fastest_of_these_is_chosen(clock: FakeClock) -> None:
    candidates = {"a": clock.taking(0.6), "b": clock.taking(0.4), "c": clock.taking(0.5)}
    assert kernels_module._fastest(dict(candidates), deadline=1.6) == "b"
    assert [candidate.calls for candidate in candidates.values()] == [2, 1, 1]


@pytest.mark.usefixtures("clock")  # time stands still, so nothing is left out
def test_the_bias_and_the_layout_of_a_gradient_are_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    biased, copied = set(), []

    def product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        biased.update([] if bias is None else [f"{len(weight)}x{weight.shape[1]}"])
        return torch.nn.functional.linear(x, weight, bias)

    def transposed(grad: Tensor, x: Tensor) -> Tensor:
        return (x.T @ grad).T

    def recording(grad: Tensor, dtype: torch.dtype) -> Tensor:
        gradient = parameter_gradient(grad, dtype)
        copied.append((grad.is_contiguous(), gradient.is_contiguous(), gradient.dtype))
        return gradient

    monkeypatch.setattr(kernels_module, "FORWARD", {"torch": product})
    monkeypatch.setattr(kernels_module, "WEIGHT_GRADIENT", {"torch": transposed})
    monkeypatch.setattr(kernels_module, "parameter_gradient", recording)
    choose_kernels(random_model(), torch.float32, 64, tmp_path / "kernels.json")
    assert biased == {"32x16", "16x32"}  # the feed-forward layers
    assert set(copied) == {(False, True, torch.float32)}


@pytest.mark.parametrize(
    ("fp32", "onednn", "bf16", "chosen", "calls"),
    [
        (0.01, 0.02, 0.005, "bf16", 4),
        (0.01, 0.02, 0.015, "fp32", 4),
        (0.02, 0.01, 0.015, "fp32", 4),  # training would use oneDNN
        (0.01, 0.01, 1.0, "fp32", 1),
    ],
)
def test_the_faster_precision_is_chosen(
    fp32: float,
    onednn: float,
    bf16: float,
    chosen: str,
    calls: int,
    clock: FakeClock,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch_bf16 = clock.taking(bf16 / 3)  # each call computes three products
    seconds = {
        ("torch", torch.float32): clock.taking(fp32 / 3),
        ("onednn", torch.float32): clock.taking(onednn / 3),
        ("torch", torch.bfloat16): torch_bf16,
    }

    def product(kernel: str, x: Tensor, weight: Tensor, bias: None) -> Tensor:
        if (kernel, x.dtype) not in seconds:
            raise RuntimeError("could not create a primitive descriptor")
        seconds[kernel, x.dtype]()
        return x @ weight.T

    for name in ("torch", "onednn"):
        monkeypatch.setitem(kernels_module.FORWARD, name, partial(product, name))
    monkeypatch.setattr(kernels_module, "HAS_ONEDNN", True)
    config = ModelConfig(d_model=8, d_ff=16, num_heads=2)
    for _ in range(2):  # a later run on the machine makes the same choice
        assert kernels_module.choose_precision(config, 64, tmp_path / "kernels.json") == chosen
    assert torch_bf16.calls == 3 * calls  # emulated bf16 may take seconds: once is enough


@pytest.fixture
def two_cores(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Two cores, each with two hardware threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(hardware, "available_cores", lambda: 4)
    yield
    after = torch.get_num_threads()
    torch.set_num_threads(before)
    assert after == 2


@pytest.mark.usefixtures("two_cores")
@pytest.mark.parametrize("fastest", [2, 4])
def test_the_faster_number_of_threads_is_chosen(
    fastest: int, clock: FakeClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = {threads: clock.taking(1.0 if threads == fastest else 1.5) for threads in (2, 4)}

    class Layer:
        def __init__(self, _: ModelConfig) -> None:
            pass

        def __call__(self, x: Tensor, _: object) -> Tensor:
            work[torch.get_num_threads()]()
            return x.requires_grad_()

    monkeypatch.setattr(kernels_module, "EncoderLayer", Layer)
    monkeypatch.setattr(kernels_module, "_THREADS_SECONDS", 100.0)
    config, cache = ModelConfig(d_model=8, d_ff=16, num_heads=2), tmp_path / "kernels.json"
    for _ in range(2):  # a later run on the machine makes the same choice
        assert choose_threads(config, None, cache) == fastest
    assert {threads: kernel.calls for threads, kernel in work.items()} == {2: 5, 4: 4}
    assert choose_threads(config, 6 - fastest, cache) == 6 - fastest  # the choice of the run so far
    assert choose_threads(config, 8, cache) == fastest  # another machine's
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert choose_threads(config, 4, cache) == 2


def test_kernels_are_measured_for_every_weight_and_applied(tmp_path: Path) -> None:
    model = random_model()
    kernels = choose_kernels(model, torch.float32, 64, tmp_path / "kernels.json")
    assert kernels.products.keys() == SHAPES
    chosen = Kernels(
        {shape: ProductKernels(weight_gradient="torch_transposed") for shape in SHAPES}, "fused"
    )
    chosen.apply(model)
    for module in model.modules():
        if isinstance(module, Linear):
            assert module.kernels.weight_gradient == "torch_transposed"
        if isinstance(module, SelfAttention | CrossAttention):
            assert module.kernel == "fused"
    assert model.embedding.kernels.weight_gradient == "torch_transposed"
    # Other models are not affected.
    assert random_model().embedding.kernels == ProductKernels()


def test_a_later_run_on_the_machine_makes_the_same_choice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, cache = random_model(), tmp_path / "new" / "kernels.json"
    measured = []
    choice = Kernels({shape: ProductKernels("onednn") for shape in SHAPES}, "fused")
    monkeypatch.setattr(kernels_module, "_measure", lambda *_, **__: measured.append(1) or choice)
    for _ in range(2):
        assert choose_kernels(model, torch.float32, 64, cache) == choice
    assert len(measured) == 1
    choose_kernels(model, torch.float32, 128, cache)  # other shapes
    choose_kernels(model, torch.bfloat16, 64, cache)
    assert len(measured) == 3
    assert choose_kernels(model, torch.float32, 64, cache) == choice
    assert len(measured) == 3
    for number, damage in enumerate(["{", "[" * 10**5], 4):  # measured again
        cache.write_text(damage)
        assert choose_kernels(model, torch.float32, 64, cache) == choice
        assert len(measured) == number


def test_an_unwritable_cache_does_not_stop_the_run(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    kernels = choose_kernels(random_model(), torch.float32, 64, tmp_path / "file" / "kernels.json")
    assert kernels.products.keys() == SHAPES


@pytest.mark.parametrize("name", ["torch", "onednn"])
def test_kernels_by_name_survive_json(name: str) -> None:
    kernels = named_kernels(name, random_model(), torch.float32)
    assert Kernels.from_json(asdict(kernels)) == kernels
    assert {product.forward for product in kernels.products.values()} == {name}


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        {},
        {"products": {}},
        {"products": {"1x2": {"forward": "x", "other": "y"}}, "attention": "fused"},
        {"products": {"1x2": {"forward": "of another version"}}, "attention": "fused"},
        {"products": {"1x2": {"forward": ["torch"]}}, "attention": "fused"},
        {"products": {}, "attention": "of another version"},
        {"products": {}, "attention": "fused", "precision": "of another version"},
        {"products": {}, "attention": "fused", "threads": "2"},
    ],
)
def test_an_unknown_record_is_ignored(value: object) -> None:
    assert Kernels.from_json(value) is None
