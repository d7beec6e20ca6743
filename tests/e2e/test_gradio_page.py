"""The page to try a model on: the lines of a model card, with a stand-in for Gradio."""

import re
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from transformer_mt import Translator
from transformer_mt.jobs.model_card import write_model_card

FIXTURE = Path(__file__).parent / "fixtures/run_2_3"
LINES = ["a b c", "", "h g f e d"]


def test_a_page_translates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pages: list[Any] = []

    def interface(translate: Any, source: str, target: str, **settings: str) -> SimpleNamespace:
        assert (source, target, settings["title"]) == ("English", "German", "English → German")
        return SimpleNamespace(launch=lambda: pages.append(translate))

    gradio = SimpleNamespace(Interface=interface, Textbox=lambda label, lines: label)
    monkeypatch.setitem(sys.modules, "gradio", gradio)
    monkeypatch.chdir(tmp_path)
    model = shutil.copytree(FIXTURE, tmp_path / "quickstart")
    write_model_card(model, None)
    card = (model / "README.md").read_text("utf-8")
    blocks = re.findall(r"^```py(?:thon)?\n(.*?)^```", card, re.M | re.DOTALL)
    exec(next(block for block in blocks if "import gradio" in block), {})
    (translate,) = pages
    assert translate("\n".join(LINES)).split("\n") == Translator.load(model).translate(LINES)
