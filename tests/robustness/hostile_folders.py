"""Model folders made to harm: each must be refused in one line, soon, and in little memory.

``python tests/robustness/hostile_folders.py`` has mt-translate and mt-eval open all of ``FOLDERS``.
"""

import json
import math
import os
import pickle
import re
import shutil
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

MODEL = Path(__file__).resolve().parents[1] / "e2e/fixtures/run_2_3"
"""The intact model: d_model 16, one layer each, vocabulary 290."""
TERABYTE = 10**12

CONFIG, TOKENIZER, WEIGHTS = "config.yaml", "tokenizer.model", "model.safetensors"
Harm = Callable[[Path], object]


def fifo(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def link(path: Path, target: str) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.symlink_to(target)


def link_to_itself(path: Path) -> None:
    link(path, path.name)


def sparse(path: Path, size: int = TERABYTE) -> None:
    with path.open("ab") as file:
        file.truncate(size)


def setting(folder: Path, key: str, value: str) -> None:
    path = folder / CONFIG
    text, number = re.subn(rf"(?m)^( *{key}: ).*", lambda old: old[1] + value, path.read_text())
    assert number == 1, key
    path.write_text(text)


def config(folder: Path, text: str) -> None:
    with (folder / CONFIG).open("a") as file:
        file.write(f"{text}\n")


def replace(path: Path, old: bytes, new: bytes) -> None:
    content = path.read_bytes()
    assert content.count(old) == 1, content.count(old)
    path.write_bytes(content.replace(old, new))


def header(folder: Path, entries: Any, size: int | None = None, data: int = 64) -> None:
    """Weights with this header, which claims to have ``size`` bytes."""
    text = entries if isinstance(entries, bytes) else json.dumps(entries).encode()
    length = struct.pack("<Q", len(text) if size is None else size)
    (folder / WEIGHTS).write_bytes(length + text + bytes(data))


def entry(dtype: str, shape: Sequence[int], start: int, end: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [start, end]}


def tensors(folder: Path, dtype: str, sizes: Mapping[int, int]) -> tuple[dict[str, Any], int]:
    """Header of the weights with another data type or other sizes, and the length of their data."""
    content = (folder / WEIGHTS).read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    entries: dict[str, Any] = {}
    end = 0
    for name, old in json.loads(content[8 : 8 + length]).items():
        if name == "__metadata__":
            continue
        shape = [sizes.get(size, size) for size in old["shape"]]
        start, end = end, end + 4 * math.prod(shape)
        entries[name] = entry(dtype, shape, start, end)
    return entries, end


def header_of_nothing(folder: Path) -> None:
    """A sparse file of zeros, in which the header has no bytes."""
    header(folder, b"")
    sparse(folder / WEIGHTS)


def many_positions(folder: Path) -> None:
    setting(folder, "max_positions", "10000000")
    setting(folder, "positions", "learned")


def huge_but_consistent(folder: Path) -> None:
    """A sparse file that really has the weights of a model of two terabytes."""
    setting(folder, "d_model", "100000")
    setting(folder, "d_ff", "100000")
    entries, end = tensors(folder, "F32", {16: 100_000, 32: 100_000, 48: 300_000})
    header(folder, entries, data=0)
    sparse(folder / WEIGHTS, (folder / WEIGHTS).stat().st_size + end)


def other_dtype(folder: Path, dtype: str) -> None:
    """The right shapes, all zero, of another data type of four bytes."""
    entries, end = tensors(folder, dtype, {})
    header(folder, entries, data=end)


class Payload:
    """Creates a file in the working directory when it is unpickled."""

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, ("touch HARMED",)


NO_FILES: dict[str, Harm] = {
    "FIFO": fifo,
    "folder": folder,
    "link to itself": link_to_itself,
    **{
        f"link to {target}": partial(link, target=target)
        for target in ("/dev/zero", "/dev/ptmx", "/nowhere")
    },
}
SETTINGS = {
    "d_model 100,000": ("d_model", "100000"),
    "d_model of 50,000 hexadecimal digits": ("d_model", f"0x{'f' * 50_000}"),
    "a billion layers": ("num_encoder_layers", "1000000000"),
    "a trillion positions": ("max_positions", "1000000000000"),
    "a billion beams": ("beam_size", "1000000000"),
    "endless translations": ("max_extra_tokens", str(10**18)),
    "an interpolation in a setting": ("stage", r'"\u0024\x7boc.env:HOME}"'),
    "an interpolation in base 64": ("stage", "!!binary JHtvYy5lbnY6SE9NRX0="),
    "an interpolation after a million backslashes": (
        "stage",
        "'" + 1_000_000 * "\\" + "${oc.env:HOME}'",
    ),
}
"""A setting and its value."""
YAML = {
    "configuration of 20 MB": "# comment\n" * 2_000_000,
    "aliases that expand to 9^30 items": "\n".join(
        ["x0: &x0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]"]
        + [f"x{i}: &x{i} [{', '.join([f'*x{i - 1}'] * 9)}]" for i in range(1, 30)]
    ),
    "100,000 nested lists": "x: " + "[" * 100_000,
    "50,000 nested block lists": "x:\n  " + "- " * 50_000 + "x",
    "10,000 nested mappings": "x: " + "{a: " * 10_000 + "1" + "}" * 10_000,
    "a Python object": "x: !!python/object/apply:os.system [touch HARMED]",
    "an interpolation": "x: ${oc.env:HOME}",
    "an interpolation in YAML's escapes": r'x: "\x24{oc.env:HOME}"',
    "interpolations that refer to one another 2^40 times": "\n".join(
        [rf'x{i}: "\x24{{x{i + 1}}}\x24{{x{i + 1}}}"' for i in range(40)] + ["x40: lol"]
    ),
    "a number of base 60": f"x: 1{':00' * 30_000}",
    "control characters as a key": r'"\e[2J\e]0;harm\a\nline": 1',
    "a key of 200,000 characters": f"? {'x' * 200_000}\n: 1",
    "_target_ as a key": "_target_: os.system",
}
"""Text at the end of the configuration."""
HEADERS: dict[str, dict[str, Any]] = {
    "header of 2^63 bytes": {"entries": {}, "size": 2**63},
    "header of 100,000 tensors": {
        "entries": {f"x{i}": entry("U8", [0], 0, 0) for i in range(100_000)},
        "data": 0,
    },
    "header of 100,000 nested lists": {"entries": b'{"x":' + b"[" * 100_000},
    "tensors that overlap": {
        "entries": {"a": entry("F32", [8], 0, 32), "b": entry("F32", [8], 16, 48)}
    },
    "tensors beyond the end": {"entries": {"a": entry("F32", [10**9], 0, 4 * 10**9)}},
    "sizes that overflow": {"entries": {"a": entry("F32", [2**40, 2**40], 0, 64)}},
    "names with control characters": {
        "entries": {"\x1b[2J\n" * 1000: entry("F32", [16], 0, 64)},
    },
}
"""Headers of safetensors."""
FOLDERS: dict[str, Harm] = {
    **{
        f"{file} is a {name}": lambda f, file=file, harm=harm: harm(f / file)  # type: ignore[misc]
        for file in (CONFIG, WEIGHTS)
        for name, harm in NO_FILES.items()
    },
    **{name: partial(setting, key=key, value=value) for name, (key, value) in SETTINGS.items()},
    **{name: partial(config, text=text) for name, text in YAML.items()},
    **{name: partial(header, **options) for name, options in HEADERS.items()},
    "ten million learned positions": many_positions,
    "configuration of a terabyte": lambda f: sparse(f / CONFIG),
    "weights of a terabyte, header of none": header_of_nothing,
    "weights that are a model of a terabyte": huge_but_consistent,
    "data type that does not exist": lambda f: other_dtype(f, "F13"),
    "pickle as weights": lambda f: (f / WEIGHTS).write_bytes(pickle.dumps(Payload())),
    "pickle as vocabulary": lambda f: (f / TOKENIZER).write_bytes(pickle.dumps(Payload())),
    "pieces that are not UTF-8": lambda f: replace(f / TOKENIZER, b"\x0a\x01a", b"\x0a\x01\xff"),
    "byte pieces that are not UTF-8": lambda f: replace(f / TOKENIZER, b"<0x25>", b"<\xb8x25>"),
}
"""Folders that no command may use: changes to a copy of ``MODEL``, by description."""


def every(harm: Harm, *names: str) -> Harm:
    """Harm to several files of a run folder."""

    def harms(folder: Path) -> None:
        for name in names:
            (folder / name).parent.mkdir(exist_ok=True)
            harm(folder / name)

    return harms


SIDE_FILES = ("test.json", "run.json", "data/cleaning.json")
"""Files of a run folder that a model card is made of."""
LEFT_OUT: dict[str, Harm] = {
    "FIFOs": every(fifo, *SIDE_FILES),
    "links to /dev/zero": every(partial(link, target="/dev/zero"), *SIDE_FILES),
    "links to a terminal": every(partial(link, target="/dev/ptmx"), *SIDE_FILES),
    "links to themselves": every(link_to_itself, *SIDE_FILES, "metrics.jsonl", "README.md"),
    "test.json of a terabyte": every(sparse, "test.json"),
    "test.json of 100,000 nested lists": lambda f: (f / "test.json").write_text("[" * 100_000),
    "test.json with control characters": lambda f: (f / "test.json").write_text(
        json.dumps([{"name": "BLEU", "score": 1, "signature": "\x1b[2J", "segments": 1}])
    ),
    "run.json of wrong types": lambda f: (f / "run.json").write_text(
        '{"starts": [{}, 1], "end": {"averaged_updates": ["\\u001b[2J"]}}'
    ),
}
"""Folders with a model that is good, of which ``mt-export format=hub`` must leave out the rest."""


def make(name: str, to: Path) -> Path:
    """A copy of the model, harmed."""
    shutil.copytree(MODEL, to)
    (FOLDERS | LEFT_OUT)[name](to)
    return to


if __name__ == "__main__":
    tests = str(Path(__file__).with_name("test_hostile_folders.py"))
    sys.exit(pytest.main(["-m", "slow", tests, *sys.argv[1:]]))
