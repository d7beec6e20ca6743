"""Evaluation of a model folder, or of files of hypotheses and references."""

import logging
from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, NamedTuple

from transformer_mt import files
from transformer_mt.config import DataConfig, EvaluateJob
from transformer_mt.config.checks import require
from transformer_mt.config.decode import search_settings
from transformer_mt.data.prepare import read_all
from transformer_mt.data.text.lines import read_lines
from transformer_mt.data.text.tags import lines_by_tag
from transformer_mt.decode.engines.request import EngineRequest
from transformer_mt.decode.translator import Translator
from transformer_mt.errors import InputError
from transformer_mt.evaluation import metrics, robustness
from transformer_mt.evaluation.comparison import (
    Evaluation,
    Settings,
    TestSet,
    evaluate_systems,
    load_testset,
)
from transformer_mt.evaluation.scores import Score, check_line_counts
from transformer_mt.evaluation.source_metrics import comet_command
from transformer_mt.jobs.line_processor import check_outputs
from transformer_mt.jobs.resume import evaluation_data_differs
from transformer_mt.model_folder import model_files
from transformer_mt.registries import SOURCE_METRICS
from transformer_mt.training.metrics_log import read_records

if TYPE_CHECKING:
    from transformer_mt.evaluation.attention_page import Attention

log = logging.getLogger(__name__)


def evaluate(
    job: EvaluateJob, on_scores: Callable[[Evaluation], None] = lambda _: None
) -> Evaluation:
    """Scores a model on a test set, or files of translations; writes the files the job names.

    Args:
        job: What to score, from ``compose(…, "evaluate")`` or built directly.
        on_scores: Called with the result before the report is written, which may take a while.

    Raises:
        InputError: A file is missing or damaged, the texts do not have the same number of lines,
            a metric is not available here, or the job is one of ``evaluate_robustness``.
    """
    require(not job.robustness, "robustness=true: call evaluate_robustness instead of evaluate")
    system = _open(job)
    settings = _settings(job, system)
    attention = None if system is None or job.attention is None else _attend(job, system)
    test = _load_test_set(job, system)
    if system is None:
        hypotheses = {path: list(read_lines(path)) for path in job.hypotheses}
    else:
        assert test.source is not None
        hypotheses = {str(job.model): system.translator.translate(test.source)}
    evaluation = evaluate_systems(hypotheses, test, settings)
    for name in SOURCE_METRICS:
        if name in (job.metrics or []):
            _add_source_scores(name, job, system, evaluation)
    for scored in evaluation.systems:
        for message in scored.diagnostics:
            log.warning("%s: %s", scored.name, message)
    on_scores(evaluation)
    if job.report is not None:
        from transformer_mt.evaluation.report import write_report  # loads matplotlib: a second

        title = ", ".join(scored.name for scored in evaluation.systems)
        curves = [] if system is None else read_records(system.request.folder)
        write_report(Path(job.report), evaluation, title=title, curves=curves, attention=attention)
    return evaluation


def evaluate_robustness(job: EvaluateJob) -> list[robustness.NoiseScores]:
    """Scores a model on its test set as it is and with noise (``robustness=true``), tag by tag.

    Raises:
        InputError: As ``evaluate`` does.
    """
    job = replace(job, robustness=True)  # which is checked
    model = _open(job)
    assert model is not None
    settings, test = _settings(job, model), _load_test_set(job, model)
    assert test.source is not None
    sources = robustness.noisy_sources(test.source, test.tags)
    lines = list(dict.fromkeys(chain.from_iterable(sources.values())))
    translations = dict(zip(lines, model.translator.translate(lines), strict=True))
    hypotheses = {
        noise: [translations[line] for line in source] for noise, source in sources.items()
    }
    systems, results = evaluate_systems(hypotheses, test, settings).systems, []
    clean = systems[0]
    for tag, own in lines_by_tag(test.source, test.tags).items():
        for system in systems:
            noisy = sources[system.name]
            changed = sum(noisy[i] != sources[clean.name][i] for i in own)
            scores = [
                item if system is clean else replace(item, difference=item.score - before.score)
                for item, before in zip(system.scores, clean.scores, strict=True)
                if item.tag == tag
            ]
            results.append(robustness.NoiseScores(system.name, changed, scores))
    return results


def write_attention(job: EvaluateJob) -> "Attention":
    """Writes the attention pages of a sentence (``attention=…``), without scoring anything.

    Raises:
        InputError: There is no such model, or the sentence is too long.
    """
    system = _open(job)
    assert system is not None
    return _attend(job, system)


class _System(NamedTuple):
    """A model folder, ready to translate."""

    request: EngineRequest
    translator: Translator

    @property
    def data(self) -> DataConfig:
        """Settings of the data that it was trained on."""
        return self.request.trained.data


