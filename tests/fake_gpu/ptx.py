"""Compiles the kernels of ``short_attention.py`` for an H100 with ptxas, in bf16.

Prints the number of instructions of its matrix units in each, or the error, as JSON.
"""

import json
from itertools import product

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from transformer_mt.kernels import short_attention

TARGET = GPUTarget("cuda", 90, 32)


def kind(name: str) -> str:
    """The type of an argument of a kernel."""
    if "stride" in name or name == "num_rows":
        return "i32"
    if "scale" in name:
        return "fp32"
    return {"L": "*fp32", "seed": "*i64"}.get(name, "*i32" if "ends" in name else "*bf16")


def main() -> None:
    found: dict[str, int | str] = {}
    kernels = (short_attention._forward, short_attention._backward)
    for kernel, (causal, dropout) in product(kernels, ((False, 0.0), (True, 0.0), (True, 0.1))):
        constants = {"DROPOUT": dropout, "CAUSAL": causal, "D": 64, "TILE": 64}
        names = enumerate(kernel.arg_names)
        signature = {n: "constexpr" if n in constants else kind(n) for n in kernel.arg_names}
        aligned = {
            (i,): [["tt.divisibility", 16]]
            for i, name in names
            if signature[name].startswith("*") or "stride" in name
        }
        source = ASTSource(kernel, signature, constants, aligned)
        label = f"{kernel.__name__} causal={causal} dropout={dropout}"
        try:
            options = {"num_warps": 4, "num_stages": 1}
            compiled = triton.compile(source, target=TARGET, options=options)
            found[label] = compiled.asm["ptx"].count("wgmma.mma_async")
            assert compiled.asm["cubin"]
        except Exception as error:
            found[label] = f"{type(error).__name__}: {error}"[:300]
    print(json.dumps(found))


if __name__ == "__main__":
    main()
