"""Reading of weights that ``torch.save`` has written: ``pytorch_model.bin``.

Such a file has a pickle, which can name code to run; ``weights_only`` runs none of it. What remains
is that a pickle can describe more than there is memory, so it is measured before it is read. Only
models of other libraries are read like this, never a folder of ours.
"""

import pickletools
import zipfile
from pathlib import Path
from typing import BinaryIO

import torch
from torch import Tensor

from transformer_mt import files
from transformer_mt.errors import InputError, first_line, printable

_MAX_EXTRA_BYTES = 2**26
"""Allowance in bytes for a weight file beyond the tensors of the model."""
_MAX_PICKLE_BYTES = 2**22
"""Maximum size of the list of tensors in a ``pytorch_model.bin``."""


def read_torch_weights(path: Path, num_bytes: int) -> dict[str, Tensor]:
    """The tensors of a file that ``torch.save`` wrote, memory-mapped where its format allows.

    Args:
        path: The file.
        num_bytes: Maximum size of its tensors, besides a few that are not needed.

    Raises:
        InputError: The file is missing, damaged or too large, or contains more than tensors.
    """
    try:
        with files.open_regular(path, num_bytes + _MAX_EXTRA_BYTES) as file:
            is_zip = file.read(4) == b"PK\3\4"
            file.seek(0)
            _check_archive(file) if is_zip else _check_old_format(file)
        tensors = torch.load(path, map_location="cpu", weights_only=True, mmap=is_zip)
        if not isinstance(tensors, dict) or not all(
            isinstance(name, str) and isinstance(tensor, Tensor) for name, tensor in tensors.items()
        ):
            raise ValueError("it is not a dictionary of tensors")
    except Exception as error:  # of the unpickler, the archive or the allocator: any type
        reason = getattr(error, "strerror", None) or first_line(error)
        if type(error).__name__ == "UnpicklingError":  # a page of advice to trust the file
            reason = "it contains more than tensors, or is damaged"
        raise InputError(f"cannot read {path}: {printable(reason[:200])}") from None
    return tensors


def _check_archive(file: BinaryIO) -> None:
    """Raises ``ValueError`` if an archive of tensors would need more memory than its size."""
    with zipfile.ZipFile(file) as archive:
        for entry in archive.infolist():
            if entry.compress_type != zipfile.ZIP_STORED:
                raise ValueError("it is compressed")
            if entry.filename.endswith(".pkl") and entry.file_size > _MAX_PICKLE_BYTES:
                raise ValueError(f"its list of tensors has {entry.file_size:,} bytes")


def _check_old_format(file: BinaryIO) -> None:
    """``ValueError`` if the pickles that a file of PyTorch < 1.6 starts with are too large."""
    for _ in range(5):  # magic number, version, system, tensors, names of their storages
        for _ in pickletools.genops(file):
            if file.tell() > _MAX_PICKLE_BYTES:
                raise ValueError(f"its list of tensors has more than {_MAX_PICKLE_BYTES:,} bytes")
