"""``scripts/bench/gpu.py`` at a tiny size on a CPU, and the errors that its checks detect."""

import importlib
import json
import os
import re
import stat
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.paths import ROOT, SCRIPTS
from torch import Tensor, nn

from transformer_mt.batch import CuSeqlens
from transformer_mt.data.batching.plan import BatchPlan
from transformer_mt.distributed.world import World
from transformer_mt.errors import InputError
from transformer_mt.kernels import packed_attention
from transformer_mt.kernels.packed_attention import varlen_attention
from transformer_mt.model.transformer import Transformer
from transformer_mt.training.flops import update_flops
from transformer_mt.training.step import LossModule

bench_gpu = importlib.import_module("gpu")
profile = importlib.import_module("gpu_profile")
variants = importlib.import_module("gpu_variants")

CPU = torch.device("cpu")
TINY = variants.TINY
REHEARSAL = ["--device", "cpu", "--tiny", "--no-compile"]
NEED_A_GPU = {
    "graphs-3k": "failed: RuntimeError: CUDA graphs need a GPU",
    "flex": "failed: NotImplementedError: FlexAttention does not support backward on CPU",
}


@pytest.fixture(scope="module")
def report_and_figures(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any]]:
    """The report that it prints, and its measurements."""
    folder = tmp_path_factory.mktemp("gpu")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bench_gpu, "matrix_rate", lambda *_: 1e11)
        options = bench_gpu.parse([*REHEARSAL, "--json", str(folder / "figures.json")])
        bench = bench_gpu.Bench(options, CPU)
        bench.run()
    assert bench.failures() == []
    return bench.report(), json.loads((folder / "figures.json").read_text())


def test_every_variant_has_a_row(report_and_figures: tuple[str, dict[str, Any]]) -> None:
    report, figures = report_and_figures
    rows = {row["name"]: row for row in figures["training"]}
    expected = {"ours", *(variant.name for variant in variants.VARIANTS)}
    assert rows.keys() == expected
    assert {*bench_gpu.PARTS} == expected | {"parity", "decode"}
    for name, row in rows.items():
        (line,) = re.findall(rf"^\| {name} +\|.*$", report, re.MULTILINE)
        assert len(row["seconds"]) == (0 if name in NEED_A_GPU else TINY.repeats)
        if name in NEED_A_GPU:
            assert row["note"].startswith(NEED_A_GPU[name])
            assert NEED_A_GPU[name] in line
    for row in rows.values():
        assert row["new_graphs"] == 0
        assert 0 <= row["waste"] < 0.6
    assert re.search(r"^\| attention +\| +\d", report, re.MULTILINE)


def test_the_checks_hold(report_and_figures: tuple[str, dict[str, Any]]) -> None:
    report, figures = report_and_figures
    assert len(figures["checks"]) == 8
    assert all(check["ok"] for check in figures["checks"])
    assert len(re.findall(r"\| ok \|$", report, re.MULTILINE)) == 8


def test_only_real_tokens_and_operations_count(
    report_and_figures: tuple[str, dict[str, Any]],
) -> None:
    store = variants.make_pairs(TINY)
    plan = BatchPlan(store, TINY.batch_tokens, seed=1)
    steps = TINY.warmup + np.arange(TINY.repeats * TINY.updates).reshape(TINY.repeats, -1)
    targets = [sum(plan[int(step)].num_targets for step in repeat) for repeat in steps]

    def flops_of(step: np.int64) -> float:
        pairs = np.concatenate(plan[int(step)].chunks)
        lengths = (side.lengths[pairs] for side in (store.src, store.tgt))
        return update_flops(TINY.model, TINY.vocab_size, *lengths)

    flops = [sum(flops_of(step) for step in repeat) for repeat in steps]
    rows = {row["name"]: row for row in report_and_figures[1]["training"]}
    for name in ("ours", "layers", "buckets", "residual"):
        assert rows[name]["targets"] == targets
        assert rows[name]["flops"] == pytest.approx(flops)
    # The shares of all ranks add up to the whole.
    readers = [variants.buffered_updates(store, TINY, CPU, ranks)[0] for ranks in (1, TINY.ranks)]
    whole, share = (reader(3) for reader in readers)
    assert whole.num_targets == plan[3].num_targets
    assert share.num_targets == pytest.approx(whole.num_targets / TINY.ranks, rel=0.2)


