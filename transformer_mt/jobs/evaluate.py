"""Evaluation of a model folder, or of files of hypotheses and references."""

import json
import logging
import shlex
import sys
from dataclasses import replace
from datetime import date
from pathlib import Path
from pkgutil import resolve_name

from transformer_mt import files
from transformer_mt.config import EvaluateJob
from transformer_mt.config.evaluate import OWN_SETS
from transformer_mt.config.languages import language_name
from transformer_mt.console import progress_bar
from transformer_mt.data.held_out import with_written_sets
from transformer_mt.data.text.lines import read_lines
from transformer_mt.data.text.sources import read_pairs, testset_files
from transformer_mt.data.text.tags import UNTAGGED, tag_names, untagged
from transformer_mt.decode.engine import EngineRequest
from transformer_mt.decode.translator import Translator
from transformer_mt.errors import InputError
from transformer_mt.evaluation.comparison import (
    Evaluation,
    ScoreSettings,
    System,
    TestSet,
    evaluate_systems,
)
from transformer_mt.evaluation.scores import Score, check_line_counts
from transformer_mt.evaluation.source_metrics import comet_command
from transformer_mt.jobs.line_processor import CHUNK_LINES, check_output
from transformer_mt.registries import REPORT, SOURCE_METRICS
from transformer_mt.training.metrics_log import read_records

log = logging.getLogger(__name__)


def evaluate(job: EvaluateJob, test: TestSet | None = None) -> Evaluation:
    """Scores a model on a test set, or files of translations; writes the report of the job, if any.

    Args:
        job: What to score, from ``compose(…, "evaluate")`` or built directly.
        test: A test set in the place of the one that the job names: that of another evaluation of
            the same model, with other texts.

    Raises:
        InputError: A file is missing or damaged, the texts do not have the same number of lines,
            or a metric is not available here. Mistakes are reported before anything is translated.
    """
    asked = job.metrics or []
    if job.report is not None:
        inputs = [("source", job.source), *(("hypotheses", path) for path in job.hypotheses)]
        inputs += [("references", path) for path in job.references]
        check_output("report", job.report, inputs)
    if "comet" in asked:
        comet_command()
    request = translator = None
    if job.model is not None:
        request = EngineRequest(job)
        translator = Translator.open(request)
    settings = _score_settings(job, request)
    test = test or _test_set(job, request, translator)
    for tag in {tag for tag, _ in test.split_source()} & test.languages.keys():
        own = replace(settings, tgt_lang=test.languages[tag][1])
        for name in own.names:
            own.metric(name)  # reports a tokeniser that is not installed

    if job.metrics == ["ppl"] and not job.report:  # of the references alone
        system = System(name=str(job.model), hypotheses=[], scores=[], diagnostics=[])
        evaluation = Evaluation(systems=[system], test=test, settings=settings)
    elif request is None or translator is None:
        hypotheses = {path: _hypotheses(path) for path in job.hypotheses}
        evaluation = evaluate_systems(hypotheses, test, settings)
    else:
        lines, translations = test.source or (), list[str]()
        size = CHUNK_LINES[request.device]
        with progress_bar("lines", "translated", total=len(lines)) as progress:
            for start in range(0, len(lines), size):
                translations += translator.translate(lines[start : start + size])
                progress.update(len(translations) - start)
        evaluation = evaluate_systems({str(job.model): translations}, test, settings)
    for name in SOURCE_METRICS:
        if name in asked:
            added: list[Score] = resolve_name(SOURCE_METRICS[name])(job, translator, evaluation)
            for system, score in zip(evaluation.systems, added, strict=True):
                system.scores.append(score)
    if job.report is not None:
        curves = [] if request is None else read_records(request.folder.path)
        facts = _facts(request, translator)
        page: str = resolve_name(REPORT)(evaluation, facts=facts, curves=curves)
        with files.output(Path(job.report)) as place:
            place.write_text(page, encoding="utf-8")
        log.info("wrote %s", job.report)
    return evaluation


