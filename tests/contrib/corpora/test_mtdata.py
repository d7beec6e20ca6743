"""Corpora of mtdata are downloaded once.

The program is a stand-in that writes files and fails as ``mtdata get`` does.
"""

import os
import re
import shutil
import sys
from pathlib import Path

import pytest
from support.data_jobs import changed, prepare_job, write_pairs
from support.errors import input_error

from transformer_mt.config import SourceConfig
from transformer_mt.data.prepare import prepare
from transformer_mt.data.text.sources import read_pairs
from transformer_mt.protocols import Pair

TINY, CUT, UNKNOWN = (f"Local-{name}-1.0-deu-eng" for name in ("tiny", "cut", "unknown"))
ROWS = [(f"Ein Hund, {i}\u2028x", f"A dog, {i}") for i in range(40)]

STAND_IN = """#!{python}
import gzip, pathlib, sys
with open({calls!r}, "a") as calls:
    print(*sys.argv[1:], file=calls)
name = sys.argv[sys.argv.index("--train") + 1]
if "unknown" in name:
    raise SystemExit("Exception: Could not find " + name)
pathlib.Path("train-parts").mkdir()
for lang, side in zip(name.split("-")[-2:], zip(*{rows!r})):
    text = "".join(line + "\\n" for line in side).encode()
    pathlib.Path("train-parts", name + "." + lang + ".gz").write_bytes(gzip.compress(text))
    if "cut" in name:
        raise ConnectionError("IncompleteRead")
"""
COMMAND = f"--no-pbar get --langs deu-eng --train {TINY} --compress --out .\n"
"""How mtdata 0.5.1 is to be called."""


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file in which the program writes its arguments."""
    script, file = tmp_path / "bin" / "mtdata", tmp_path / "calls"
    script.parent.mkdir()
    text = STAND_IN.format(python=sys.executable, calls=str(file), rows=ROWS)
    script.write_text(text, encoding="utf-8")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(script.parent), prepend=os.pathsep)
    return file


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the downloads."""
    monkeypatch.setenv("MTDATA", str(tmp_path / "cache"))
    return tmp_path / "cache/transformer_mt"


def read(name: str, src: str = "en", tgt: str = "de", **values: str) -> list[Pair]:
    return list(read_pairs([SourceConfig(mtdata=name, **values)], src, tgt))


def error_of(cache: Path, name: str, tgt: str = "de") -> str:
    with input_error() as caught:
        read(name, tgt=tgt)
    assert not list(cache.glob("*-*-deu-eng"))
    assert not list(cache.glob(".*"))
    return str(caught.value)


def test_both_directions_of_one_download(calls: Path) -> None:
    assert read(TINY, "de", "en") == ROWS
    assert read(TINY, "en-GB", "deu") == [(en, de) for de, en in ROWS]
    tagged = read(TINY, "fr", "it", src_lang="en", tgt_lang="de", tag="<2de>")
    assert tagged == [(f"<2de> {en}", de) for de, en in ROWS]
    assert calls.read_text() == COMMAND


def test_a_corpus_is_prepared_once(
    tmp_path: Path, cache: Path, calls: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The corpus equals that of a TSV file; a second run does not need the program."""
    own = write_pairs(tmp_path / "a.tsv", [(en, de) for de, en in ROWS])
    job = prepare_job(tmp_path, [SourceConfig(mtdata=TINY)], 300, valid=[own])
    prepared, from_file = prepare(job), prepare(changed(job, "data", train=[own]))
    assert prepared.fingerprints["corpus"] == from_file.fingerprints["corpus"]
    assert prepared.corpus != from_file.corpus
    monkeypatch.setenv("PATH", "")
    assert prepare(changed(job, "data", normalization="nfc")).corpus != prepared.corpus
    shutil.rmtree(cache)  # it is no longer needed
    assert prepare(job).corpus == prepared.corpus
    assert calls.read_text() == COMMAND


@pytest.mark.usefixtures("calls")
@pytest.mark.parametrize(
    ("name", "reason"), [(CUT, "IncompleteRead"), (UNKNOWN, f"Could not find {UNKNOWN}")]
)
def test_a_source_that_is_gone(cache: Path, name: str, reason: str) -> None:
    message = error_of(cache, name)
    assert re.match(rf"mtdata: {name} cannot be downloaded \(.*{reason}\)", message)
    assert message.endswith("check the connection, and the name with mtdata list --id")


def test_what_a_name_tells_is_refused_before_a_download(cache: Path) -> None:
    other = error_of(cache, TINY, "fr")
    assert other == f"{{mtdata: {TINY}}} is not in en and fr, as its name says"
    for name in ("europarl", "Statmt-news-1-deu", "../a-b-1-deu-eng", "-a-1-deu-eng"):
        message = f"mtdata={name!r} does not name a corpus of two languages"
        assert error_of(cache, name).startswith(message)


def test_without_mtdata(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    message = error_of(cache, TINY)
    assert message.startswith(f"mtdata: {TINY} needs the program mtdata, which is not installed")
    assert message.endswith("pipx install mtdata")
