"""Names of models: a folder, or ``hf://ORG/NAME[@REVISION]`` on the Hugging Face Hub.

Of a repository only the files that translation needs are downloaded, into the cache that all
programs share (``HF_HOME``): of a model of ours, or of a MarianMT model of transformers. Like any
untrusted folder, they are verified when they are loaded (``model_folder``).
"""

import re
from pathlib import Path

from transformer_mt.errors import InputError, first_line, printable
from transformer_mt.files import read_json
from transformer_mt.registries import IMPORT_FORMATS
from transformer_mt.run_layout import CONFIG, VOCABULARY, WEIGHTS

PREFIX = "hf://"
"""Start of a name of a repository."""

_REFERENCE = re.compile(r"hf://([\w.-]+/[\w.-]+)(?:@([\w./-]+))?")
CONFIG_JSON, PICKLE = "config.json", "pytorch_model.bin"
"""A MarianMT model's configuration and, where it has no ``model.safetensors``, weights."""
_CONFIGS = [CONFIG, CONFIG_JSON]
FILES = [
    *(*_CONFIGS, WEIGHTS, *VOCABULARY),
    *("generation_config.json", "tokenizer_config.json"),
]
"""Files of a model; besides them a pickle is read, if there are no other weights."""
_REFUSALS = {
    "GatedRepoError": "{} is gated: accept its conditions at {}, and log in with hf auth login",
    "RepositoryNotFoundError": (
        "{} does not exist or is private: check the name, or log in with hf auth login"
    ),
    "RevisionNotFoundError": "{}: there is no such branch, tag or commit: check the name",
}
"""Messages for errors of huggingface_hub that do not come from the connection."""


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

    Raises:
        InputError: The repository or its revision does not exist, is not accessible, holds no
            model of this package, or can neither be reached nor is in the cache.
    """
    # Imported here because it takes a fraction of a second.
    from huggingface_hub import constants, snapshot_download

    repository, revision = _split(reference)

    def fetch(names: list[str]) -> Path:
        return Path(snapshot_download(repository, revision=revision, allow_patterns=names))

    try:
        # Of what is no model, no weights are downloaded, and a pickle only where it is needed.
        folder = fetch(_CONFIGS)
        foreign = foreign_type(folder)
        if foreign is None and not (folder / CONFIG).exists():
            raise InputError(f"{reference} is not a model of transformer_mt: it has no {CONFIG}")
        folder = fetch(FILES)
        if foreign is not None and not (folder / WEIGHTS).exists():
            folder = fetch([PICKLE])
    except InputError:
        raise
    except Exception as error:  # its class depends on the HTTP library of huggingface_hub
        for kind in type(error).__mro__:
            if kind.__name__ in _REFUSALS:
                page = f"{constants.ENDPOINT}/{repository}"
                raise InputError(_REFUSALS[kind.__name__].format(reference, page)) from None
        reason = printable(first_line(error))
        raise InputError(
            f"cannot fetch {reference}: {reason}. A copy in a folder works as well (hf download "
            f"{repository} --local-dir FOLDER, on a machine with a connection)"
        ) from None
    return folder


def foreign_type(folder: Path) -> str | None:
    """Type of a model of another library (``registries.IMPORT_FORMATS``) in a folder, if it is one.

    Raises:
        InputError: Its configuration is damaged, or its type is not supported.
    """
    path = folder / CONFIG_JSON
    if (folder / CONFIG).exists() or not path.exists():
        return None
    try:
        kind = read_json(path, {}).get("model_type")
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {path}: {printable(first_line(error))}") from None
    if kind is not None and str(kind) not in IMPORT_FORMATS:
        raise InputError(
            f"{folder} is a model of type {printable(str(kind)[:40])}: of other libraries' models, "
            f"only type {', '.join(IMPORT_FORMATS)} can be used"
        )
    return None if kind is None else str(kind)
