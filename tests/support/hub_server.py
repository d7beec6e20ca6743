"""A server on this machine that speaks the protocol of the Hugging Face Hub, for models."""

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

Files = dict[str, bytes]


def read_files(folder: Path) -> Files:
    """The files of a folder and its subfolders, by relative path."""
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def commit_of(files: Files) -> str:
    """A commit hash of some files."""
    return hashlib.sha1(repr(sorted(files.items())).encode()).hexdigest()


@dataclass
class Hub:
    """The repositories of the server."""

    url: str = ""
    repositories: dict[str, dict[str, Files]] = field(default_factory=dict)
    """Files by repository and revision; a commit is a revision too."""
    gated: set[str] = field(default_factory=set)
    status: int = 200
    """Status of every answer, such as 503 if the server is down."""
    requests: list[str] = field(default_factory=list)
    """Method and path of every request."""

    def push(self, repository: str, files: Files, *names: str) -> str:
        """Adds a commit, which becomes the branch ``main`` and the other names."""
        commit = commit_of(files)
        revisions = self.repositories.setdefault(repository, {})
        revisions |= dict.fromkeys((commit, "main", *names), files)
        return commit

    def downloads(self) -> list[str]:
        """Paths of the files that were downloaded."""
        return [
            r.split("/resolve/")[1]
            for r in self.requests
            if r.startswith("GET") and "/resolve/" in r
        ]


@contextmanager
def serve() -> Iterator[Hub]:
    """A running server without repositories."""
    hub = Hub()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = unquote(urlsplit(self.path).path)
            hub.requests.append(f"{self.command} {path}")
            if hub.status != 200:
                self._send(hub.status, b"")
                return
            parts = path.strip("/").split("/")
            if parts[:2] == ["api", "models"]:
                repository, rest = "/".join(parts[2:4]), parts[4:]
            else:
                repository, rest = "/".join(parts[:2]), parts[2:]
            revisions = hub.repositories.get(repository)
            if revisions is None:
                self._send(401, b"", {"X-Error-Code": "RepoNotFound"})
                return
            revision = rest[1] if len(rest) > 1 else "main"
            if revision not in revisions:
                self._send(404, b"", {"X-Error-Code": "RevisionNotFound"})
                return
            files = revisions[revision]
            if parts[0] == "api":
                content: Any = _tree(files) if rest[:1] == ["tree"] else _info(repository, files)
                self._send(200, json.dumps(content).encode(), {"Content-Type": "application/json"})
            elif repository in hub.gated:
                self._send(403, b"", {"X-Error-Code": "GatedRepo"})
            elif (name := "/".join(rest[2:])) in files:
                headers = {"X-Repo-Commit": commit_of(files), "ETag": f'"{_etag(files[name])}"'}
                self._send(200, files[name], headers)
            else:
                self._send(404, b"", {"X-Error-Code": "EntryNotFound"})

        def do_HEAD(self) -> None:
            self.do_GET()

        def _send(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
            self.send_response(status)
            for key, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
                self.send_header(key, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _etag(content: bytes) -> str:
    """Git's hash of a file, which is its ETag."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def _info(repository: str, files: Files) -> dict[str, Any]:
    siblings = [{"rfilename": name} for name in files]
    return {"id": repository, "sha": commit_of(files), "siblings": siblings}


def _tree(files: Files) -> list[dict[str, Any]]:
    return [
        {"type": "file", "path": name, "size": len(content), "oid": _etag(content)}
        for name, content in files.items()
    ]
