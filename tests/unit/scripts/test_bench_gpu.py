"""``scripts/bench/gpu.py`` at a tiny size on a CPU, and the errors that its checks detect."""

import importlib
import json
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from transformer_mt.batch import CuSeqlens
from transformer_mt.data.batching.plan import BatchPlan
from transformer_mt.kernels import packed_attention
from transformer_mt.kernels.packed_attention import varlen_attention

bench_gpu = importlib.import_module("gpu")

TINY = bench_gpu.TINY
PARTS = ["parity", "update", "decode"]


def test_a_rehearsal(capsys: pytest.CaptureFixture[str]) -> None:
    bench_gpu.main(["--device", "cpu", "--tiny"])
    lines = capsys.readouterr().out.splitlines()
    results = [json.loads(line) for line in lines if line.startswith("{")]
    parts = {part: [r for r in results if r["part"] == part] for part in PARTS}
    assert all(check["ok"] for check in parts["parity"])
    assert len(parts["parity"]) == 4

    plan = BatchPlan(bench_gpu.make_pairs(TINY), TINY.batch_tokens, seed=1)
    first = 1 + TINY.warmup
    targets = [plan[first + i].num_targets for i in range(TINY.repeats * TINY.updates)]
    repeats = np.reshape(targets, (TINY.repeats, -1)).sum(1)
    whole, share, memory = parts["update"]
    assert (whole["GPUs"], share["GPUs"]) == (1, bench_gpu.RANKS)
    for result in (whole, share):
        assert result["min ms"] <= result["ms"] <= result["max ms"]
        assert result["graphs compiled after the warm-up"] == 0
    # Only real tokens count.
    slowest, fastest = (whole[key] / 1e3 * TINY.updates for key in ("max ms", "min ms"))
    assert min(repeats) / slowest * 0.99 <= whole["target tokens/s"]
    assert whole["target tokens/s"] <= max(repeats) / fastest * 1.01
    assert memory["bytes for a token of either side"] == 0  # measured on GPUs only

    (decoded,) = parts["decode"]
    lengths = bench_gpu.make_pairs(TINY).tgt.lengths[: TINY.sentences]
    assert decoded["output tokens"] == sum(lengths - 1)


def test_a_part_that_fails_does_not_stop_the_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def parity(_: Any) -> Any:
        yield {"check": "a", "ok": False}
        raise RuntimeError("out of order")

    monkeypatch.setitem(bench_gpu.PARTS, "parity", parity)
    with pytest.raises(SystemExit, match=r"failed: parity a; parity$"):
        bench_gpu.main(["--device", "cpu", "--tiny", "--only", "parity,decode"])
    out = capsys.readouterr().out
    assert out.index("out of order") < out.index('"part": "decode"')


# Faulty attention is detected.


def across(q: Tensor, k: Tensor, v: Tensor, queries: Any, keys: Any, causal: bool) -> Tensor:
    """Attends to the neighbouring sequence too."""
    queries, keys = (
        CuSeqlens(side.cu_seqlens[::2].contiguous(), 10**6) for side in (queries, keys)
    )
    return varlen_attention(q, k, v, queries, keys, causal)


def test_parity_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed_attention, "varlen_attention", lambda *args: across(*args[:6]))
    bench = bench_gpu.Bench(TINY, torch.device("cpu"), bench_gpu.make_pairs(TINY))
    failed = [check["check"] for check in bench_gpu.parity(bench) if not check["ok"]]
    assert "eager: gradient" in failed
