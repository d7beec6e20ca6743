"""Corpora of mtdata are downloaded once, from a server of this machine.

The program is a stand-in that downloads and writes as ``mtdata get`` does (mtdata 0.5.1).
"""

import os
import shutil
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from transformer_mt.config import DataConfig, SourceConfig, TokenizerConfig, TrainJob
from transformer_mt.data.prepare import prepare, read_all
from transformer_mt.data.text.sources import Pair
from transformer_mt.errors import InputError

TINY, CUT, GONE, REFUSED = (
    f"Local-{name}-1.0-deu-eng" for name in ("tiny", "cut", "gone", "refused")
)
ROWS = [(f"Ein Hund, {i}\u2028x", f"A dog, {i}") for i in range(40)]
TEXT = "".join(f"{de}\t{en}\n" for de, en in [*ROWS, ("", "no German")]).encode()

STAND_IN = """#!{python}
import argparse, gzip, os, urllib.request
parser = argparse.ArgumentParser()
parser.add_argument("--no-pbar", action="store_true", required=True)
get = parser.add_subparsers(required=True).add_parser("get")
for option in ("--langs", "--train", "--out"):
    get.add_argument(option, required=True)
get.add_argument("--compress", action="store_true", required=True)
args = parser.parse_args()
urls = dict(line.split() for line in open(os.environ["MTDATA"] + "/index", encoding="utf-8"))
os.makedirs(args.out + "/train-parts")
if args.train not in urls:
    raise SystemExit("Exception: Could not find " + args.train)
paths = [args.out + f"/train-parts/{{args.train}}.{{lang}}.gz" for lang in args.langs.split("-")]
files = [gzip.open(path, "wt", encoding="utf-8", newline="\\n") for path in paths]
with urllib.request.urlopen(urls[args.train]) as response:
    for line in response.read().decode().split("\\n"):
        sides = line.split("\\t")
        if all(sides) and len(sides) == 2:
            for side, file in zip(sides, files):
                file.write(side + "\\n")
for file in files:
    file.close()
"""


class Server(ThreadingHTTPServer):
    """Serves ``TEXT``, half of it with the length of all of it, or status 404."""

    requested: list[str]


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        server = self.server
        assert isinstance(server, Server)
        server.requested.append(self.path)
        status = 404 if "gone" in self.path else 200
        self.send_response(status)
        self.send_header("Content-Length", str(len(TEXT)))
        self.end_headers()
        self.wfile.write(TEXT[: len(TEXT) // 2] if "cut" in self.path else TEXT)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(("127.0.0.1", 0), _Handler) as server:
        server.requested = []
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def program(tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"http://127.0.0.1:{server.server_port}"
    urls = {name: f"{url}/{name}.tsv" for name in (TINY, CUT, GONE)}
    urls[REFUSED] = "http://127.0.0.1:9/x.tsv"
    lines = (f"{name} {address}\n" for name, address in urls.items())
    (tmp_path / "index").write_text("".join(lines), encoding="utf-8")
    monkeypatch.setenv("MTDATA", str(tmp_path))
    script = tmp_path / "bin" / "mtdata"
    script.parent.mkdir()
    script.write_text(STAND_IN.format(python=sys.executable), encoding="utf-8")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(script.parent), prepend=os.pathsep)


def job_of(tmp_path: Path, name: str) -> TrainJob:
    path = tmp_path / "a.tsv"
    path.write_text("".join(f"{en}\t{de}\n" for de, en in ROWS), encoding="utf-8", newline="\n")
    own = SourceConfig(tsv=str(path))
    train = [SourceConfig(mtdata=name)] if name else [own]
    data = DataConfig(src_lang="en", tgt_lang="de", train=train, valid=[own], workers=0)
    cache = str(tmp_path / "cache")
    return TrainJob(cache_dir=cache, data=data, tokenizer=TokenizerConfig(vocab_size=300))


def read(tmp_path: Path, name: str, src: str, tgt: str, **values: str) -> list[Pair]:
    data = DataConfig(src_lang=src, tgt_lang=tgt)
    return read_all([SourceConfig(mtdata=name, **values)], data, tmp_path / "cache")


def error_of(tmp_path: Path, name: str, src: str = "en", tgt: str = "de") -> str:
    with pytest.raises(InputError) as caught:
        read(tmp_path, name, src, tgt)
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.glob("cache/mtdata/*-*-deu-eng"))
    assert not list(tmp_path.glob("cache/mtdata/.*"))
    return str(caught.value)


@pytest.mark.usefixtures("program")
def test_both_directions_of_one_download(tmp_path: Path, server: Server) -> None:
    assert read(tmp_path, TINY, "de", "en") == ROWS
    assert read(tmp_path, TINY, "en-GB", "deu") == [(en, de) for de, en in ROWS]
    tagged = read(tmp_path, TINY, "fr", "it", src_lang="en", tgt_lang="de", tag="<2de>")
    assert tagged == [(f"<2de> {en}", de) for de, en in ROWS]
    assert server.requested == [f"/{TINY}.tsv"]


@pytest.mark.usefixtures("program")
def test_a_corpus_is_prepared_once(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The corpus equals that of a TSV file; a second run needs neither program nor server."""
    job = job_of(tmp_path, TINY)
    prepared, from_file = prepare(job), prepare(job_of(tmp_path, ""))
    assert prepared.fingerprints["corpus"] == from_file.fingerprints["corpus"]
    assert prepared.corpus != from_file.corpus
    monkeypatch.setenv("PATH", "")
    other = prepare(replace(job, data=replace(job.data, normalization="nfc")))
    assert other.corpus != prepared.corpus
    next((tmp_path / "cache/mtdata").glob("*/train-parts/*.deu.gz")).unlink()
    with pytest.raises(InputError, match=r"is damaged: delete the folder"):
        prepare(replace(job, data=replace(job.data, normalization="standard")))
    shutil.rmtree(tmp_path / "cache/mtdata")  # it is no longer needed
    assert prepare(job).corpus == prepared.corpus
    assert server.requested == [f"/{TINY}.tsv"]


@pytest.mark.usefixtures("program")
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (GONE, "404"),
        (REFUSED, "Connection refused"),
        (CUT, "IncompleteRead"),
        ("Local-unknown-1-deu-eng", "Could not find Local-unknown-1-deu-eng"),
    ],
)
def test_a_source_that_is_gone(tmp_path: Path, name: str, reason: str) -> None:
    message = error_of(tmp_path, name)
    assert message.startswith(f"mtdata: {name} cannot be downloaded (")
    assert reason in message
    assert message.endswith("check the connection, and the name with mtdata list --id")


def test_what_a_name_tells_is_refused_before_a_download(tmp_path: Path) -> None:
    other = error_of(tmp_path, TINY, "en", "fr")
    assert other == f"{{mtdata: {TINY}}} is not in en and fr, as its name says"
    for name in ("europarl", "Statmt-news-1-deu", "../a-b-1-deu-eng", "-a-1-deu-eng"):
        message = f"mtdata={name!r} does not name a corpus of two languages"
        assert error_of(tmp_path, name).startswith(message)


def test_mtdata_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    message = error_of(tmp_path, TINY)
    assert message.startswith(f"mtdata: {TINY} needs the program mtdata, which is not installed")
    assert message.endswith("pipx install mtdata")
