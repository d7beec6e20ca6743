"""The table of several systems: every number, in 80 columns for the default metrics."""

from transformer_mt.evaluation import score_tables
from transformer_mt.evaluation.comparison import ScoreSettings, TestSet, evaluate_systems
from transformer_mt.evaluation.score_tables import to_text

REFERENCE = ["Zwei Männer sind im Freien.", "Die E-Mail wurde verschickt.", "Er las das Buch."]
SYSTEMS = {
    "runs/transformer_base_seed1.average5.beam4.newstest2014.de": [*REFERENCE[:2], "Er las."],
    "b.de": ["Zwei Männer sind draußen.", "Die Mail ist verschickt.", "Er liest ein Buch."],
}


def test_table_has_every_number_and_fits_a_terminal() -> None:
    test = TestSet(references={"one": REFERENCE, "two": REFERENCE[::-1]})
    metrics = ["bleu", "chrf", "ter", "paper"]
    settings = ScoreSettings(tgt_lang="de", bootstrap=20, metrics=metrics)
    found = evaluate_systems(SYSTEMS, test, settings)
    text = to_text(found)
    lines = [line for line in text.splitlines() if not line.startswith("  nrefs:")]
    assert max(map(len, lines)) <= 80
    for system in found.systems:
        for score in system.scores:
            assert f"│ {score.score:.2f} " in text
            assert f"│ {score.mean:.2f} ± {score.confidence:.2f} " in text
            signature = f"\n{score.name}\n  nrefs:2|bs:20|seed:12345|"
            assert text.count(signature) == 1
    compared = [score for score in found.systems[1].scores if score.difference is not None]
    assert len(compared) == len(metrics)
    for score in compared:
        assert f"│ p {score.p_bootstrap:.4f} " in text
    assert "\n3 segments, 2 references\n" in text
    assert "20 resamples" in text


def test_metrics_of_some_languages_only_have_a_column_in_any_order() -> None:
    """The paper's BLEU is not computed for languages without spaces."""
    languages = {"<2zh>": ("en", "zh"), "<2de>": ("en", "de")}
    for tags in (list(languages), list(languages)[::-1]):
        test = TestSet(
            references={"r": REFERENCE[:2]},
            source=[f"{tag} two men" for tag in tags],
            tags=tags,
            languages=languages,
        )
        settings = ScoreSettings(tgt_lang="de", by_length=True)
        (system,) = evaluate_systems({"a": REFERENCE[:2]}, test, settings).systems
        table = score_tables._length_table(system)
        rows = [[*map(str.strip, line.split("│"))] for line in table.splitlines() if "│" in line]
        column = next(i for row in rows for i, cell in enumerate(row) if "paper" in cell)
        found = {row[1].split()[0]: bool(row[column]) for row in rows if "<2" in row[1]}
        assert found == {"<2de>": True, "<2zh>": False}


def test_star_means_a_significant_difference() -> None:
    lines = [f"Satz Nummer {i} ist kurz." for i in range(40)]
    bad = [line.replace("kurz", "lang") for line in lines]
    test = TestSet(references={"r": lines})
    settings = ScoreSettings(metrics=["chrf"], bootstrap=100)
    text = to_text(evaluate_systems({"bad": bad, "good": lines, "same": bad}, test, settings))
    assert "│ 100.00 *" in text
    assert text.count(" *") == 1 + 1  # the good system, and the note
