"""The pages of ``mt-eval`` in headless Chromium: they work, and text from files stays text."""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from support.browser import Browser, needs_browser

from transformer_mt.contrib.report.attention import Attention, Weights, page
from transformer_mt.contrib.report.pages import report_page
from transformer_mt.evaluation.comparison import ScoreSettings, TestSet, evaluate_systems

pytestmark = needs_browser

HOSTILE = [
    "<script>document.title = 'broken'</script>",
    "</script><script>document.title = 'broken'</script>",
    "<img src=x onerror=\"document.title = 'broken'\">",
    "<!-- <script> a comment that opens a script",
    "{{ 7 * 7 }} {% raw %} ${7 * 7} `tick`",
    "'\"><svg/onload=alert(1)> &lt;b&gt; &amp; i",
    "right to left \u202e override, \u2028 line \u2029 and paragraph",
    "$\\frac{a}{b}$ \\u003c %s \x00 \x1b[31m i",
    "<b>bold</b> <a href='javascript:alert(1)'>a link</a> https://example.org/",
]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    opened = Browser(tmp_path_factory.mktemp("profile"))
    yield opened
    opened.close()


def attention(sentence: str, src: list[str], tgt: list[str]) -> Attention:
    """Two layers of three heads with weights drawn at random, each row adding up to one."""
    torch.manual_seed(1)

    def weights(name: str, queries: list[str], keys: list[str]) -> Weights:
        layers = [torch.rand(3, len(queries), len(keys)).softmax(-1) for _ in range(2)]
        return Weights(name, "attending (predicted) token", layers, queries, keys)

    kinds = [
        weights("cross", tgt[1:], src),
        weights("decoder", tgt[1:], tgt[:-1]),
        weights("encoder", src, src),
    ]
    return Attention(sentence, " ".join(tgt[1:]), kinds)


