"""The page to try a model on: the lines of a model card, in headless Chromium."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from support.browser import Browser, needs_browser
from support.polling import wait_until

from transformer_mt import Translator
from transformer_mt.jobs.model_card import write_model_card

pytestmark = [
    needs_browser,
    pytest.mark.skipif(find_spec("gradio") is None, reason="gradio is not installed"),
]
FIXTURE = Path(__file__).parent / "fixtures/run_2_3"
LINES = ["a b c", "", "h g f e d"]

TRANSLATE = """new Promise(resolve => {
  const poll = setInterval(() => {
    const [input, output] = document.querySelectorAll('textarea');
    const button = [...document.querySelectorAll('button')].find(b => b.textContent.trim() === 'Submit');
    if (output && output.value) { clearInterval(poll); resolve(output.value); }
    else if (output && button && !input.value) {
      input.value = TEXT;
      input.dispatchEvent(new Event('input', {bubbles: true}));
      setTimeout(() => button.click(), 200);
    }
  }, 200);
})"""  # noqa: E501


def lines_of(page: Path) -> str:
    """The block of code of a page that imports gradio."""
    blocks = re.findall(r"^```py(?:thon)?\n(.*?)^```", page.read_text("utf-8"), re.M | re.DOTALL)
    (lines,) = (block for block in blocks if "import gradio" in block)
    return str(lines)


def test_a_page_translates(tmp_path: Path) -> None:
    model = shutil.copytree(FIXTURE, tmp_path / "quickstart")
    write_model_card(model, None)
    code = lines_of(model / "README.md")
    assert 'title="English → German"' in code
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    env = {**os.environ, "GRADIO_SERVER_PORT": str(port), "GRADIO_ANALYTICS_ENABLED": "False"}
    with (tmp_path / "log").open("w") as log:
        server = subprocess.Popen(
            [sys.executable, "-c", code], cwd=tmp_path, env=env, stdout=log, stderr=log
        )
    try:
        wait_until(lambda: server.poll() or not socket.socket().connect_ex(("127.0.0.1", port)))
        assert server.poll() is None, (tmp_path / "log").read_text()
        browser = Browser(tmp_path / "profile")
        try:
            browser.open(f"http://127.0.0.1:{port}")
            shown = browser.run(TRANSLATE.replace("TEXT", json.dumps("\n".join(LINES))))
        finally:
            browser.close()
    finally:
        server.kill()
        server.wait()
    assert shown.split("\n") == Translator.load(model).translate(LINES)
