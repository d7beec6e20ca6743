"""Compiles the training step for an H100 that is not there, and prints what it found as JSON.

    python compiled_step.py GUARD FOLDER [LAYERS [RANKS]]

GUARD is ``guard.cpp``, compiled. The generated code is written to FOLDER. The sizes are those of
the paper's base model, LAYERS + LAYERS of them (1), with about 25,000 tokens a side. With several
RANKS layers and loss are compiled separately, and not lowered.
"""

import json
import sys
import types
from pathlib import Path
from typing import Any

import h100

h100.install(sys.argv[1])

import torch  # noqa: E402
import torch._functorch.config as functorch_config  # noqa: E402
import torch._inductor.compile_fx as inductor  # noqa: E402
import torch._inductor.config as inductor_config  # noqa: E402
from torch._dynamo.utils import counters  # noqa: E402
from torch._inductor import codecache  # noqa: E402
from torch._inductor.graph import GraphLowering  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

from transformer_mt.batch import Batch, CuSeqlens, Packed  # noqa: E402
from transformer_mt.config import ModelConfig  # noqa: E402
from transformer_mt.model.transformer import Transformer  # noqa: E402
from transformer_mt.training.step import LossModule, allow_any_number_of_sequences  # noqa: E402

SRC, TGT, V = 24960, 25024, 37000
PAIRS = (883, 900, 612, 1100, 883)
"""Pairs and dummies of five batches."""


class Recorder:
    """Has Inductor generate the code of each graph and notes its work; the graph is not run."""

    def __init__(self, folder: Path, lower: bool):
        self.graphs: list[dict[str, Any]] = []
        self.saved_bytes = 0
        self._partition = inductor.min_cut_rematerialization_partition
        inductor.min_cut_rematerialization_partition = self._partition_and_count
        self._folder, self._lower, self._compile = folder, lower, inductor.compile_fx
        self._to_module = GraphLowering.compile_to_module
        inductor.compile_fx = self._without_running
        recorder = self

        def compile_to_module(graph: GraphLowering) -> Any:
            module = recorder._to_module(graph)
            recorder.graphs.append({"backward": graph.is_backward, **work(graph)})
            return module

        GraphLowering.compile_to_module = compile_to_module  # type: ignore[method-assign]
        GraphLowering.save_output_code = staticmethod(self._write)
        stub = types.SimpleNamespace(call=lambda _: None, __file__="", __name__="", runner=None)
        codecache.PyCodeCache.load_by_key_path = classmethod(lambda *_, **__: stub)

    def _write(self, code: str) -> None:
        (self._folder / f"graph_{len(self.graphs)}.py").write_text(code)

    def _partition_and_count(self, joint: Any, inputs: Any, **options: Any) -> Any:
        """Counts what the forward graph of a step keeps for the backward graph."""
        forward, backward = self._partition(joint, inputs, **options)
        (results,) = forward.graph.output_node().args
        for node in results[options["num_fwd_outputs"] :]:
            value = node.meta.get("val") if node is not None and node.op != "placeholder" else None
            if isinstance(value, torch.Tensor):
                self.saved_bytes += value.numel() * value.itemsize
        return forward, backward

    def _without_running(self, graph: Any, inputs: Any, **options: Any) -> Any:
        if self._lower:
            self._compile(graph, inputs, **options)
        return graph  # which tensors without memory go through


def work(graph: GraphLowering) -> dict[str, float]:
    """Bytes that the kernels of a graph read and write, and FLOP of its products."""
    total = {"bytes": 0.0, "product_flop": 0.0}
    for node in graph.scheduler.nodes:
        if "Nop" in type(node).__name__:
            continue
        total["bytes"] += node.get_read_write_buffers_sizes()
        kernel = getattr(node.node, "python_kernel_name", None) or ""
        if kernel.endswith("mm"):
            rows, columns = (int(size) for size in node.node.get_size())
            inner = int(node.node.inputs[-2].get_size()[1])
            total["product_flop"] += 2 * rows * columns * inner
    return total


def batch(pairs: int) -> Batch:
    def zeros(size: int, dtype: torch.dtype = torch.int64) -> torch.Tensor:
        return torch.zeros(size, dtype=dtype, device="cuda")

    src, tgt = (
        Packed(zeros(size), zeros(size), CuSeqlens(zeros(pairs + 1, torch.int32), 256))
        for size in (SRC, TGT)
    )
    return allow_any_number_of_sequences(Batch(src, tgt, zeros(TGT)))


def main(folder: str, layers: str = "1", ranks: str = "1") -> None:
    inductor_config.force_disable_caches = True
    inductor_config.compile_threads = 1
    functorch_config.enable_autograd_cache = False
    functorch_config.force_non_lazy_backward_lowering = True
    recorder = Recorder(Path(folder), lower=ranks == "1")
    with FakeTensorMode(allow_non_fake_inputs=True):
        config = ModelConfig(num_encoder_layers=int(layers), num_decoder_layers=int(layers))
        with torch.device("cuda"):
            model = Transformer(config, V)
        model.embedding.reserve(256)
        module = LossModule(model, 0.1, "bf16").train()
        module.compile_for(int(ranks))
        for pairs in PAIRS:
            module(batch(pairs))
    stats = counters["stats"]
    result = {"stats": stats, "breaks": dict(counters["graph_break"]), "graphs": recorder.graphs}
    print(json.dumps({**result, "saved_bytes": recorder.saved_bytes}))


if __name__ == "__main__":
    main(*sys.argv[2:])
