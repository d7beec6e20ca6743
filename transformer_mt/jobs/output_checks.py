"""What a command writes never takes the place of what it reads."""

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from transformer_mt import files, run_layout
from transformer_mt.config import DataConfig
from transformer_mt.errors import InputError

Named = tuple[str, str | Path]
"""A file, after a word for it."""


def refuse_loss(outputs: Mapping[str, str | None], read: Iterable[Named]) -> None:
    """Checks the outputs of a command, by the keys that name them.

    Raises:
        InputError: One is a file that is read, or another output.
    """
    taken = [(what, Path(path)) for what, path in read]
    for key, value in outputs.items():
        # Into a pipe or a device, such as /dev/null, goes whatever comes.
        if value is None or files.is_stream(path := files.expand_user(value)):
            continue
        for what, other in taken:
            # Not Path.exists, which raises where a folder above is another user's.
            same = os.path.exists(path) and os.path.exists(other) and path.samefile(other)  # noqa: PTH110
            if same or path.resolve() == other.resolve():
                raise InputError(
                    f"{key}={value} is the file of {what}, which would be lost: choose another"
                )
        taken.append((key, path))


def files_of_model(folder: Path, data: DataConfig) -> Iterator[Named]:
    """What a model folder consists of, and the files it was made from."""
    for name in (
        run_layout.CONFIG,
        run_layout.TOKENIZER,
        run_layout.WEIGHTS,
        run_layout.METRICS,
        run_layout.TEST_SCORES,
        run_layout.RUN_INFO,
        run_layout.LOG,
    ):
        yield "the model", folder / name
    for name in (run_layout.CHECKPOINTS, "ctranslate2", "data", "tensorboard"):
        yield from (("the model", path) for path in (folder / name).rglob("*"))
    for key in ("train", "valid", "test"):
        for source in getattr(data, key):
            for path in source.paths.values():
                yield f"data.{key}", path
