"""Evaluation of a model folder, or of files of hypotheses and references."""

import logging
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from functools import cached_property
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from transformer_mt import files
from transformer_mt.config import DataConfig, EvaluateJob, TrainJob
from transformer_mt.config.languages import language_name
from transformer_mt.config.translate import search_settings
from transformer_mt.data.held_out import with_written_sets
from transformer_mt.data.prepare import read_all
from transformer_mt.data.text.lines import read_lines
from transformer_mt.data.text.tags import tag_names
from transformer_mt.decode.engines.request import EngineRequest
from transformer_mt.decode.translator import UNTAGGED, Translator
from transformer_mt.errors import InputError
from transformer_mt.evaluation.comparison import (
    Evaluation,
    ScoreSettings,
    System,
    TestSet,
    evaluate_systems,
    load_testset,
    short_names,
)
from transformer_mt.evaluation.scores import Score, check_line_counts
from transformer_mt.evaluation.source_metrics import comet_command
from transformer_mt.jobs.line_processor import check_outputs
from transformer_mt.jobs.resume import evaluation_data_differs
from transformer_mt.progress_reporter import ProgressReporter
from transformer_mt.protocols import Report
from transformer_mt.registries import REPORT, SOURCE_METRICS
from transformer_mt.training.metrics_log import read_records

log = logging.getLogger(__name__)

_CHUNK_LINES = {"cpu": 256, "cuda": 16384}
"""Number of lines between two reports of progress, by type of device."""


def evaluate(job: EvaluateJob) -> Evaluation:
    """Scores a model on a test set, or files of translations; writes the report of the job, if any.

    Args:
        job: What to score, from ``compose(…, "evaluate")`` or built directly.

    Raises:
        InputError: A file is missing or damaged, the texts do not have the same number of lines,
            or a metric is not available here.
    """
    evaluator = Evaluator(job)
    evaluation = evaluator.evaluate()
    if job.report is not None:
        report: Report = resolve_name(REPORT)
        page = report(evaluation, facts=evaluator.facts, curves=evaluator.training_records)
        with files.output(Path(job.report)) as place:
            place.write_text(page, encoding="utf-8")
        log.info("wrote %s", job.report)
    return evaluation


