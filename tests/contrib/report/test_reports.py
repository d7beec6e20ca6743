"""The files that mt-eval writes for ``report`` and ``attention``, and what it prints."""

import json
from datetime import date
from pathlib import Path

import pytest
from support.evaluated_models import scores_and_messages, write_model
from support.models import make_translator

from transformer_mt import model_folder
from transformer_mt.cli import main as commands
from transformer_mt.config import EvaluateJob
from transformer_mt.data.text.normalization import Normalizer


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_model(tmp_path / "model")


def test_a_report_of_a_model(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = [{"step": 10 * i, "split": "train", "loss": 1.0 / i} for i in range(1, 5)]
    (model / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in records))
    path = tmp_path / "report.html"
    rows, _ = scores_and_messages(
        capsys, model=str(model), report=str(path), attention="It is <b>.", bootstrap=40
    )
    html = path.read_text(encoding="utf-8")
    for row in rows:
        assert f"<b>{row['score']:.2f}</b>" in html
        assert f"</b> ± {row['confidence_var']:.2f}" in html
    for fact in ("beam search with ", "<dt>command</dt>", f"<dd>{date.today()}</dd>", " → "):
        assert fact in html
    assert "<figcaption>Loss</figcaption>" in html
    assert "It is &lt;b&gt;." in html


@pytest.mark.parametrize("name", ["a.html", "a.png"])
def test_attention_without_report_scores_nothing(
    name: str, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, sentence = tmp_path / name, "It's <b>$x$</b>."
    settings = {"model": str(model), "device": "cpu", "attention_output": str(path)}
    commands.evaluate(EvaluateJob(attention=sentence, **settings))
    network, tokenizer, job = model_folder.load_model(model)
    translator = make_translator(network, tokenizer, job.decode, Normalizer.of(job.data))
    out, err = capsys.readouterr()
    assert out == translator.translate([sentence])[0] + "\n"
    assert err == f"mt-eval: wrote {path}\n"
    content = path.read_bytes()
    is_image = content.startswith(b"\x89PNG")
    assert is_image == (name == "a.png")
    assert is_image or b"It&#39;s &lt;b&gt;$x$&lt;/b&gt;." in content
