"""Names of processors, as far as the machine tells them."""

from pathlib import Path

import pytest
import torch

from transformer_mt import device_info

CPU = torch.device("cpu")
INFO = """processor\t: 0
cpu family\t: 25
model\t\t: 1
model name\t: AMD EPYC
stepping\t: 2

processor\t: 1
model name\t: another
"""


def test_cpus_of_one_name_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "cpuinfo"
    monkeypatch.setattr(device_info, "_CPU_INFO", info)
    models = []
    for text in (INFO, INFO.replace("model\t\t: 1\n", "model\t\t: 17\n")):
        info.write_text(text)
        assert device_info.name(CPU) == "AMD EPYC"
        models.append(device_info.exact_model(CPU))
    assert models[0].startswith("AMD EPYC, cpu family 25, model 1, stepping 2, ")
    assert models[0] != models[1]


def test_a_cpu_has_a_name_without_linux(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_info, "_CPU_INFO", tmp_path / "missing")
    assert device_info.name(CPU)
