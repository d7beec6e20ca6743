"""Noisy sources, the scores of a model on them, and their table, tag by tag."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest
from support.evaluated_models import (
    REFERENCE,
    SOURCE,
    Json,
    by_hand,
    reserve_tag,
    scores_and_messages,
    write_lines,
    write_model,
)
from support.models import make_translator

from transformer_mt import evaluate, evaluate_robustness, model_folder
from transformer_mt.cli import main as commands
from transformer_mt.config import EvaluateJob
from transformer_mt.contrib.robustness.noise import NOISES
from transformer_mt.contrib.robustness.noise_scores import (
    CLEAN,
    noisy_sources,
)
from transformer_mt.data.text.normalization import Normalizer
from transformer_mt.errors import InputError
from transformer_mt.evaluation.comparison import TestSet


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_model(tmp_path / "model")


@pytest.fixture
def scores(model: Path, capsys: pytest.CaptureFixture[str]) -> Json:
    """The JSON that the command prints, and its messages."""
    return partial(scores_and_messages, capsys, model=str(model), robustness=True)


def test_tags_and_unknown_tags() -> None:
    source = ["<2de> a man .", "<2de>a man .", "<2fr> a man .", "", "<2de>"]
    test = TestSet(references={}, source=source, tags={"<2de>", ">>fra<<"})
    sources = noisy_sources(test.split_source())
    assert [*sources] == [CLEAN, *NOISES]
    assert sources[CLEAN][1] == "<2de> a man ."
    assert sources["upper_case"][:3] == ["<2de> A MAN .", "<2de> A MAN .", "<2FR> A MAN ."]
    for lines in sources.values():
        assert len(lines) == len(source)
        assert all(line.startswith("<2de> ") for line in (lines[0], lines[1], lines[4]))
        assert lines[3] == ""


def test_robustness_is_the_score_of_each_noisy_source(model: Path, scores: Json) -> None:
    network, tokenizer, job = model_folder.load_model(model)
    translator = make_translator(network, tokenizer, job.decode, Normalizer.of(job.data))
    found, err = scores(engine="torch")
    assert [row["noise"] for row in found] == ["clean", *NOISES]
    clean = by_hand(translator.translate(SOURCE), REFERENCE)
    assert err == ""
    for row in found:
        source = SOURCE
        if noise := NOISES.get(row["noise"]):
            source = [noise(line, np.random.default_rng([6, i])) for i, line in enumerate(SOURCE)]
        assert row["changed"] == sum(a != b for a, b in zip(source, SOURCE, strict=True))
        assert [score["name"] for score in row["scores"]] == ["BLEU", "chrF2"]
        expected = by_hand(translator.translate(source), REFERENCE)
        for score, own, before in zip(row["scores"], expected, clean, strict=False):
            assert (score["score"], score["segments"]) == (own, len(SOURCE))
            assert score["signature"].startswith("nrefs:1|")
            difference = pytest.approx(own - before, abs=2e-4) if noise else None
            assert score.get("difference") == difference
    assert found[1]["scores"][1]["difference"] != 0  # else this shows nothing
    found, _ = scores(metrics=["ter"])
    assert {tuple(score["name"] for score in row["scores"]) for row in found} == {("TER",)}


def test_robustness_is_one_table(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = evaluate_robustness(EvaluateJob(model=str(model), robustness=True))
    commands.evaluate(EvaluateJob(model=str(model), robustness=True, device="cpu"))
    with pytest.raises(InputError, match="call evaluate_robustness instead of evaluate"):
        evaluate(EvaluateJob(model=str(model), robustness=True))
    assert capsys.readouterr().out == f"{rows.to_text()}\n"


def test_robustness_counts_the_lines_of_each_tag(model: Path, tmp_path: Path, scores: Json) -> None:
    reserve_tag(model, "<2en>")
    lines = ["<2en> It is 3.5 km.", "Bern", "<2en> Bern", "<2en> BERN"]
    source, reference = write_lines(tmp_path / "tagged", lines), str(tmp_path / "ref")
    found, _ = scores(source=source, references=[reference])
    assert [row["noise"] for row in found] == ["clean", *NOISES] * 2
    counts = {
        row["scores"][0].get("tag", ""): (row["changed"], row["scores"][0]["segments"])
        for row in found
        if row["noise"] == "upper_case"
    }
    assert counts == {"<2en>": (2, 3), "": (1, 1)}
    assert all("difference" in score for row in found[1:7] for score in row["scores"])