def _hypotheses(path: str) -> list[str]:
    """The translations in a file, one a line; of JSON lines of ``mt-translate``, the best ones."""
    lines = list(read_lines(path))
    if files.ending(path) != ".jsonl":
        return lines
    remedy = "expected the output of mt-translate format=jsonl"
    with files.reading(path, LookupError, TypeError, remedy=remedy) as place:
        return [
            json.loads(line)["translations"][0]["text"] for place.line, line in enumerate(lines, 1)
        ]


def _score_settings(job: EvaluateJob, request: EngineRequest | None) -> ScoreSettings:
    """Metrics and tests to compute; a missing tokeniser is reported."""
    own = None if job.metrics is None else [n for n in job.metrics if n not in SOURCE_METRICS]
    bootstrap = job.bootstrap
    if bootstrap is None:
        bootstrap = 1000 if len(job.hypotheses) > 1 or job.report else 0
    tgt_lang = job.tgt_lang or (job.langs or "").rpartition("-")[2] or None
    if request is not None:
        tgt_lang = tgt_lang or request.trained.data.tgt_lang
    settings = ScoreSettings(
        tgt_lang=tgt_lang, metrics=own, bootstrap=bootstrap, by_length=job.by_length
    )
    charts = ["bleu"] if job.report else []
    for name in {*settings.names, *charts}:
        settings.metric(name)
    return settings


def _test_set(
    job: EvaluateJob, request: EngineRequest | None, translator: Translator | None
) -> TestSet:
    """The test set that the job names, or else the model's own."""
    data = None if request is None else request.trained.data
    if job.references:
        references = {path: list(read_lines(path)) for path in job.references}
        source = None if job.source is None else list(read_lines(job.source))
        texts = references if source is None else {str(job.source): source, **references}
        check_line_counts(texts)
        test = TestSet(references=references, source=source)
    elif job.testset is not None and job.testset not in OWN_SETS:
        pair = () if data is None else data.tags.get(job.tag or "", data.languages())
        src, paths = testset_files(job.testset, job.langs or "-".join(pair))
        references = {path.name: list(read_lines(path)) for path in paths}
        test = TestSet(references=references, source=list(read_lines(src)))
    else:
        assert request is not None
        test = _own_test_set(job, request)
    if data is None or translator is None:
        return test
    assert test.source is not None
    source, tags = translator.with_tag(test.source, job.tag), translator.tokenizer.tags
    if lines := untagged(source, data, tags):
        log.warning(f"{len(lines):,} {UNTAGGED.format(tags=tag_names(tags))}")
    languages = {} if job.tgt_lang or job.langs else data.tags
    return replace(test, source=source, tags=tags, languages=languages)


def _own_test_set(job: EvaluateJob, request: EngineRequest) -> TestSet:
    """The test or validation set of a model."""
    folder, part = request.folder.path, job.testset or "test"
    data = with_written_sets(request.trained.data, folder)
    sources = data.valid if part == "valid" else data.test
    if not sources:
        raise InputError(
            f"{job.model} has no {part} set, or its files are gone: set testset=NAME, or "
            "source=FILE with 'references=[FILE]'; the next training can hold one out "
            f"(data.{part}_pairs=1000)"
        )
    pairs = list(read_pairs(sources, *data.languages()))
    names = dict.fromkeys(source.short_name for source in sources)
    return TestSet(
        references={f"{', '.join(names)} (data.{part})": [pair.tgt for pair in pairs]},
        source=[pair.src for pair in pairs],
    )


def _facts(request: EngineRequest | None, translator: Translator | None) -> dict[str, str]:
    """Command and date in words, by name; of a model also its languages, search and engine."""
    command = shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
    facts = {"command": command, "date": f"{date.today()}"}
    if request is None or translator is None:
        return facts
    engine = translator.engine
    return {
        "languages": " → ".join(map(language_name, request.trained.data.languages())),
        "search": request.config.in_words,
        "engine": f"{engine.name}, {engine.compute_type}",
        **facts,
    }
