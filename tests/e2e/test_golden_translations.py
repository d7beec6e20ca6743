"""The committed model folder translates as on the day on which it was trained.

``fixtures/model`` has a model folder of format 2. It was trained on 2026-11-20 with the recipe of
``support.training_runs`` for 400 updates. Later versions must read it, or raise the number of the
format and say so in the CHANGELOG.
"""

import json
from pathlib import Path

import pytest
from support.model_folders import open_translator

from transformer_mt.decode import translator

FOLDER = Path(__file__).parent / "fixtures/model"


def test_translations_are_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    # Only its targets have capitals, which are not the usual case of its sources.
    monkeypatch.setattr(translator, "usual_case", lambda text, *_: text)
    expected = json.loads((FOLDER / "translations.json").read_text(encoding="utf-8"))
    found = open_translator(FOLDER).translate_nbest(list(expected), 1)
    # Our own output, on purpose: the test is that it does not change.
    for (best,), (text, score) in zip(found, expected.values(), strict=True):
        assert best.text == text
        assert best.score == pytest.approx(score, abs=1e-4)
