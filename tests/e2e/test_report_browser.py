"""The pages of ``mt-eval`` in headless Chromium: they work, and text from files stays text."""

import json
import random
from pathlib import Path

import pytest
import torch
from support.browser import needs_browser, rendered, run

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


def attention(sentence: str, src: list[str], tgt: list[str]) -> Attention:
    """Two layers of three heads with weights drawn at random, each row adding up to one."""
    torch.manual_seed(1)

    def weights(name: str, queries: list[str], keys: list[str]) -> Weights:
        shape = 2, 3, len(queries), len(keys)  # layers, heads
        layers = (torch.rand(shape).softmax(-1) * 1000).round().int().flatten(2).tolist()
        return Weights(name, "attending (predicted) token", layers, queries, keys)

    kinds = [
        weights("cross", tgt[1:], src),
        weights("decoder", tgt[1:], tgt[:-1]),
        weights("encoder", src, src),
    ]
    return Attention(sentence, " ".join(tgt[1:]), kinds)


LINES = 130
NAMES = [f"/x/{HOSTILE[3]}.de", HOSTILE[2]]
"""Of the systems: their paths."""


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
        dict(zip(NAMES, (one, two), strict=True)),
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


SENTENCES = """
const shown = () => texts("#sentences dt:first-child", x => Number(x.textContent));
const search = async text => { set("input[type=search]", text, "input"); await later(); };
const place = () => texts("[data-part=place]");
"""


def test_report_renders_and_html_in_sentences_is_escaped(report: Path) -> None:
    document, complaints = rendered(report)
    assert complaints == []
    assert f"1–50 of {LINES}" in document  # its script may run
    found = run(
        report,
        """return {
          headings: texts("h1"), sections: texts("h2").length, title: document.title,
          heights: texts("figure svg", x => x.getBoundingClientRect().height),
          strange: texts("img, a, iframe, object, link").length,
          cells: texts("#sentences dl", x => [...x.querySelectorAll("dd")].map(y => y.textContent)),
        }""",
    )
    assert found["sections"] == 5
    assert len(found["heights"]) == 2 + 3
    assert min(found["heights"]) > 50
    assert [found["title"]] == found["headings"] == [", ".join(NAMES)]
    assert found["strange"] == 0
    assert [cell[:2] for cell in found["cells"][: len(HOSTILE)]] == [[line] * 2 for line in HOSTILE]
    assert found["cells"][0][2] == HOSTILE[0] + " needle"


def test_search_finds_and_highlights_sentences_which_have_pages(report: Path) -> None:
    queries = ["needle", "I", "<script>document", "not there at all", ""]
    steps = f"""{SENTENCES}
      const found = [];
      for (const query of {json.dumps(queries)}) {{
        await search(query);
        found.push([shown(), texts("mark"), texts("#sentences dd"), place()[0],
                    texts("#sentences :is(b, a, img, script)").length]);
      }}
      const next = document.querySelector("[data-part=next]"), pages = [];
      for (let i = 0; i < 3; i++) {{
        pages.push([shown(), place(), next.disabled]);
        next.click();
      }}
      return [found, pages];"""
    found, pages = run(report, steps)
    needle, letter, script, nothing, everything = found
    assert needle[:2] == [[1, 78], ["needle", "NEEDLE"]]
    assert letter[0] == [*range(1, len(HOSTILE) + 1), 78]
    assert letter[2][:36:4] == HOSTILE  # as they were, marks or not
    assert script[0] == [1, 2]
    assert (nothing[0], nothing[3]) == ([], "0")
    assert everything[0] == list(range(1, 51))
    assert [strange for *_, strange in found] == [0] * len(queries)
    assert [line for lines, *_ in pages for line in lines] == list(range(1, LINES + 1))
    assert pages[0][1:] == [[f"1–50 of {LINES}"], False]
    assert pages[2][1:] == [[f"101–{LINES} of {LINES}"], True]


def test_attention_page_shows_every_weight(tmp_path: Path) -> None:
    src, tgt = ["▁It", "'s", "▁", "<b>", "</s>"], ["<s>", "▁Es", "▁ist", "</s>"]
    shown = attention(HOSTILE[1], src, tgt)
    path = tmp_path / "attention.html"
    path.write_text(page(shown), encoding="utf-8")
    document, complaints = rendered(path)
    assert complaints == []
    assert 'class="cell"' in document  # its script may run
    choices = [(kind, *each) for kind in range(3) for each in ((0, 0), (1, 2))]
    steps = f"""
      const found = [texts("main > p.text")[0]];
      for (const [kind, layer, head] of {json.dumps([*choices, (2, 1, -1)])}) {{
        set("[data-choose=kind]", kind);
        set("[data-choose=layer]", layer);
        set("[data-choose=head]", head);
        found.push([texts("[data-part=drawing] text:not(.axis)"),
                    texts(".cell", x => Number(getComputedStyle(x).fillOpacity))]);
      }}
      return found;"""
    sentence, *drawings, (_, mean) = run(path, steps)
    assert sentence == HOSTILE[1]
    for (number, layer, head), (labels, colours) in zip(choices, drawings, strict=True):
        kind = shown.kinds[number]
        assert labels == [x.strip("▁") or "␣" for x in (*kind.keys, *kind.queries)]
        expected = [weight / 1000 for weight in kind.layers[layer][head]]
        assert colours == pytest.approx(expected, abs=1e-3)
    expected = [sum(heads) / 3000 for heads in zip(*shown.kinds[2].layers[1], strict=True)]
    assert mean == pytest.approx(expected, abs=2e-3)
