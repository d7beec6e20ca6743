"""The report that mt-eval writes, and that it holds what is printed."""

import json
from datetime import date
from pathlib import Path

import pytest
from support.evaluated_models import scores_and_messages, write_model


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_model(tmp_path / "model")


def test_a_report_of_a_model(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
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
