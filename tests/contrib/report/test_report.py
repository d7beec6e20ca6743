"""The page without a browser: it is whole, loads nothing, holds what it was given; its parts."""

import base64
import hashlib
import json
import random
import re
from datetime import date
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from support.evaluated_models import scores_and_messages, write_model

from transformer_mt.contrib.report.charts import curve_charts
from transformer_mt.contrib.report.pages import changes, report_page
from transformer_mt.evaluation.comparison import ScoreSettings, TestSet, evaluate_systems
from transformer_mt.training.metrics_log import read_records

REFERENCE = ["Ein Hund läuft.", "Zwei Katzen <b>schlafen</b> & träumen.", "</script>", "Bern"]
ONE = ["Der Hund läuft.", "Zwei Katzen schlafen & träumen.", "</script>", "Bern"]
TWO = ["Ein Hund rennt.", "Katzen <b>schlafen</b>.", "<script>alert(1)</script>", "Bern"]
SOURCE = ["A dog runs.", "Two cats sleep & dream.", "<!--", "Berne"]


def report(systems: dict[str, list[str]], **more: Any) -> str:
    test = TestSet(references={"ref.de": REFERENCE}, source=more.pop("source", None))
    settings = ScoreSettings(metrics=["bleu", "chrf"], bootstrap=50)
    return report_page(evaluate_systems(systems, test, settings), **more)


def scripts(page: str) -> list[tuple[str, str]]:
    """Attributes and content of each."""
    return re.findall("<script(.*?)>(.*?)</script>", page, re.DOTALL)


def shown(page: str) -> str:
    """The text of a page without its scripts, which are at its end."""
    return " ".join(unescape(re.sub("<[^>]*>", " ", page[: page.index("<script")])).split())


def test_one_system() -> None:
    page = report({"one.de": ONE}, source=SOURCE)
    assert "ref.de: 4 segments, 1 reference" in shown(page)
    assert "The 4 of 4 sentences with the lowest sentence chrF2." in shown(page)
    assert '<dd dir="auto"><del>Ein</del> Hund läuft.</dd>' in page  # the reference
    assert '<dd dir="auto"><ins>Der</ins> Hund läuft.</dd>' in page  # the output
    assert "Lowest-scoring sentences" in shown(page)
    assert "paired bootstrap test" not in shown(page)
    data = json.loads(scripts(page)[0][1])
    assert data["source"] == SOURCE
    assert data["references"] == [REFERENCE]
    assert data["systems"][0]["lines"] == ONE
    assert data["systems"][0]["chrf"][3] == 100
    assert page.count("<figure") == 2
    assert "1 of 4 lines" not in shown(page)
    assert report({"one.de": ONE}, source=SOURCE) == page  # at every call


def test_several_systems_with_the_words_that_differ() -> None:
    facts = {"languages": "English → German", "command": "mt-eval '<b>'"}
    page = report({"x/one.de": ONE, "x/two.de": TWO}, facts=facts)
    assert "x/one.de, x/two.de (English → German)" in shown(page)
    assert "command mt-eval '<b>'" in shown(page)
    assert "A x/one.de (baseline) B x/two.de" in shown(page)
    assert "Below it is the difference from A. p is the probability" in shown(page)
    assert re.search(r"[+-]\d+\.\d\d( \*)? \(p 0\.\d{4}\)", shown(page))
    assert "<del>Der</del> Hund <del>läuft.</del></dd>" in page
    assert "<ins>Ein</ins> Hund <ins>rennt.</ins></dd>" in page
    assert "<ins>&lt;script&gt;alert(1)&lt;/script&gt;</ins>" in page
    assert page.count("<article>") == 3  # the fourth line is the same in both
    assert page.count("<figure") == 2


def test_the_page_loads_nothing_and_lets_only_its_own_script_run() -> None:
    page = report({"one.de": ONE, "two.de": TWO})
    elements = re.findall(r"<([a-z]\w*)\b(.*?)>", page[: page.index("<script")], re.DOTALL)
    assert len(elements) > 100
    for tag, attributes in elements:
        assert tag not in ("img", "iframe", "object", "embed", "link", "a", "base", "form")
        assert not re.search(r"""\s(xlink:)?(src|href)=["'](?!#)|\son\w+=""", attributes)
    (code,) = (text for attributes, text in scripts(page) if "type" not in attributes)
    digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    assert re.findall('<meta http-equiv.*? content="(.*?)"', unescape(page)) == [policy]
    identifiers = re.findall(r'\sid="(.*?)"', page)
    assert len(identifiers) == len(set(identifiers))


def test_curves_of_a_run(tmp_path: Path) -> None:
    records = [
        {"step": 10 * i, "split": "train", "loss": 5.0 / i, "ppl": 90.0, "lr": 1e-3}
        for i in range(1, 5)
    ]
    records.append({"step": 20, "split": "valid", "loss": 4.5, "ppl": float("inf"), "bleu": 12.5})
    lines = [json.dumps(record) for record in records]
    text = "\n".join([*lines, '{"step": 30, "spl'])
    (tmp_path / "metrics.jsonl").write_text(text, encoding="utf-8")
    assert read_records(tmp_path) == records
    charts = curve_charts(read_records(tmp_path))
    assert [(chart.title, chart.legend) for chart in charts] == [
        ("Loss", ["training", "validation"]),
        ("Perplexity", ["training"]),
        ("Learning rate", ["training"]),
    ]
    assert all(re.match(r"<svg.*</svg>\s*$", chart.svg, re.DOTALL) for chart in charts)
    page = report({"one.de": ONE}, curves=records)
    assert "Training" in shown(page)
    assert read_records(tmp_path / "nothing") == []


@pytest.mark.parametrize("seed", range(20))
def test_changes_keep_both_texts(seed: int) -> None:
    draw = random.Random(seed)
    old, new = (draw.choices("abc", k=draw.randint(0, 300)) for _ in range(2))
    found = changes(" ".join(old), " ".join(new))
    for text, other in ((old, "only_new"), (new, "only_old")):
        assert " ".join(c.text for c in found if c.kind != other).split() == text


def test_mt_eval_writes_what_it_prints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = write_model(tmp_path / "model")
    records = [{"step": 10 * i, "split": "train", "loss": 1.0 / i} for i in range(1, 5)]
    (model / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in records))
    path = tmp_path / "report.html"
    rows, err = scores_and_messages(capsys, model=str(model), report=str(path), bootstrap=40)
    assert err == f"mt-eval: wrote {path}\n"
    html = path.read_text(encoding="utf-8")
    for row in rows:
        assert f"<b>{row['score']:.2f}</b>" in html
        assert f"</b> ± {row['confidence_var']:.2f}" in html
    for fact in ("beam search with ", "<dt>command</dt>", f"<dd>{date.today()}</dd>", " → "):
        assert fact in html
    assert "<figcaption>Loss</figcaption>" in html