class Evaluator:
    """An evaluation in steps: the model and the test set of a job, and scores.

    Args:
        job: What to score.

    Raises:
        InputError: The model is missing or damaged, or an output cannot be written. Mistakes are
            reported before anything is translated and scored.
    """

    def __init__(self, job: EvaluateJob):
        self.job = job
        given = {"hypotheses": job.hypotheses, "references": job.references}
        given["source"] = [] if job.source is None else [job.source]
        inputs = [(key, files.expand_user(path)) for key, paths in given.items() for path in paths]
        self._request = None
        if job.model is not None:
            self._request = EngineRequest(
                job.model,
                search=search_settings(job),
                device=job.device,
                compute_type=job.compute_type,
                step=job.step,
                needs=["metrics=[ppl]"] if "ppl" in (job.metrics or []) else [],
            )
        check_outputs({"report": job.report}, inputs)
        if "comet" in (job.metrics or []):
            comet_command()
        self.translator: Translator | None = None
        if self._request is not None:
            self.translator = Translator.open(self._request, job.engine)

    def evaluate(self) -> Evaluation:
        """Scores of the model or of the files.

        Raises:
            InputError: As the function ``evaluate`` does.
        """
        job, settings, test = self.job, self.settings(), self.test
        if job.metrics == ["ppl"] and not job.report:  # of the references alone
            (name,) = short_names([str(job.model)])
            system = System(name=name, hypotheses=[], scores=[], diagnostics=[])
            evaluation = Evaluation(systems=[system], test=test, settings=settings)
        elif self.translator is None:
            hypotheses = {path: list(read_lines(path)) for path in job.hypotheses}
            evaluation = self.score(hypotheses, settings)
        else:
            assert test.source is not None
            hypotheses = {str(job.model): self.translate(test.source)}
            evaluation = self.score(hypotheses, settings)
        for name in SOURCE_METRICS:
            if name in (job.metrics or []):
                self._add_source_scores(name, evaluation)
        for system in evaluation.systems:
            for message in system.diagnostics:
                log.warning("%s: %s", system.name, message)
        return evaluation

    def translate(self, lines: Sequence[str]) -> list[str]:
        """The model's translations of lines, each of which may start with a tag; shows progress."""
        assert self._request is not None
        assert self.translator is not None
        size = _CHUNK_LINES[self._request.device.partition(":")[0]]
        order = sorted(range(len(lines)), key=lambda i: -len(lines[i]))  # as batches are made
        translations = [""] * len(lines)
        with ProgressReporter("lines", "translated", total=len(lines)) as progress:
            for start in range(0, len(order), size):
                chunk = order[start : start + size]
                for i, text in zip(
                    chunk, self.translator.translate([lines[i] for i in chunk]), strict=True
                ):
                    translations[i] = text
                progress.update(start + len(chunk))
        return translations

    def score(
        self,
        hypotheses: Mapping[str, Sequence[str]],
        settings: ScoreSettings,
        references: Mapping[str, Sequence[str]] | None = None,
    ) -> Evaluation:
        """Scores of translations of the test set, by system, compared with the first.

        Args:
            hypotheses: The translations, by the path of their file or model.
            settings: Metrics and tests.
            references: References in the place of those of the test set.
        """
        test = replace(self.test, references=references) if references else self.test
        return evaluate_systems(hypotheses, test, settings)

    def settings(self, default_metrics: Sequence[str] | None = None) -> ScoreSettings:
        """Metrics and tests to compute.

        Args:
            default_metrics: Metrics if the job names none; None: those of the target language.

        Raises:
            InputError: A metric needs a tokeniser that is not installed.
        """
        job, names = self.job, default_metrics
        if job.metrics is not None:
            names = [name for name in job.metrics if name not in SOURCE_METRICS]
        bootstrap = job.bootstrap
        if bootstrap is None:
            bootstrap = 1000 if len(job.hypotheses) > 1 or job.report else 0
        tgt_lang = job.tgt_lang or (job.langs or "").rpartition("-")[2] or None
        if self._data is not None:
            tgt_lang = tgt_lang or self._data.tgt_lang
        settings = ScoreSettings(
            tgt_lang=tgt_lang, metrics=names, bootstrap=bootstrap, by_length=job.by_length
        )
        charts = ["bleu"] if job.report else []
        for name in {*settings.names, *charts}:  # a missing tokeniser is reported before the work
            settings.metric(name)
        return settings

    @property
    def facts(self) -> dict[str, str]:
        """Command and date in words, by name; of a model also its languages, search and engine."""
        command = shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
        facts = {"command": command, "date": f"{date.today()}"}
        if self._request is None or self.translator is None:
            return facts
        languages = self._request.trained.data.languages(None)
        engine = self.translator.engine
        return {
            "languages": " → ".join(map(language_name, languages)),
            "search": self._request.config.in_words,
            "engine": f"{engine.name}, {engine.compute_type}",
            **facts,
        }

    @property
    def training_records(self) -> list[dict[str, Any]]:
        """Records of the model's ``metrics.jsonl``, if there are any."""
        return [] if self._request is None else read_records(self._request.folder)

    @cached_property
    def test(self) -> TestSet:
        """The test set that the job names, or else the model's own.

        Raises:
            InputError: It is missing or damaged, or its texts differ in their number of lines.
        """
        job = self.job
        if job.testset is not None:
            data = self._data
            pair = () if data is None else data.tags.get(job.tag or "", data.languages(None))
            test = load_testset(job.testset, job.langs or "-".join(pair))
        elif job.references:
            references = {path: list(read_lines(path)) for path in job.references}
            source = None if job.source is None else list(read_lines(job.source))
            texts = references if source is None else {str(job.source): source, **references}
            check_line_counts(texts)
            test = TestSet(references=references, source=source)
        else:
            assert self._request is not None
            test = _own_test_set(job, self._request)
        if self._data is None or self.translator is None:
            return test
        assert test.source is not None
        source = self.translator.with_tag(test.source, job.tag)
        tags = self.translator.tokenizer.tags
        if untagged := self.translator.untagged(source):
            message = UNTAGGED.format(tags=tag_names(tags))
            log.warning(f"{len(untagged):,} {message}")
        return replace(
            test,
            source=source,
            tags=tags,
            languages={} if job.tgt_lang or job.langs else self._data.tags,
        )

    @property
    def _data(self) -> DataConfig | None:
        """Settings of the data that the model was trained on, if there is a model."""
        return None if self._request is None else self._request.trained.data

    def _add_source_scores(self, name: str, evaluation: Evaluation) -> None:
        """Adds the scores of all systems by a metric that also reads the source."""
        source, (reference, *_) = evaluation.test.source, evaluation.test.references.values()
        assert source is not None
        hypotheses = {system.name: system.hypotheses for system in evaluation.systems}
        added: dict[str, Score] = resolve_name(SOURCE_METRICS[name])(
            self.job, self.translator, hypotheses, source, reference
        )
        for system in evaluation.systems:
            system.scores.append(added[system.name])


def _own_test_set(job: EvaluateJob, request: EngineRequest) -> TestSet:
    """The test or validation set of a model."""
    folder = request.folder
    data = with_written_sets(request.trained.data, folder)
    subset, sources = ("valid", data.valid) if job.subset == "valid" else ("test", data.test)
    if not sources:
        raise InputError(
            f"{job.model} has no {subset} set, or its files are gone: set testset=NAME, or "
            "source=FILE with 'references=[FILE]'; the next training can hold one out "
            f"(data.{subset}_pairs=1000)"
        )
    pairs = read_all(sources, data, files.cache_path(TrainJob.cache_dir))
    if evaluation_data_differs(folder, subset, pairs):
        log.warning("data.%s has changed since this model was trained", subset)
    names = dict.fromkeys(Path(source.name).name for source in sources)
    references = {f"{', '.join(names)} (data.{subset})": [pair.tgt for pair in pairs]}
    return TestSet(references=references, source=[pair.src for pair in pairs])
