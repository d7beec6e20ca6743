"""An H100 without a GPU: PyTorch traces, partitions and generates code for it, and runs nothing.

``guard.cpp``, compiled, is the device; it is loaded before PyTorch, which asks for it only once.
Only for tensors without memory (``FakeTensorMode``), and in a process of its own.
"""

import contextlib
import ctypes
import types
from typing import Any

CAPABILITY = 90
"""sm_90."""


def install(guard: str) -> None:
    """Makes ``cuda`` the H100. Call it before PyTorch is imported."""
    library = ctypes.CDLL(guard, mode=ctypes.RTLD_GLOBAL)
    import torch
    from torch._subclasses import fake_tensor

    library.use_guard()
    fake_tensor.FakeTensorMode.avoid_device_init = property(lambda _: True)
    fake_tensor.init_gpu_context = _always(None)
    properties = types.SimpleNamespace(
        name="NVIDIA H100 80GB HBM3", major=9, minor=0, total_memory=85 * 10**9,
        multi_processor_count=132, regs_per_multiprocessor=65536,
        max_threads_per_multi_processor=2048, max_threads_per_block=1024, warp_size=32,
        shared_memory_per_block=49152, shared_memory_per_block_optin=232448,
        shared_memory_per_multiprocessor=233472, L2_cache_size=50 * 2**20, gcnArchName="",
    )  # fmt: skip
    state = torch.zeros(16, dtype=torch.uint8)

    class Context(contextlib.nullcontext[None]):
        def __init__(self, *_: Any):
            super().__init__()

    for name, value in {
        "is_available": True, "is_initialized": True, "device_count": 1, "current_device": 0,
        "get_device_properties": properties, "get_device_capability": (9, 0),
        "get_device_name": properties.name, "is_bf16_supported": True, "synchronize": None,
        "_lazy_init": None, "init": None, "get_arch_list": ["sm_90"], "set_device": None,
        "mem_get_info": (80 * 10**9, 85 * 10**9), "memory_allocated": 0, "memory_reserved": 0,
        "get_rng_state": state, "set_rng_state": None, "is_current_stream_capturing": False,
    }.items():  # fmt: skip
        setattr(torch.cuda, name, _always(value))
    torch.cuda.random.get_rng_state = _always(state)
    torch.cuda.random.set_rng_state = _always(None)
    torch.cuda.device = Context  # type: ignore[misc,assignment]
    torch.cuda._utils._get_device_index = _always(0)
    torch.version.cuda = "13.0"
    torch.cuda.amp.common.amp_definitely_not_available = _always(False)
    for name, value in {
        "_cuda_getDevice": 0, "_cuda_exchangeDevice": 0, "_cuda_maybeExchangeDevice": 0,
        "_cuda_setDevice": None, "_cuda_getDeviceCount": 1, "_cuda_getCompiledVersion": 13000,
        "_cuda_getCurrentRawStream": 0,
    }.items():  # fmt: skip
        setattr(torch._C, name, _always(value))
    _fold_constants_on_the_cpu()
    _use_triton()


def _always(value: Any) -> Any:
    return lambda *_, **__: value


def _fold_constants_on_the_cpu() -> None:
    """Inductor computes constants of one element on their device."""
    import torch
    from torch._inductor.fx_passes.joint_graph import UniformValueConstantFolder as Folder

    deduce = Folder._deduce_value

    def on_cpu(self: Any, node: Any) -> Any:
        given = node.kwargs
        if node.op != "call_function" or given.get("device") is None:
            return deduce(self, node)
        node.kwargs = {**given, "device": torch.device("cpu")}
        try:
            return deduce(self, node)
        finally:
            node.kwargs = given

    Folder._deduce_value = on_cpu


def _use_triton() -> None:
    """Triton compiles for the H100, without a driver."""
    import torch
    from torch.utils import _triton
    from triton.backends.compiler import GPUTarget
    from triton.backends.nvidia.compiler import CUDABackend
    from triton.runtime import driver

    target = GPUTarget("cuda", CAPABILITY, 32)
    backend = CUDABackend(target)
    _triton.triton_backend = lambda: backend
    driver._active = driver._default = types.SimpleNamespace(
        get_current_target=lambda: target,
        get_current_device=lambda: 0,
        get_active_torch_device=lambda: torch.device("cuda", 0),
        get_device_interface=lambda: torch.cuda,
    )
