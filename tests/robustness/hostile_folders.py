"""Model folders made to harm: each must be refused in one line, soon, and in little memory.

``python tests/robustness/hostile_folders.py`` has mt-translate and mt-eval open all of ``FOLDERS``.
"""

import json
import math
import os
import pickle
import shutil
import socket
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
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


def unix_socket(path: Path) -> None:
    path.unlink()
    before = Path.cwd()
    os.chdir(path.parent)  # the name of a socket has at most 107 bytes
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path.name)
    finally:
        os.chdir(before)


def sparse(path: Path, size: int = TERABYTE) -> None:
    with path.open("r+b") as file:
        file.truncate(size)


def setting(folder: Path, old: str, new: str) -> None:
    path = folder / CONFIG
    text = path.read_text()
    assert text.count(f"{old}\n") == 1, old
    path.write_text(text.replace(f"{old}\n", f"{new}\n"))


def config(folder: Path, text: str) -> None:
    with (folder / CONFIG).open("a") as file:
        file.write(text)


def replace(path: Path, old: bytes, new: bytes) -> None:
    content = path.read_bytes()
    assert content.count(old) == 1, content.count(old)
    path.write_bytes(content.replace(old, new))


def alias_bomb(folder: Path) -> None:
    lines = ["x0: &x0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]"]
    lines += [f"x{i}: &x{i} [{', '.join([f'*x{i - 1}'] * 9)}]" for i in range(1, 30)]
    config(folder, "\n".join(lines) + "\n")


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


def header_of_90_megabytes(folder: Path) -> None:
    """An ordinary header of a million tensors."""
    tensor = json.dumps(entry("U8", [0], 0, 0))
    text = ",".join(f'"layer_{i:07d}.norm.bias": {tensor}' for i in range(1_000_000))
    header(folder, f"{{{text}}}".encode(), data=0)


def many_pieces(folder: Path) -> None:
    """A vocabulary of which most pieces are the same, in five bytes each."""
    with (folder / TOKENIZER).open("ab") as file:
        file.write(b"\x0a\x03\x0a\x01a" * 27_000_000)


def nested_interpolations(folder: Path) -> None:
    """Settings that would refer to one another 2^40 times."""
    lines = [f'x{i}: "\\x24{{x{i + 1}}}\\x24{{x{i + 1}}}"' for i in range(40)]
    config(folder, "\n".join([*lines, "x40: lol"]) + "\n")


def header_of_nothing(folder: Path) -> None:
    """A sparse file of zeros, in which the header has no bytes."""
    header(folder, b"")
    sparse(folder / WEIGHTS)


def many_positions(folder: Path) -> None:
    setting(folder, "  max_positions: 1024", "  max_positions: 10000000")
    setting(folder, "  positions: sinusoidal", "  positions: learned")


def huge_but_consistent(folder: Path) -> None:
    """A sparse file that really has the weights of a model of two terabytes."""
    setting(folder, "  d_model: 16", "  d_model: 100000")
    setting(folder, "  d_ff: 32", "  d_ff: 100000")
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


