"""sacreBLEU test sets: every text is read; what is missing gives one line."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from transformer_mt.errors import InputError
from transformer_mt.evaluation.scores import score
from transformer_mt.evaluation.systems import load_testset

SOURCE = ["One line.", "A second\u2028line."]
REFERENCES = [["Eine Zeile.", "Eine zweite\u2028Zeile."], ["Ein Satz.", "Ein zweiter Satz."]]
HYPOTHESIS = ["Eine Zeile.", "Eine Zeile noch."]
CLOSED_PORT = "http://127.0.0.1:9"


def python(code: str, folder: Path) -> str:
    """Output of Python with sacreBLEU's test sets in a folder (which sacreBLEU reads at import)."""
    environment = dict(os.environ, SACREBLEU=str(folder), NO_PROXY="")
    for scheme in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        environment[scheme] = CLOSED_PORT
    environment.pop("SACREBLEU_FORMAT", None)
    arguments = code.split() if code.startswith("-m ") else ["-c", code]
    done = subprocess.run(
        [sys.executable, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout


LOAD = """
from transformer_mt.errors import InputError
from transformer_mt.evaluation.systems import load_testset
import json
try:
    found = load_testset({name!r}, {langs!r})
    print(json.dumps([list(found.source), list(found.references.items())]))
except InputError as error:
    print(error)
"""


def write(folder: Path, name: str, langs: str, texts: dict[str, list[str]]) -> None:
    place = folder / name
    place.mkdir(parents=True)
    for field, lines in texts.items():
        text = "".join(f"{line}\n" for line in lines)
        file = f"{name.replace('/', '_')}.{langs}.{field.replace(':', '-')}"
        (place / file).write_text(text, encoding="utf-8")


def test_source_and_all_references_are_read_as_the_command_reads_them(tmp_path: Path) -> None:
    first, second = REFERENCES
    name = "wmt17/tworefs"
    about = {field: ["x", "y"] for field in ("docid", "genre", "origlang")}
    texts = {"src": SOURCE, "ref:0": first, "ref:1": second, **about}
    write(tmp_path, name, "en-fi", texts)
    source, references = json.loads(python(LOAD.format(name=name, langs="en-fi"), tmp_path))
    assert source == SOURCE
    assert references == [[f"wmt17_tworefs.en-fi.ref-{i}", REFERENCES[i]] for i in (0, 1)]
    (tmp_path / "hyp").write_text("".join(f"{line}\n" for line in HYPOTHESIS), encoding="utf-8")
    arguments = f"-m sacrebleu -t {name} -l en-fi -i {tmp_path}/hyp -w 4 --quiet"
    (ours,) = score(HYPOTHESIS, [lines for _, lines in references], metrics=["bleu"])
    assert json.loads(python(arguments, tmp_path))["score"] == round(ours.score, 4)


def test_missing_test_set_offline_is_reported_in_one_line(tmp_path: Path) -> None:
    said = python(LOAD.format(name="wmt14/full", langs="en-de"), tmp_path)
    assert len(said.splitlines()) == 1
    assert said.startswith("testset=wmt14/full is not on this machine and cannot be downloaded (")
    assert str(tmp_path / "wmt14/full") in said


def test_unknown_test_sets_and_languages_are_refused() -> None:
    with pytest.raises(InputError, match=r"^testset=wmt1: sacreBLEU has no such test set"):
        load_testset("wmt1", "en-de")
    with pytest.raises(InputError, match=r"has no langs=en-xx, only: .*\ben-de\b"):
        load_testset("wmt14/full", "en-xx")
