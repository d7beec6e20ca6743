"""``scripts/bench/gpu.py`` at a tiny size on a CPU."""

import importlib
import json

import numpy as np
import pytest

from transformer_mt.data.batching.plan import BatchPlan

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
