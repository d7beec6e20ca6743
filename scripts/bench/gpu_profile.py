"""Where the time of a training step goes on a GPU: kernels by kind, matrix products by shape."""

import gzip
import json
import re
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from gpu_variants import Session
from train import synchronize

Event = dict[str, Any]
PROFILED = 2
"""Number of updates profiled."""

KINDS = {
    "attention": r"flash|fmha|triton_tem.*flex|scaled_dot_product",
    "matrix products": r"gemm|nvjet|cutlass|xmma|splitk|aten::(linear|addmm|mm|bmm|matmul)",
    "optimizer": r"multi_tensor|adam",
    "loss": r"softmax|scatter|CrossEntropy",
    "embedding": r"embedding|index_put|index_select|indexing_backward",
    "copies and casts": r"memcpy|memset|direct_copy|CatArray|aten::copy_|fused__to_copy(_t)?_\d+$",
}
"""Kinds of kernels by patterns on their names; the first match counts, the rest are pointwise."""


def trace(session: Session, device: torch.device, folder: Path | None) -> list[Event]:
    """Events of ``PROFILED`` updates in Chrome's trace format; the file is kept in ``folder``."""
    works = [session.read(number) for number in range(PROFILED)]
    session.update(works[0], 0)
    synchronize(device)
    with torch.profiler.profile(record_shapes=True) as profiler:
        for work in works:
            session.update(work, 0)
        synchronize(device)
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(folder or temporary, "gpu_trace.json.gz")
        profiler.export_chrome_trace(str(path))
        with gzip.open(path) as file:
            events: list[Event] = json.load(file)["traceEvents"]
    return events


def on_device(events: list[Event]) -> list[Event]:
    """Kernels and copies of the GPU; without a GPU, the outermost operations."""
    kernels = [e for e in events if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    if kernels:
        return kernels
    outermost: list[Event] = []
    ends: dict[Any, float] = {}
    for event in sorted((e for e in events if e.get("cat") == "cpu_op"), key=lambda e: e["ts"]):
        if event["ts"] >= ends.get(event["tid"], 0):
            ends[event["tid"]] = event["ts"] + event["dur"]
            outermost.append(event)
    return outermost


def time_by_kind(events: list[Event]) -> dict[str, float]:
    """Seconds per update of each kind of kernel."""
    kinds: dict[str, float] = defaultdict(float)
    for event in on_device(events):
        found = (kind for kind, pattern in KINDS.items() if re.search(pattern, event["name"], re.I))
        kinds[next(found, "pointwise and norms")] += event["dur"] / 1e6 / PROFILED
    return dict(kinds)


def busy_seconds(events: list[Event]) -> float:
    """Seconds per update in which at least one kernel runs."""
    busy, end = 0.0, 0.0
    for event in sorted(on_device(events), key=lambda e: e["ts"]):
        until = event["ts"] + event["dur"]
        busy += max(0.0, until - max(end, event["ts"]))
        end = max(end, until)
    return busy / 1e6 / PROFILED


@dataclass
class Product:
    """The matrix products of one shape, per update."""

    shape: str
    calls: float = 0.0
    seconds: float = 0.0
    flops: float = 0.0


def products(events: list[Event]) -> list[Product]:
    """Calls, time and operations of the matrix products, by shape."""
    of_operation: dict[int, Product] = {}
    found: dict[str, Product] = {}
    for event in events:
        if event.get("cat") == "cpu_op" and event["name"] in ("aten::mm", "aten::addmm"):
            dims = event["args"].get("Input Dims", [])
            a, b = dims[1:3] if event["name"] == "aten::addmm" else dims[:2]
            m, k, n = a[0], a[1], b[1]
            shape = f"{m} × {k} × {n}"
            product = found.setdefault(shape, Product(shape))
            product.calls += 1 / PROFILED
            product.flops += 2 * m * k * n / PROFILED
            of_operation[event["args"]["External id"]] = product
    for event in events:
        if event.get("cat") == "kernel":
            launched_by = of_operation.get(event["args"].get("External id"))
            if launched_by is not None:
                launched_by.seconds += event["dur"] / 1e6 / PROFILED
    return [product for product in found.values() if product.seconds]
