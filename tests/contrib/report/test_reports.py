"""The files that mt-eval writes for ``report`` and ``attention``, and what it prints."""

import json
import os
import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest
from support.evaluated_models import reserve_tag, scores_and_messages, write_model
from support.models import make_translator
from support.paths import ROOT

from transformer_mt import Evaluator, model_folder
from transformer_mt.cli import main as commands
from transformer_mt.config import EvaluateJob
from transformer_mt.contrib.report.attention import compute_attention
from transformer_mt.data.text.normalization import Normalizer


def test_charts_say_nothing_about_a_home_that_cannot_be_written() -> None:
    places = ("MPLCONFIGDIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME")
    environment = {key: value for key, value in os.environ.items() if key not in places}
    done = subprocess.run(
        [sys.executable, "-c", "import transformer_mt.contrib.report.charts"],
        env={**environment, "HOME": "/proc/none", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""


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


def test_attention_of_a_sentence_with_a_tag(model: Path, tmp_path: Path) -> None:
    reserve_tag(model, "<2de>")
    settings = {"model": str(model), "device": "cpu", "attention_output": str(tmp_path / "a.html")}
    jobs = {"attention": "Bern", "tag": "<2de>"}, {"attention": "<2de> Bern"}
    given, written = (compute_attention(Evaluator(EvaluateJob(**settings, **job))) for job in jobs)
    assert given.kinds[0].keys[0] == "<2de>"
    assert (given.sentence, given.translation) == (written.sentence, written.translation)
