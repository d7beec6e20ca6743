"""Model references: a folder, or ``hf://ORG/NAME[@REVISION]`` on the Hugging Face Hub.

Of a repository only the three files that translation needs are downloaded, into the cache that
all programs share (``HF_HOME``). Like any untrusted folder, they are verified when they are loaded
(``model_folder``).
"""

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from transformer_mt import run_layout
from transformer_mt.errors import InputError, first_line, printable
from transformer_mt.files import expand_user

PREFIX = "hf://"

_REFERENCE = re.compile(r"hf://([\w.-]+/[\w.-]+)(?:@([\w./-]+))?")
_COMMIT = re.compile("[0-9a-f]{40}")
_FILES = (run_layout.CONFIG, run_layout.TOKENIZER, run_layout.WEIGHTS)
_SECONDS = 10.0
"""Time to wait for an answer of the Hub before the cache is used."""

log = logging.getLogger(__name__)


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
    repository, revision = _split(str(reference))
    return _fetch(str(reference), repository, revision)


def pin(reference: str) -> str:
    """A reference to a repository with the commit that it stands for now; see ``resolve``."""
    repository, _ = _split(reference)
    return f"{PREFIX}{repository}@{resolve(reference).name}"


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

    if revision and _COMMIT.fullmatch(revision) and (cached := _cached(repository, revision)):
        return cached  # a commit never changes
    if problem := _problem(reference, repository, revision):
        cached = _cached(repository, revision)
        if cached is None:
            raise InputError(
                f"cannot fetch {reference}: {problem}, and it is not in the cache "
                f"{constants.HF_HUB_CACHE}"
            )
        if not constants.HF_HUB_OFFLINE:
            log.warning("%s: using %s from the cache", problem, reference)
        return cached
    try:
        with _explained(reference):
            return Path(snapshot_download(repository, revision=revision, allow_patterns=[*_FILES]))
    except InputError:
        raise
    except Exception as error:  # its class depends on the HTTP library of huggingface_hub
        raise InputError(f"cannot fetch {reference}: {printable(first_line(error))}") from None


def _cached(repository: str, revision: str | None) -> Path | None:
    """The folder of a repository in the cache if all files are there, without a connection."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        found = snapshot_download(
            repository, revision=revision, allow_patterns=[*_FILES], local_files_only=True
        )
    except LocalEntryNotFoundError:
        return None
    folder = Path(found)
    return folder if all((folder / name).exists() for name in _FILES) else None


def _problem(reference: str, repository: str, revision: str | None) -> str:
    """Why the Hub does not answer; empty if it does and the repository has a model.

    Raises:
        InputError: It answers, but the model is not available.
    """
    from huggingface_hub import HfApi, constants
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

    try:
        with _explained(reference):
            info = HfApi().model_info(repository, revision=revision, timeout=_SECONDS)
    except InputError:
        raise
    except OfflineModeIsEnabled:
        return "HF_HUB_OFFLINE is set"
    except HfHubHTTPError as error:
        return f"{constants.ENDPOINT} answers with status {error.response.status_code}"
    except Exception as error:  # its class depends on the HTTP library of huggingface_hub
        return f"{constants.ENDPOINT} cannot be reached ({printable(first_line(error))})"
    names = {file.rfilename for file in info.siblings or ()}
    if missing := [name for name in _FILES if name not in names]:
        raise InputError(
            f"{reference} is not a model of transformer_mt: it has no {', '.join(missing)}"
        )
    return ""


@contextmanager
def _explained(reference: str) -> Iterator[None]:
    """Turns the refusals of the Hub into ``InputError``."""
    from huggingface_hub import constants
    from huggingface_hub.errors import (
        GatedRepoError,
        HFValidationError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    try:
        yield
    except HFValidationError as error:
        raise InputError(f"{reference}: {printable(first_line(error))}") from None
    except GatedRepoError:
        page = f"{constants.ENDPOINT}/{repository(reference)}"
        raise InputError(
            f"{reference} is gated: accept its conditions at {page}, and log in with hf auth login"
        ) from None
    except RepositoryNotFoundError:
        raise InputError(
            f"{reference} does not exist or is private: check the name, or log in with hf auth "
            "login"
        ) from None
    except RevisionNotFoundError:
        raise InputError(f"{reference}: there is no such revision") from None