def _open(job: EvaluateJob) -> _System | None:
    """The job's model, if it has one; reports mistakes before anything is translated and scored."""
    given = {"hypotheses": job.hypotheses, "references": job.references}
    given["source"] = [] if job.source is None else [job.source]
    inputs = [(key, files.expand_user(path)) for key, paths in given.items() for path in paths]
    request = None
    if job.model is not None:
        request = EngineRequest.open(
            job.model,
            search=search_settings(job),
            device=job.device,
            compute_type=job.compute_type,
            step=job.step,
        )
        inputs += model_files(request.folder, request.trained.data)
    keys = ("report", "attention_html", "attention_png")
    check_outputs({key: getattr(job, key) for key in keys}, inputs)
    if "comet" in (job.metrics or []):
        comet_command()
    if request is None:
        return None
    return _System(request, Translator.open(request, job.engine, token_scores=False))


def _load_test_set(job: EvaluateJob, system: _System | None) -> TestSet:
    """The test set that the job names, or else the model's own."""
    if job.testset is not None:
        pair = system.data.tags.get(job.tag or "", system.data.languages(None)) if system else ()
        test = load_testset(job.testset, job.langs or "-".join(pair))
    elif job.references:
        references = {path: list(read_lines(path)) for path in job.references}
        source = None if job.source is None else list(read_lines(job.source))
        check_line_counts(references if source is None else {str(job.source): source, **references})
        test = TestSet(references=references, source=source)
    else:
        assert system is not None
        test = _own_test_set(job, system)
    if system is None:
        return test
    assert test.source is not None
    return replace(
        test,
        source=system.translator.with_tag(test.source, job.tag),
        tags=system.translator.tokenizer.tags,
        languages={} if job.tgt_lang or job.langs else system.data.tags,
    )


def _own_test_set(job: EvaluateJob, system: _System) -> TestSet:
    """The test or validation set of a model."""
    data, folder = system.data, system.request.folder
    subset, sources = ("valid", data.valid) if job.subset == "valid" else ("test", data.test)
    if not sources:
        raise InputError(
            f"{job.model} has no {subset} set (data.{subset}): set testset=NAME, or source=FILE "
            "with 'references=[FILE]'"
        )
    for source in sources:
        for path in source.paths.values():
            if files.is_stream(path) and not path.is_dir():  # named by a folder, not by the user
                raise InputError(f"data.{subset} of {folder}: {path} is not a regular file")
    pairs = read_all(sources, data, files.cache_path(system.request.cache_dir))
    if evaluation_data_differs(folder, subset, pairs):
        log.warning("data.%s has changed since this model was trained", subset)
    references = {f"data.{subset}": [pair.tgt for pair in pairs]}
    return TestSet(references=references, source=[pair.src for pair in pairs])


def _settings(job: EvaluateJob, system: _System | None) -> Settings:
    tgt_lang = job.tgt_lang
    if tgt_lang is None and job.langs is not None:
        tgt_lang = job.langs.rpartition("-")[2]
    if tgt_lang is None and system is not None:
        tgt_lang = system.data.tgt_lang
    several = len(job.hypotheses) > 1
    resamples = 1000 if several or job.report else 0
    trials = 10_000 if several else 0
    default = robustness.METRICS if job.robustness else metrics.DEFAULT
    names = default if job.metrics is None else job.metrics
    settings = Settings(
        metrics=[name for name in names if name not in SOURCE_METRICS],
        protocols=[] if job.robustness and job.protocols is None else job.protocols,
        tgt_lang=tgt_lang,
        normalization="none" if system is None else system.data.normalization,
        bootstrap=resamples if job.bootstrap is None else job.bootstrap,
        randomization=trials if job.randomization is None else job.randomization,
        workers=job.workers,
    )
    # A missing tokeniser is reported before the work. The report has BLEU in any case.
    for name in [*settings.names, *(["bleu"] if job.report else [])]:
        metrics.make_metric(name, settings.tgt_lang)
    return settings


def _add_source_scores(
    name: str, job: EvaluateJob, system: _System | None, evaluation: Evaluation
) -> None:
    """Adds the scores of all systems by a metric that also reads the source."""
    source, (reference, *_) = evaluation.test.source, evaluation.test.references.values()
    assert source is not None
    hypotheses = {scored.name: scored.hypotheses for scored in evaluation.systems}
    translator = None if system is None else system.translator
    added: dict[str, Score] = resolve_name(SOURCE_METRICS[name])(
        job, translator, hypotheses, source, reference
    )
    for scored in evaluation.systems:
        scored.scores.append(added[scored.name])


def _attend(job: EvaluateJob, system: _System) -> "Attention":
    """Computes the attention of the job's sentence and writes the files that the job names."""
    # Imported here because loading matplotlib takes a second.
    from transformer_mt.evaluation.attention_page import compute_attention, write_image
    from transformer_mt.evaluation.report import write_attention_page

    assert job.attention is not None
    (sentence,) = system.translator.with_tag([job.attention], job.tag)
    attention = compute_attention(sentence, system.request.models[0], system.translator)
    if job.attention_html is not None:
        write_attention_page(Path(job.attention_html), attention)
    if job.attention_png is not None:
        write_image(attention, Path(job.attention_png))
    return attention
