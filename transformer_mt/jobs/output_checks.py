"""Checks that the outputs of a command do not overwrite its inputs."""

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from transformer_mt import files, run_layout
from transformer_mt.config import DataConfig
from transformer_mt.errors import InputError

NamedPath = tuple[str, str | Path]
"""A file or folder, preceded by what it is called in messages."""


def check_outputs(outputs: Mapping[str, str | None], inputs: Iterable[NamedPath]) -> None:
    """Raises ``InputError`` if an output (setting → path) would overwrite an input or another."""
    taken = [(called, Path(path)) for called, path in inputs]
    for key, value in outputs.items():
        # A pipe or a device, such as /dev/null, is not overwritten.
        if value is None or files.is_stream(path := files.expand_user(value)):
            continue
        for called, other in taken:
            # Not Path.exists, which raises if a parent folder is not readable.
            same = os.path.exists(path) and os.path.exists(other) and path.samefile(other)  # noqa: PTH110
            target = path.resolve()
            inside = target.is_file() and target.is_relative_to(other.resolve())
            if same or inside or target == other.resolve():
                raise InputError(
                    f"{key}={value} would overwrite the file of {called}: choose another file"
                )
        taken.append((key, path))


def model_files(folder: Path, data: DataConfig) -> Iterator[NamedPath]:
    """The files and folders of a model folder, and the data files that it was trained on."""
    for name in (
        run_layout.CONFIG,
        run_layout.TOKENIZER,
        run_layout.WEIGHTS,
        run_layout.METRICS,
        run_layout.TEST_SCORES,
        run_layout.RUN_INFO,
        run_layout.LOG,
        run_layout.MODEL_CARD,
        run_layout.CURVES,
        run_layout.CHECKPOINTS,
        run_layout.CTRANSLATE2,
        Path(run_layout.CLEANING_REPORT).parent,
        run_layout.TENSORBOARD,
        run_layout.TRACKERS,
    ):
        yield "the model", folder / name
    for key in ("train", "valid", "test"):
        for source in getattr(data, key):
            for path in source.paths.values():
                yield f"data.{key}", path
