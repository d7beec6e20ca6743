"""The HTML report of ``mt-eval``, and how each page is made from its template.

A page is one file that needs no network and no server.

The templates escape text from files, and the scripts insert it as text only. The page's content
security policy allows only these scripts to run, and nothing to be loaded.
"""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from importlib import resources
from string import ascii_uppercase
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined

from transformer_mt import Evaluation
from transformer_mt.contrib.report import charts

DIFFERENCES = 30
"""Number of sentences shown with marked differences; all others can be searched and sorted."""


class Change(NamedTuple):
    """A run of words in the comparison of two texts."""

    kind: str
    """``same``, ``only_old`` or ``only_new``."""
    text: str


def report_page(
    evaluation: Evaluation,
    *,
    facts: Mapping[str, str] | None = None,
    curves: Sequence[dict[str, Any]] = (),
) -> str:
    """The report of at most five systems, the colours of a chart.

    Args:
        evaluation: The scores.
        facts: How they were obtained, by name; ``languages`` is in the title.
        curves: The records of a run's ``metrics.jsonl``.
    """
    systems = evaluation.systems
    letters = ascii_uppercase[: len(systems)]
    segments, facts = len(systems[0].hypotheses), dict(facts or {})
    languages = f" ({facts.pop('languages')})" if "languages" in facts else ""
    # Not BLEU, which is not meaningful for a single sentence.
    chrf = evaluation.settings.metric("chrf")
    references = list(zip(*evaluation.test.references.values(), strict=True))
    scores = [
        [
            float(chrf.sentence_score(h, r).score)
            for h, r in zip(s.hypotheses, references, strict=True)
        ]
        for s in systems
    ]
    return render(
        "report.html",
        "sentences.js",
        title=", ".join(system.name for system in systems) + languages,
        facts=facts,
        evaluation=evaluation,
        systems=list(zip(letters, systems, strict=True)),
        segments=segments,
        signatures=[(score.label, score.signature) for score in systems[0].scores],
        group_charts=charts.group_charts(evaluation),
        curve_charts=charts.curve_charts(curves),
        differences=_differences(evaluation, letters, scores),
        sentences=_sentences(evaluation, letters, scores),
    )


def render(template: str, script: str, **values: Any) -> str:
    """A page from a template and the one script that may run in it, files of ``templates/``."""
    folder = resources.files("transformer_mt.contrib.report") / "templates"
    text = (folder / script).read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    environment = Environment(
        loader=PackageLoader("transformer_mt.contrib.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # tojson escapes <, >, & and ' despite these options: no text can end its script element.
    environment.policies["json.dumps_kwargs"] = {"ensure_ascii": False, "separators": (",", ":")}
    page = environment.get_template(template)
    return page.render(script=text, policy=f"'sha256-{digest}'", **values)


def changes(old: str, new: str) -> list[Change]:
    """Word-by-word difference of two texts, from left to right."""
    before, after = old.split(), new.split()
    result = []
    for kind, i, j, k, m in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if kind == "equal":
            result.append(Change("same", " ".join(after[k:m])))
            continue
        if i < j:
            result.append(Change("only_old", " ".join(before[i:j])))
        if k < m:
            result.append(Change("only_new", " ".join(after[k:m])))
    return result


def _differences(
    evaluation: Evaluation, letters: str, scores: list[list[float]]
) -> list[dict[str, Any]]:
    """The sentences with the lowest chrF, marked against the reference; for several systems those
    that differ most in chrF from the baseline, marked against the baseline.
    """
    first = scores[0]
    if len(scores) == 1:
        order = sorted(range(len(first)), key=lambda i: first[i])
    else:
        gaps = [max(abs(s[i] - first[i]) for s in scores[1:]) for i in range(len(first))]
        order = sorted((i for i, gap in enumerate(gaps) if gap > 0), key=lambda i: -gaps[i])
    references = list(evaluation.test.references.values())
    differences = []
    for i in order[:DIFFERENCES]:
        texts = [system.hypotheses[i] for system in evaluation.systems]
        if len(texts) == 1:
            texts.insert(0, references[0][i])
        marked = [_side(texts[0], text, "only_new") for text in texts]
        if len(texts) == 2:  # else these words would not be the same for all systems
            marked[0] = _side(texts[0], texts[1], "only_old")
        outputs = marked[-len(scores) :]
        source = evaluation.test.source
        differences.append(
            {
                "line": i + 1,
                "source": None if source is None else source[i],
                "references": [
                    marked[0] if len(scores) == 1 and n == 0 else [Change("same", lines[i])]
                    for n, lines in enumerate(references)
                ],
                "versions": list(zip(letters, [s[i] for s in scores], outputs, strict=True)),
            }
        )
    return differences


def _side(old: str, new: str, kind: str) -> list[Change]:
    """One of two texts, whole, with the words marked that the other lacks."""
    return [change for change in changes(old, new) if change.kind in ("same", kind)]


def _sentences(evaluation: Evaluation, letters: str, scores: list[list[float]]) -> dict[str, Any]:
    """All sentences with their sentence chrF, as data for the page's script."""
    rated = zip(letters, evaluation.systems, scores, strict=True)
    return {
        "source": None if evaluation.test.source is None else list(evaluation.test.source),
        "references": [list(lines) for lines in evaluation.test.references.values()],
        "systems": [
            {
                "letter": letter,
                "lines": list(system.hypotheses),
                "chrf": [round(score, 1) for score in chrf],
            }
            for letter, system, chrf in rated
        ],
    }
