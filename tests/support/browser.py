"""Pages in headless Chromium, once their scripts have run."""

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
CHROMIUM = next((found for name in NAMES if (found := shutil.which(name))), None)
needs_browser = pytest.mark.skipif(
    CHROMIUM is None, reason=f"no browser ({', '.join(NAMES)}): apt-get install chromium"
)
HELPERS = """
const texts = (selector, of = x => x.textContent) =>
  [...document.querySelectorAll(selector)].map(of);
const set = (selector, value, event = 'change') => {  // as a reader does
  const box = document.querySelector(selector);
  box.value = value;
  box.dispatchEvent(new Event(event));
};
const later = () => new Promise(done => setTimeout(done, 500));
"""


def rendered(page: Path) -> tuple[str, list[str]]:
    """The document after its scripts have run, and the messages on the console."""
    assert CHROMIUM is not None
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    flags += [f"--user-data-dir={page.parent}/profile", "--window-size=1200,900"]
    flags += ["--virtual-time-budget=60000", "--enable-logging=stderr", "--dump-dom"]
    done = subprocess.run(
        [CHROMIUM, *flags, page.as_uri()], capture_output=True, check=True, timeout=120
    )
    messages = done.stderr.decode(errors="replace").splitlines()
    return done.stdout.decode(), [line for line in messages if "CONSOLE" in line]


def run(page: Path, script: str) -> Any:
    """What an asynchronous function of JavaScript returns in a page, without the page's policy."""
    show = "x => document.title = JSON.stringify(x ?? null)"
    code = f"{HELPERS}(async () => {{{script}}})().catch(String).then({show})"
    text = re.sub("<meta http-equiv[^>]*>", "", page.read_text(encoding="utf-8"))
    changed = page.with_name(f"changed {page.name}")
    changed.write_text(f"{text}<script>{code}</script>", encoding="utf-8")
    document, _ = rendered(changed)
    (title,) = re.findall("<title>(.*?)</title>", document, re.DOTALL)
    return json.loads(html.unescape(title))
