"""Settings of mt-translate, mt-eval and mt-export that conflict, or are missing."""

import re
from typing import Any

import pytest
from support.errors import input_error

from transformer_mt.config import EvaluateJob, ExportJob, TranslateJob
from transformer_mt.registries import EXPORT_FORMATS

LINES: dict[str, Any] = {"model": "m", "format": "jsonl"}
FILES: dict[str, Any] = {"hypotheses": ["a"], "references": ["b"]}
EXPORT: dict[str, Any] = {"model": "x", "format": "hub", "output": "o"}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"input": "-"}, "input=-: leave input out for standard input"),
        ({"format": "text", "alignment": True}, "alignment=true needs format=jsonl"),
        ({"format": "text", "nbest": 2}, "nbest=2 needs format=jsonl"),
        ({"sampling": True, "beam_size": 8}, "beam_size applies to beam search"),
        ({"score": "x", "prefix": "y"}, "prefix cannot be used with score"),
        ({"score": "x", "nbest": 2}, "nbest cannot be used with score"),
        ({"markup": "keep", "alignment": True}, "cannot be used with markup=keep"),
        ({"format": "html", "prefix": "p"}, "lines: it cannot be used with format=html"),
    ],
)
def test_translation(settings: dict[str, Any], message: str) -> None:
    with input_error(re.escape(message)):
        TranslateJob(**{**LINES, **settings})


@pytest.mark.parametrize(
    ("name", "format", "expected"),
    [
        ("a.HTM", "auto", "html"),
        ("a.sdlxliff", "auto", "xliff"),
        ("a.html.gz", "auto", "html"),
        ("a.txt", "auto", None),
        ("a.txt", "html", "html"),
        (None, "auto", None),
        (None, "xliff", "xliff"),
    ],
)
def test_format_of_a_document(name: str | None, format: str, expected: str | None) -> None:
    assert TranslateJob(model="m", input=name, format=format).document_format == expected


MODEL: dict[str, Any] = {"model": "x", "hypotheses": [], "references": []}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"metrics": ["bleu", "bleu"]}, "metrics lists a name twice"),
        ({"metrics": []}, "metrics is empty"),
        ({"hypotheses": ["a", "c", "a"]}, "hypotheses names a file twice"),
        ({"references": ["b", "b"]}, "references names a file twice"),
        ({"hypotheses": [*"abcdef"], "report": "r.html"}, "charts show at most 5 systems, not 6"),
        ({"bootstrap": 39}, "bootstrap=39: 95% intervals need at least 40 resamples (0: none)"),
        ({"metrics": ["paper"]}, "paper depends on the language"),
        ({"metrics": ["ppl"]}, "metrics: ppl is the perplexity of a model: set model=FOLDER"),
        ({"metrics": ["comet"]}, "metrics: comet also reads the source"),
        ({**MODEL, "metrics": ["ppl"], "by_length": True}, "by_length needs another metric"),
        ({**MODEL, "metrics": ["ppl", "comet"], "bootstrap": 0}, "bootstrap needs another metric"),
        ({"testset": "wmt14"}, "testset includes source and references"),
        ({"langs": "en-de"}, "langs needs testset=NAME"),
        ({"references": []}, "hypotheses need references"),
        ({"references": [], "testset": "wmt14"}, "testset=wmt14 exists for several language pairs"),
        ({"beam_size": 2}, "beam_size needs model=FOLDER"),
        ({"compute_type": "int8"}, "compute_type needs model=FOLDER"),
        ({"testset": "valid", "references": []}, "testset=valid needs model=FOLDER"),
        ({**MODEL, "testset": "valid", "langs": "en-de"}, "langs needs testset=NAME"),
        ({"model": "x"}, "set either model=FOLDER"),
        ({**MODEL, "references": ["b"]}, "a model's test set needs both source=FILE"),
    ],
)
def test_evaluation(settings: dict[str, Any], message: str) -> None:
    with input_error(re.escape(message)):
        EvaluateJob(**{**FILES, **settings})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model": ""}, "set model=FOLDER"),
        ({"format": ""}, f"set format={'|'.join(EXPORT_FORMATS)}"),
        ({"output": ""}, "set output=FOLDER"),
        ({"compute_type": "int8"}, "=int8 applies to format=ctranslate2 and argos only"),
    ],
)
def test_export(settings: dict[str, Any], message: str) -> None:
    with input_error(re.escape(message)):
        ExportJob(**{**EXPORT, **settings})
