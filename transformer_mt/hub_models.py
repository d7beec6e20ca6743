"""Names of models: a folder, or ``hf://ORG/NAME[@REVISION]`` on the Hugging Face Hub.

Of a repository only the three files that translation needs are downloaded, into the cache that
all programs share (``HF_HOME``). Like any untrusted folder, they are verified when they are loaded
(``model_folder``).
"""

import re
from pathlib import Path

from transformer_mt import run_layout
from transformer_mt.errors import InputError, first_line, printable
from transformer_mt.files import expand_user

PREFIX = "hf://"

_REFERENCE = re.compile(r"hf://([\w.-]+/[\w.-]+)(?:@([\w./-]+))?")
_FILES = [run_layout.CONFIG, run_layout.TOKENIZER, run_layout.WEIGHTS]
_REFUSALS = {
    "GatedRepoError": "{} is gated: accept its conditions at {}, and log in with hf auth login",
    "RepositoryNotFoundError": (
        "{} does not exist or is private: check the name, or log in with hf auth login"
    ),
    "RevisionNotFoundError": "{}: there is no such revision",
}
"""Messages for errors of huggingface_hub that are no matter of the connection."""


def is_remote(reference: str | Path) -> bool:
    """Whether a reference names a repository of the Hub."""
    return isinstance(reference, str) and reference.startswith(PREFIX)


def resolve(reference: str | Path) -> Path:
    """The folder of a model: a local one as given, that of a repository after its download.

    If the Hub cannot be reached, or with ``HF_HUB_OFFLINE=1``, the cache is used.

    Raises:
        InputError: The repository or its revision does not exist, is not accessible, holds no
            model of this package, or can neither be reached nor is in the cache.
    """
    if not is_remote(reference):
        return expand_user(reference)
    return _fetch(str(reference), *_split(str(reference)))


def pin(reference: str) -> str:
    """A reference to a repository with the commit that it stands for now; see ``resolve``."""
    return f"{PREFIX}{_split(reference)[0]}@{resolve(reference).name}"


def repository(reference: str | None) -> str | None:
    """``ORG/NAME`` of a reference to a repository; None for anything else."""
    return _split(reference)[0] if reference is not None and is_remote(reference) else None


def _split(reference: str) -> tuple[str, str | None]:
    match = _REFERENCE.fullmatch(reference)
    if not match:
        raise InputError(
            f"{reference} is not the name of a model: write hf://ORG/NAME or hf://ORG/NAME@REVISION"
        )
    return match[1], match[2]


def _fetch(reference: str, repository: str, revision: str | None) -> Path:
    """The folder of a repository in the cache, after downloading what is missing there."""
    # Imported here because it takes a fraction of a second.
    from huggingface_hub import constants, snapshot_download

    folder = Path()
    try:
        for names in (
            [run_layout.CONFIG],
            _FILES,
        ):  # of what is no model, no weights are downloaded
            # Without a connection, this is the copy in the cache.
            folder = Path(snapshot_download(repository, revision=revision, allow_patterns=names))
            if missing := [name for name in names if not (folder / name).exists()]:
                raise InputError(
                    f"{reference} is not a model of transformer_mt: it has no {', '.join(missing)}"
                )
    except InputError:
        raise
    except Exception as error:  # its class depends on the HTTP library of huggingface_hub
        for kind in type(error).__mro__:
            if kind.__name__ in _REFUSALS:
                page = f"{constants.ENDPOINT}/{repository}"
                raise InputError(_REFUSALS[kind.__name__].format(reference, page)) from None
        raise InputError(f"cannot fetch {reference}: {printable(first_line(error))}") from None
    return folder