def test_translations_are_as_long_as_the_references(
    report_and_figures: tuple[str, dict[str, Any]],
) -> None:
    lengths = variants.make_pairs(TINY).tgt.lengths[: TINY.sentences]
    for found in report_and_figures[1]["decoding"]:
        assert found["tokens"] == sum(lengths - 1)


def test_parts_without_time_left_are_skipped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench_gpu, "matrix_rate", lambda *_: 1e11)
    with pytest.raises(SystemExit, match="parity skipped: 0 s left"):
        bench_gpu.main([*REHEARSAL, "--seconds", "0"])
    assert capsys.readouterr().out.count("skipped: 0 s left") == len(bench_gpu.PARTS)


def test_the_alarm_stops_a_slow_part() -> None:
    def part() -> None:
        with bench_gpu.alarm(0.01):
            time.sleep(10)

    with pytest.raises(TimeoutError):
        part()


def test_an_unknown_part_is_rejected() -> None:
    with pytest.raises(InputError, match=r"no part 'oars'; there are: parity, ours, "):
        bench_gpu.parse(["--only", "ours,oars"])


# Faulty attention is detected.


def across(q: Tensor, k: Tensor, v: Tensor, queries: Any, keys: Any, causal: bool) -> Tensor:
    """Attends to the neighbouring sequence too."""
    queries, keys = (
        CuSeqlens(side.cu_seqlens[::2].contiguous(), 10**6) for side in (queries, keys)
    )
    return varlen_attention(q, k, v, queries, keys, causal)


def acausal(q: Tensor, k: Tensor, v: Tensor, queries: Any, keys: Any, causal: bool) -> Tensor:
    return varlen_attention(q, k, v, queries, keys, False)


def unwritten(q: Tensor, k: Tensor, v: Tensor, queries: Any, keys: Any, causal: bool) -> Tensor:
    """Does not write the last rows, which belong to dummies."""
    output = varlen_attention(q, k, v, queries, keys, causal)
    return torch.cat((output[:-8], torch.full_like(output[-8:], torch.nan)))


@pytest.mark.parametrize(
    ("broken", "failure"),
    [
        (across, "changing a pair changes no other output"),
        (across, "eager: gradient"),
        (acausal, "eager: gradient"),
        (acausal, "outputs of buffers against buckets, bf16"),
        (unwritten, "eager: gradients are finite with NaN in free memory"),
    ],
)
def test_parity_fails(broken: Any, failure: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed_attention, "varlen_attention", lambda *args: broken(*args[:6]))
    checks = bench_gpu.parity(variants.make_pairs(TINY), TINY, CPU, compiled=False)
    assert failure in [check.name for check in checks if not check.ok]


# Alternatives.