LINES = 130
NAMES = [f"{HOSTILE[3]}.de", HOSTILE[2]]
"""Of the systems; the ends of their paths."""
PLACE = "[data-part=place]"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report on two systems, every text of which holds something hostile."""
    draw = random.Random(1)
    texts = [
        [f"{kind} {i} {' '.join(draw.choices('abcdefgh', k=6))}" for i in range(LINES)]
        for kind in ("src", "ref", "one", "two")
    ]
    for lines in texts:
        lines[: len(HOSTILE)] = HOSTILE
    texts[2][0] += " needle"
    texts[3][77] = "Ein NEEDLE im Heu"
    source, reference, one, two = texts
    found = evaluate_systems(
        dict(zip((f"/x/{name}" for name in NAMES), (one, two), strict=True)),
        TestSet(references={HOSTILE[1]: reference}, source=source),
        ScoreSettings(bootstrap=50, metrics=["bleu", "chrf"]),
    )
    curves = [
        {"step": 10 * i, "split": split, "loss": 5 / i, "ppl": 90 / i, "lr": 0.001}
        for i in range(1, 9)
        for split in ("train", "valid")
    ]
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(report_page(found, curves=curves), encoding="utf-8")
    return path


def texts(browser: Browser, selector: str, text: str = "x.textContent") -> list[Any]:
    """What an expression says of each element."""
    found: list[Any] = browser.run(
        f"[...document.querySelectorAll({json.dumps(selector)})].map(x => {text})"
    )
    return found


def shown(browser: Browser) -> list[int]:
    """The line numbers in the list of all sentences."""
    return texts(browser, "#sentences dt:first-child", "Number(x.textContent)")


def choose(browser: Browser, selector: str, value: int | str, event: str = "change") -> None:
    """Sets the value of a box as a reader does."""
    browser.run(
        f"""(() => {{
          const box = document.querySelector('{selector}');
          box.value = {json.dumps(str(value))};
          box.dispatchEvent(new Event('{event}'));
        }})()"""
    )


def search(browser: Browser, text: str) -> list[int]:
    choose(browser, "input[type=search]", text, "input")
    browser.run("new Promise(done => setTimeout(done, 400))")
    return shown(browser)


def test_report_renders_and_html_in_sentences_is_escaped(browser: Browser, report: Path) -> None:
    browser.emulate(width=1200)
    browser.open(report)
    assert len(texts(browser, "h2")) == 5
    sizes = texts(browser, "figure svg", "x.getBoundingClientRect().height")
    assert len(sizes) == 2 + 3
    assert min(sizes) > 50
    assert browser.run("document.title") == ", ".join(NAMES)
    assert texts(browser, "h1") == [", ".join(NAMES)]
    assert texts(browser, "img, a, iframe, object, link") == []
    assert len(texts(browser, "script")) == 2  # one that runs, and one of data
    cells = texts(browser, "#sentences dl", "[...x.querySelectorAll('dd')].map(y => y.textContent)")
    assert [cell[:2] for cell in cells[: len(HOSTILE)]] == [[line, line] for line in HOSTILE]
    assert cells[0][2] == HOSTILE[0] + " needle"
    assert browser.complaints() == []


def test_search_finds_and_highlights_sentences(browser: Browser, report: Path) -> None:
    browser.open(report)
    assert shown(browser) == list(range(1, 51))
    assert search(browser, "needle") == [1, 78]
    assert texts(browser, "mark") == ["needle", "NEEDLE"]
    assert search(browser, "I") == [*range(1, len(HOSTILE) + 1), 78]
    assert texts(browser, "#sentences dd")[:36:4] == HOSTILE  # as they were, marks or not
    assert texts(browser, "#sentences :is(b, a, img, script)") == []
    assert search(browser, "<script>document") == [1, 2]
    assert search(browser, "not there at all") == []
    assert texts(browser, PLACE) == ["0"]
    assert search(browser, "") == list(range(1, 51))


def test_paging(browser: Browser, report: Path) -> None:
    browser.open(report)
    seen = shown(browser)
    assert texts(browser, PLACE) == [f"1–50 of {LINES}"]
    for _ in range(2):
        browser.run("document.querySelector('[data-part=next]').click()")
        seen += shown(browser)
    assert seen == list(range(1, LINES + 1))
    assert texts(browser, PLACE) == [f"101–{LINES} of {LINES}"]
    assert browser.run("document.querySelector('[data-part=next]').disabled")


def test_attention_page_shows_every_weight(browser: Browser, tmp_path: Path) -> None:
    src, tgt = ["▁It", "'s", "▁", "<b>", "</s>"], ["<s>", "▁Es", "▁ist", "</s>"]
    shown_ = attention(HOSTILE[1], src, tgt)
    (tmp_path / "attention.html").write_text(page(shown_), encoding="utf-8")
    browser.emulate(width=1200)
    browser.open(tmp_path / "attention.html")
    assert texts(browser, "main > p.text")[0] == HOSTILE[1]
    for number, kind in enumerate(shown_.kinds):
        choose(browser, "[data-choose=kind]", number)
        maps, queries, keys = kind.layers, kind.queries, kind.keys
        for layer, head in ((0, 0), (1, 2)):
            choose(browser, "[data-choose=layer]", layer)
            choose(browser, "[data-choose=head]", head)
            labels = texts(browser, "[data-part=drawing] text:not(.axis)")
            keys, queries = ([x.strip("▁") or "␣" for x in side] for side in (keys, queries))
            assert labels == [*keys, *queries]
            colours = texts(browser, ".cell", "Number(getComputedStyle(x).fillOpacity)")
            assert colours == pytest.approx(maps[layer][head].flatten().tolist(), abs=1e-3)
    choose(browser, "[data-choose=head]", -1)
    mean = float(shown_.kinds[2].layers[1][:, 0, 0].mean())
    (shade, *_) = texts(browser, ".cell", "Number(getComputedStyle(x).fillOpacity)")
    assert shade == pytest.approx(mean, abs=2e-3)
    assert browser.complaints() == []
