"""Compiles Triton kernels for an H100 with ptxas; prints their names, and errors, as JSON.

python ptx.py FOLDER     the kernels that compiled_step.py wrote there, and those of attention
"""

import importlib.util
import json
import re
import sys
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

TARGET = GPUTarget("cuda", 90, 32)
HEADER = """import triton
import triton.language as tl
from torch._inductor.runtime import triton_helpers
from torch._inductor.runtime.triton_helpers import libdevice, math as tl_math
"""
SIZES = {"XBLOCK": 1, "YBLOCK": 16, "R0_BLOCK": 1024, "RSPLIT_SIZE": 64}
"""Of blocks; Inductor chooses them when a kernel first runs."""


def generated(folder: Path) -> dict[str, tuple[Any, dict[str, str], dict[str, Any]]]:
    """Name → function, signature and constants of the kernels that Inductor generated."""
    kernels = {}
    for path in folder.glob("graph_*.py"):
        pattern = r"async_compile\.triton\('(\w+)', '''\n(.*?)''', device_str"
        for name, source in re.findall(pattern, path.read_text(), re.DOTALL):
            file = folder / f"kernel_{len(kernels)}.py"
            file.write_text(HEADER + source[source.index("@triton.jit") :])
            spec = importlib.util.spec_from_file_location(file.stem, file)
            assert spec is not None
            assert spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            match = re.search(r"triton_meta=\{'signature': (\{.*?\})", source)
            assert match
            signature = eval(match[1])
            constants = {k: SIZES.get(k, 1) for k, kind in signature.items() if kind == "constexpr"}
            if "triton_heuristics.pointwise" in source:
                constants["XBLOCK"] = 1024 if "YBLOCK" not in constants else 64
            kernels[name] = getattr(module, name), signature, constants
    return kernels


def attention() -> dict[str, tuple[Any, dict[str, str], dict[str, Any]]]:
    """The kernels of attention for short sequences, in bf16."""
    from transformer_mt.kernels import short_attention as module

    kernels = {}
    for function in (module._forward, module._backward):
        for causal, dropout in ((False, 0.0), (True, 0.0), (True, 0.1)):
            constants = {"DROPOUT": dropout, "CAUSAL": causal, "D": 64, "TILE": 64}
            signature = {}
            for name in function.arg_names:
                kind = "i32" if "stride" in name or name == "num_rows" else "*bf16"
                kind = "fp32" if "scale" in name else "*fp32" if name == "L" else kind
                kind = "*i32" if "ends" in name else "*i64" if name == "seed" else kind
                signature[name] = "constexpr" if name in constants else kind
            label = f"{function.__name__} causal={causal} dropout={dropout}"
            kernels[label] = function, signature, constants
    return kernels


def main(folder: Path) -> None:
    found, errors = {}, {}
    for name, (function, signature, constants) in {**generated(folder), **attention()}.items():
        pointers = [i for i, n in enumerate(function.arg_names) if signature[n].startswith("*")]
        strides = [i for i, n in enumerate(function.arg_names) if "stride" in n]
        aligned = {(i,): [["tt.divisibility", 16]] for i in (*pointers, *strides)}
        source = ASTSource(function, signature, constants, aligned)
        try:
            options = {"num_warps": 4, "num_stages": 1}
            compiled = triton.compile(source, target=TARGET, options=options)
            found[name] = {
                "shared": compiled.metadata.shared,
                "wgmma": compiled.asm["ptx"].count("wgmma.mma_async"),
                "cubin": len(compiled.asm["cubin"]),
            }
            if name.startswith("_"):
                (folder / f"{name}.cubin").write_bytes(compiled.asm["cubin"])
        except Exception as error:
            errors[name] = f"{type(error).__name__}: {error}"[:300]
    print(json.dumps({"kernels": found, "errors": errors}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
