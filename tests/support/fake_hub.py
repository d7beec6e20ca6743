"""A stand-in for ``huggingface_hub.snapshot_download``, with repositories of its own."""

from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import Mock

import huggingface_hub
import pytest
from huggingface_hub import errors

Files = dict[str, bytes]


def read_files(folder: Path) -> Files:
    """The files of a folder and its subfolders, by relative path."""
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


@dataclass
class Hub:
    """Repositories, and a cache on this machine."""

    cache: Path
    repositories: dict[str, dict[str, Files]] = field(default_factory=dict)
    """Files by repository and revision; a commit is a revision too."""
    downloads: list[str] = field(default_factory=list)
    """Names of the files that were not yet in the cache."""
    error: Exception | None = None
    """Raised instead of an answer."""

    def push(self, repository: str, files: Files, *names: str) -> str:
        """Adds a commit, which becomes the branch ``main`` and the other names."""
        revisions = self.repositories.setdefault(repository, {})
        commit = f"{len(revisions):040x}"
        revisions |= dict.fromkeys((commit, "main", *names), files)
        return commit

    def download(self, repository: str, *, revision: str | None, allow_patterns: list[str]) -> str:
        """The folder of the newest commit with a revision's files; as the client, by its errors."""
        if self.error:
            raise self.error
        response = Mock()
        if repository not in self.repositories:
            raise errors.RepositoryNotFoundError("none", response=response)
        revisions = self.repositories[repository]
        if (revision or "main") not in revisions:
            raise errors.RevisionNotFoundError("none", response=response)
        files = revisions[revision or "main"]
        commit = next(
            name for name, other in revisions.items() if other is files and len(name) == 40
        )
        folder = self.cache / repository / commit
        folder.mkdir(parents=True, exist_ok=True)
        for name in files.keys() & set(allow_patterns):
            if not (folder / name).exists():
                (folder / name).write_bytes(files[name])
                self.downloads.append(name)
        return str(folder)


def install(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    """Replaces the client until the end of the test."""
    hub = Hub(cache)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", hub.download)
    return hub