FOLDERS: dict[str, Harm] = {
    # What is no file.
    "FIFO as weights": lambda f: fifo(f / WEIGHTS),
    "FIFO as configuration": lambda f: fifo(f / CONFIG),
    "FIFO as vocabulary": lambda f: fifo(f / TOKENIZER),
    "folder as weights": lambda f: folder(f / WEIGHTS),
    "folder as configuration": lambda f: folder(f / CONFIG),
    "folder as vocabulary": lambda f: folder(f / TOKENIZER),
    "socket as vocabulary": lambda f: unix_socket(f / TOKENIZER),
    "socket as weights": lambda f: unix_socket(f / WEIGHTS),
    "weights linked to a terminal": lambda f: link(f / WEIGHTS, "/dev/ptmx"),
    "vocabulary linked to /dev/zero": lambda f: link(f / TOKENIZER, "/dev/zero"),
    "weights linked to /dev/zero": lambda f: link(f / WEIGHTS, "/dev/zero"),
    "configuration linked to /dev/zero": lambda f: link(f / CONFIG, "/dev/zero"),
    "vocabulary linked to /dev/urandom": lambda f: link(f / TOKENIZER, "/dev/urandom"),
    "configuration linked to itself": lambda f: link(f / CONFIG, CONFIG),
    "vocabulary linked to nothing": lambda f: link(f / TOKENIZER, "/nowhere"),
    # Sizes.
    "configuration of a terabyte": lambda f: sparse(f / CONFIG),
    "vocabulary of a terabyte": lambda f: sparse(f / TOKENIZER),
    "weights of a terabyte, header of none": header_of_nothing,
    "weights that are a model of a terabyte": huge_but_consistent,
    "vocabulary of 27 million pieces": many_pieces,
    "configuration of 20 MB": lambda f: config(f, "# comment\n" * 2_000_000),
    # Settings.
    "d_model 100,000": lambda f: setting(f, "  d_model: 16", "  d_model: 100000"),
    "d_model 10^30": lambda f: setting(f, "  d_model: 16", f"  d_model: 1{'0' * 30}"),
    "d_model of 50,000 hexadecimal digits": lambda f: setting(
        f, "  d_model: 16", f"  d_model: 0x{'f' * 50_000}"
    ),
    "a billion layers": lambda f: setting(
        f, "  num_encoder_layers: 1", "  num_encoder_layers: 1000000000"
    ),
    "200 layers": lambda f: setting(f, "  num_decoder_layers: 1", "  num_decoder_layers: 200"),
    "a trillion positions": lambda f: setting(
        f, "  max_positions: 1024", "  max_positions: 1000000000000"
    ),
    "ten million learned positions": many_positions,
    "a billion beams": lambda f: setting(f, "  beam_size: 4", "  beam_size: 1000000000"),
    "endless translations": lambda f: setting(
        f, "  max_extra_tokens: 5", f"  max_extra_tokens: {10**18}"
    ),
    # YAML.
    "aliases that expand to 9^30 items": alias_bomb,
    "100,000 nested lists": lambda f: config(f, "x: " + "[" * 100_000),
    "50,000 nested block lists": lambda f: config(f, "x:\n  " + "- " * 50_000 + "x\n"),
    "10,000 nested mappings": lambda f: config(f, "x: " + "{a: " * 10_000 + "1" + "}" * 10_000),
    "a Python object": lambda f: config(f, "x: !!python/object/apply:os.system [touch HARMED]\n"),
    "an interpolation": lambda f: config(f, "x: ${oc.env:HOME}\n"),
    "an interpolation in YAML's escapes": lambda f: config(f, 'x: "\\x24{oc.env:HOME}"\n'),
    "an interpolation in a setting": lambda f: setting(
        f, "stage: train", 'stage: "\\u0024\\x7boc.env:HOME}"'
    ),
    "an interpolation in base 64": lambda f: setting(
        f, "stage: train", "stage: !!binary JHtvYy5lbnY6SE9NRX0="
    ),
    "interpolations that are nested": nested_interpolations,
    "an interpolation after a million backslashes": lambda f: setting(
        f, "stage: train", "stage: '" + 1_000_000 * "\\" + "${oc.env:HOME}'"
    ),
    "a number of base 60": lambda f: config(f, f"x: 1{':00' * 30_000}\n"),
    "control characters as a key": lambda f: config(f, '"\\e[2J\\e]0;harm\\a\\nline": 1\n'),
    "a key of 200,000 characters": lambda f: config(f, f"? {'x' * 200_000}\n: 1\n"),
    "_target_ as a key": lambda f: config(f, "_target_: os.system\n"),
    # Headers of safetensors.
    "header of 2^63 bytes": lambda f: header(f, {}, size=2**63),
    "header of 90 MB": header_of_90_megabytes,
    "header longer than the file": lambda f: header(f, {}, size=99_999_999),
    "header of 100,000 tensors": lambda f: header(
        f, {f"x{i}": entry("U8", [0], 0, 0) for i in range(100_000)}, data=0
    ),
    "header of 100,000 nested lists": lambda f: header(f, b'{"x":' + b"[" * 100_000),
    "tensors that overlap": lambda f: header(
        f, {"a": entry("F32", [8], 0, 32), "b": entry("F32", [8], 16, 48)}
    ),
    "tensors beyond the end": lambda f: header(f, {"a": entry("F32", [10**9], 0, 4 * 10**9)}),
    "sizes that overflow": lambda f: header(f, {"a": entry("F32", [2**40, 2**40], 0, 64)}),
    "negative sizes": lambda f: header(f, {"a": entry("F32", [-4, -4], 0, 64)}),
    "names with control characters": lambda f: header(
        f, {"\x1b[2J\n" * 1000: entry("F32", [16], 0, 64)}
    ),
    "data type that does not exist": lambda f: other_dtype(f, "F13"),
    # Other contents.
    "pickle as weights": lambda f: (f / WEIGHTS).write_bytes(pickle.dumps(Payload())),
    "pickle as vocabulary": lambda f: (f / TOKENIZER).write_bytes(pickle.dumps(Payload())),
    "random bytes as vocabulary": lambda f: (f / TOKENIZER).write_bytes(os.urandom(9999)),
    "pieces that are not UTF-8": lambda f: replace(f / TOKENIZER, b"\x0a\x01a", b"\x0a\x01\xff"),
    "byte pieces that are not UTF-8": lambda f: replace(f / TOKENIZER, b"<0x25>", b"<\xb8x25>"),
    "zip archive as weights": lambda f: (f / WEIGHTS).write_bytes(b"PK\x03\x04" + bytes(999)),
}
"""Folders that no command may use: changes to a copy of ``MODEL``, by description."""


