"""Names of models: a folder, or ``hf://ORG/NAME[@REVISION]`` on the Hugging Face Hub.

Of a repository only the files that translation needs are downloaded, into the cache that all
programs share (``HF_HOME``): of a model of ours, or of a MarianMT model of transformers. Like any
untrusted folder, they are verified when they are loaded (``model_folder``).
"""

import re
from pathlib import Path

from transformer_mt.errors import InputError, first_line, printable
from transformer_mt.files import read_json
from transformer_mt.run_layout import CONFIG, VOCABULARY, WEIGHTS

PREFIX = "hf://"
"""Start of a name of a repository."""

_REFERENCE = re.compile(r"hf://([\w.-]+/[\w.-]+)(?:@([\w./-]+))?")
CONFIG_JSON, PICKLE = "config.json", "pytorch_model.bin"
"""A MarianMT model's configuration and, where it has no ``model.safetensors``, weights."""
MARIAN_IDS = ("vocab.json", "target_vocab.json")
"""Ids of a MarianMT model's pieces: one file for both languages, or one for each."""
FILES = [
    *(CONFIG, CONFIG_JSON, WEIGHTS, *VOCABULARY, *MARIAN_IDS),
    *("generation_config.json", "tokenizer_config.json"),
]
"""Files of a model; besides them a pickle is read, if there are no other weights."""


def pin(reference: str) -> str:
    """A reference to a repository with the commit that it stands for now; see ``resolve``."""
    return f"{PREFIX}{_split(reference)[0]}@{resolve(reference).name}"


def repository(reference: str | None) -> str | None:
    """``ORG/NAME`` of a reference to a repository; None for anything else."""
    return _split(reference)[0] if reference is not None and reference.startswith(PREFIX) else None


def _split(reference: str) -> tuple[str, str | None]:
    match = _REFERENCE.fullmatch(reference)
    if not match:
        raise InputError(
            f"{reference} is not the name of a model: write hf://ORG/NAME or hf://ORG/NAME@REVISION"
        )
    return match[1], match[2]


def resolve(reference: str) -> Path:
    """The folder of a repository in the cache, after downloading what is missing there.

    If the Hub cannot be reached, or with ``HF_HUB_OFFLINE=1``, it is the copy in the cache.
    """
    folder = _fetch(reference, FILES)
    if (folder / CONFIG).exists():
        return folder
    if not is_marian(folder):
        raise InputError(f"{reference} is not a model of transformer_mt: it has no {CONFIG}")
    return folder if (folder / WEIGHTS).exists() else _fetch(reference, [PICKLE])


def _fetch(reference: str, names: list[str]) -> Path:
    """Downloads the named files, if the repository has them; returns its folder in the cache."""
    # Imported here because it takes a fraction of a second.
    from huggingface_hub import errors, snapshot_download

    repository, revision = _split(reference)
    try:
        return Path(snapshot_download(repository, revision=revision, allow_patterns=names))
    except Exception as error:  # its class depends on the HTTP library of huggingface_hub
        if isinstance(error, errors.RepositoryNotFoundError):
            remedy = "check the name, or log in with hf auth login"
            reason = f"{reference} does not exist, is private or gated: {remedy}"
        elif isinstance(error, errors.RevisionNotFoundError):
            reason = f"{reference}: there is no such branch, tag or commit: check the name"
        else:
            reason = (
                f"cannot fetch {reference}: {printable(first_line(error))}. A copy in a folder "
                f"works as well (hf download {repository} --local-dir FOLDER, on a machine with a "
                "connection)"
            )
        raise InputError(reason) from error


def is_marian(folder: Path) -> bool:
    """Whether a folder holds a MarianMT model of Hugging Face transformers."""
    path = folder / CONFIG_JSON
    if not path.exists():
        return False
    kind = read_json(path, {}).get("model_type")
    if kind not in (None, "marian"):
        raise InputError(
            f"{folder} is a model of type {printable(str(kind)[:40])}: of other libraries' models, "
            "only type marian can be used"
        )
    return kind is not None
