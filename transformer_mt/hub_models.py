"""Names of models: a folder, or ``hf://ORG/NAME[@REVISION]`` on the Hugging Face Hub.

Of a repository only the files that translation needs are downloaded, into the cache that all
programs share (``HF_HOME``): of a model of ours, or of a MarianMT model of transformers. Like any
untrusted folder, they are verified when they are loaded (``model_folder``).
"""

import logging
import re
from collections.abc import Collection
from pathlib import Path

from transformer_mt import run_layout
from transformer_mt.errors import InputError, first_line, printable
from transformer_mt.files import expand_user

PREFIX = "hf://"

_REFERENCE = re.compile(r"hf://([\w.-]+/[\w.-]+)(?:@([\w./-]+))?")
_COMMIT = re.compile("[0-9a-f]{40}")
CONFIG_JSON, PICKLE = "config.json", "pytorch_model.bin"
"""A MarianMT model's configuration and, where it has no ``model.safetensors``, weights."""
_FILES = (
    *(run_layout.CONFIG, run_layout.WEIGHTS, *run_layout.VOCABULARY),
    *(CONFIG_JSON, "generation_config.json", "tokenizer_config.json"),
)
"""Files to download, as far as a repository has them."""
_SECONDS = 10.0
"""Time to wait for an answer of the Hub before the cache is used."""
_REFUSALS = {
    "GatedRepoError": "{} is gated: accept its conditions at {}, and log in with hf auth login",
    "RepositoryNotFoundError": (
        "{} does not exist or is private: check the name, or log in with hf auth login"
    ),
    "RevisionNotFoundError": "{}: there is no such revision",
    "HFValidationError": "{}: this cannot be the name of a repository",
}
"""Messages for errors of huggingface_hub that are no matter of the connection."""

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
    from huggingface_hub import HfApi, constants, snapshot_download

    try:
        if revision and _COMMIT.fullmatch(revision) and (cached := _cached(repository, revision)):
            return cached  # a commit never changes
        info = HfApi().model_info(repository, revision=revision, timeout=_SECONDS)
        names = {file.rfilename for file in info.siblings or ()}
        if missing := _missing(names):
            raise InputError(
                f"{reference} is not a model of transformer_mt: it has no {', '.join(missing)}"
            )
        wanted = [*_FILES] if run_layout.WEIGHTS in names else [*_FILES, PICKLE]
        return Path(snapshot_download(repository, revision=revision, allow_patterns=wanted))
    except InputError:
        raise
    except Exception as error:  # its class depends on the HTTP library of huggingface_hub
        for kind in type(error).__mro__:
            if kind.__name__ in _REFUSALS:
                page = f"{constants.ENDPOINT}/{repository}"
                raise InputError(_REFUSALS[kind.__name__].format(reference, page)) from None
        offline = type(error).__name__ == "OfflineModeIsEnabled"
        problem = f"{constants.ENDPOINT} cannot be used ({printable(first_line(error))})"
    if (cached := _cached(repository, revision)) is None:
        problem = "HF_HUB_OFFLINE is set" if offline else problem
        cache = constants.HF_HUB_CACHE
        raise InputError(f"cannot fetch {reference}: {problem}, and it is not in the cache {cache}")
    if not offline:
        log.warning("%s: using %s from the cache", problem, reference)
    return cached


def _cached(repository: str, revision: str | None) -> Path | None:
    """The folder of a repository in the cache if all files are there, without a connection."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        folder = Path(
            snapshot_download(
                repository,
                revision=revision,
                allow_patterns=[*_FILES, PICKLE],
                local_files_only=True,
            )
        )
    except LocalEntryNotFoundError:
        return None
    return None if _missing({path.name for path in folder.iterdir()}) else folder


def _missing(names: Collection[str]) -> list[str]:
    """The files that a model lacks, given the names of those that it has."""
    marian = run_layout.CONFIG not in names and CONFIG_JSON in names
    one_vocabulary = not marian and run_layout.SIDE_TOKENIZERS[0] not in names
    vocabulary = [run_layout.TOKENIZER] if one_vocabulary else [*run_layout.SIDE_TOKENIZERS]
    if marian:
        vocabulary = [] if run_layout.TOKENIZER in names else [*vocabulary, run_layout.PIECES[0]]
    weights = PICKLE if marian and PICKLE in names else run_layout.WEIGHTS
    needed = (CONFIG_JSON if marian else run_layout.CONFIG, *vocabulary, weights)
    return [name for name in needed if name not in names]