SIDE_FILES = ("test.json", "run.json", "data/cleaning.json", "metrics.jsonl", "README.md")
"""Files of a run folder that a model card and an export read if they can."""


def side_file(name: str, target: str) -> Harm:
    def harm(folder: Path) -> None:
        (folder / name).parent.mkdir(exist_ok=True)
        link(folder / name, target)

    return harm


def empty_terabyte(folder: Path) -> None:
    (folder / "test.json").touch()
    sparse(folder / "test.json")


EXPORTED: dict[str, Harm] = {
    **{
        f"{name} linked to {target}": side_file(name, target)
        for name in SIDE_FILES
        for target in ("/dev/zero", "/dev/ptmx", Path(name).name)
    },
    "FIFO as test.json": lambda f: fifo(f / "test.json"),
    "FIFO as run.json": lambda f: fifo(f / "run.json"),
    "test.json of a terabyte": empty_terabyte,
    "test.json of 100,000 nested lists": lambda f: (f / "test.json").write_text("[" * 100_000),
    "test.json with control characters": lambda f: (f / "test.json").write_text(
        json.dumps([{"name": "BLEU", "score": 1, "signature": "\x1b[2J", "segments": 1}])
    ),
    "run.json of wrong types": lambda f: (f / "run.json").write_text(
        '{"starts": [{}, 1], "end": {"averaged_updates": ["\\u001b[2J"]}}'
    ),
}
"""Folders with a model that is good: ``mt-export format=hub`` must leave out the file, or refuse
the folder in one line.
"""


def make(name: str, to: Path) -> Path:
    """A copy of the model, harmed."""
    shutil.copytree(MODEL, to)
    (FOLDERS | EXPORTED)[name](to)
    return to


if __name__ == "__main__":
    tests = str(Path(__file__).with_name("test_hostile_folders.py"))
    sys.exit(pytest.main(["-m", "slow", tests, *sys.argv[1:]]))