@pytest.mark.parametrize(
    ("n", "m", "causal", "sequences"),
    [(192, 128, False, 7), (256, 256, True, 9), (128, 320, False, 40), (64, 64, True, 1)],
)
def test_block_mask_lists_exactly_the_needed_blocks(
    n: int, m: int, causal: bool, sequences: int
) -> None:
    rng = np.random.default_rng(n)

    def bounds(size: int) -> Tensor:
        cuts = np.sort(rng.choice(np.arange(1, size), sequences - 1, replace=False))
        return torch.tensor([0, *cuts, *[size] * 3], dtype=torch.int32)

    queries = bounds(n)
    keys = queries if causal else bounds(m)
    query_of, key_of = (
        torch.repeat_interleave(torch.arange(len(side) - 1), side.diff())
        for side in (queries, keys)
    )
    allowed = query_of[:, None] == key_of
    if causal:
        allowed = allowed.tril()
    needed = allowed.view(n // 64, 64, m // 64, 64).any(3).any(1)

    mask = variants.block_mask(queries, keys, n, m, causal)
    for counts, indices, expected in (
        (mask.kv_num_blocks, mask.kv_indices, needed),
        (mask.q_num_blocks, mask.q_indices, needed.T),
    ):
        assert indices.shape == (1, 1, *expected.shape)
        for row, count, listed in zip(expected, counts[0, 0], indices[0, 0], strict=True):
            assert sorted(listed[:count].tolist()) == row.nonzero().flatten().tolist()


def test_replacements_compile_layers_or_use_cuda_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[tuple[str, str | None]] = []

    def note(self: nn.Module, fullgraph: bool, dynamic: bool, mode: str | None = None) -> None:
        assert fullgraph
        assert not dynamic
        compiled.append((type(self).__name__, mode))

    monkeypatch.setattr(nn.Module, "compile", note)
    module = LossModule(Transformer(TINY.model, TINY.vocab_size), 0.1, "bf16")
    with variants.layer_graphs(World(CPU)):
        module.compile_for(1)
    assert compiled == [("EncoderLayer", None)] * 2 + [("DecoderLayer", None)] * 2
    with variants.cuda_graphs(World(torch.device("cuda"))):
        module.compile_for(1)
    assert compiled[4:] == [("LossModule", "reduce-overhead")]
    module.compile_for(1)
    assert compiled[5:] == [("LossModule", None)]


# The profile.


def test_profile_of_a_trace() -> None:
    def kernel(name: str, ts: float, dur: float, operation: int = 0) -> dict[str, Any]:
        args = {"External id": operation}
        return {"cat": "kernel", "name": name, "ts": ts, "dur": dur, "args": args}

    def operation(number: int, name: str, dims: list[list[int]]) -> dict[str, Any]:
        args = {"External id": number, "Input Dims": dims}
        return {"cat": "cpu_op", "name": name, "ts": 0, "dur": 1000, "tid": 1, "args": args}

    events = [
        operation(1, "aten::mm", [[8, 16], [16, 32], [8, 32]]),
        operation(2, "aten::addmm", [[32], [8, 16], [16, 32]]),
        operation(3, "aten::mul", [[8, 32], [8, 32]]),
        {"ph": "M", "name": "process_name", "args": {}},
        kernel("nvjet_tst_128x256_64x4_1x2_h_bz_coopB_NNT", 0, 30, 1),
        kernel("sm90_xmma_gemm_bf16bf16_bf16f32", 30, 10, 2),
        kernel("void pytorch_flash::flash_bwd_kernel<cutlass::bfloat16_t>", 100, 20),
        kernel("triton_red_fused__log_softmax__to_copy_3", 110, 30),  # overlaps the previous one
        kernel("triton_per_fused__to_copy_add_native_layer_norm_1", 150, 6, 3),
        kernel("void at::native::multi_tensor_apply_kernel<FusedAdamMathFunctor>", 160, 4),
        {"cat": "gpu_memcpy", "name": "Memcpy HtoD", "ts": 170, "dur": 2, "args": {}},
        kernel("triton_poi_fused__to_copy_12", 180, 3),
        kernel("void cublasLt::splitKreduce_kernel", 190, 1, 1),
    ]
    per_update = 1e-6 / profile.PROFILED
    found = profile.time_by_kind(events)
    expected = {
        "matrix products": 41,
        "attention": 20,
        "loss": 30,
        "pointwise and norms": 6,
        "optimizer": 4,
        "copies and casts": 5,
    }
    assert found == pytest.approx({kind: us * per_update for kind, us in expected.items()})
    assert profile.busy_seconds(events) == pytest.approx((40 + 40 + 6 + 4 + 2 + 3 + 1) * per_update)
    (product,) = profile.products(events)
    assert product.shape == "8 × 16 × 32"
    assert product.seconds == pytest.approx(41 * per_update)
    assert product.calls == 2 / profile.PROFILED
    assert product.flops == 2 * (2 * 8 * 16 * 32) / profile.PROFILED


def test_gpu_sh_leaves_time_for_the_report(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho "$PYTHONPATH: $*"\n')
    python.chmod(python.stat().st_mode | stat.S_IXUSR)
    environment = {**os.environ, "PYTHON": str(python), "PYTHONPATH": "/x"}
    command = [str(SCRIPTS / "bench/gpu.sh"), "--only", "ours"]
    done = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    tests, benchmark = done.stdout.splitlines()
    assert "-m pytest -q -m gpu" in tests
    assert "tests/gpu/test_cuda.py" in tests
    found = re.fullmatch(r"(.*): scripts/bench/gpu.py --seconds (\d+) --only ours", benchmark)
    assert found
    assert found[1] == f"{ROOT}:/x"
    assert 500 <= int(found[2]) <= 520
