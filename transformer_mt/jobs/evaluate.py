"""``mt-eval``: scores of a model folder, or of files of hypotheses and references."""

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformer_mt import distributed, files, model_folder
from transformer_mt.config import EvaluateJob, TrainJob
from transformer_mt.data.subwords.tokenizer import Tokenizer
from transformer_mt.data.text.lines import read_lines
from transformer_mt.data.text.normalization import Normalizer
from transformer_mt.data.text.sources import read_pairs
from transformer_mt.decode.engines.torch_engine import TorchEngine
from transformer_mt.decode.translator import Translator
from transformer_mt.errors import InputError
from transformer_mt.evaluate import evaluation as ev
from transformer_mt.evaluate import metrics
from transformer_mt.evaluate.comet import comet, comet_command
from transformer_mt.evaluate.perplexity import perplexity
from transformer_mt.evaluate.scores import check_line_counts
from transformer_mt.evaluate.test_set import TestSet, load_testset
from transformer_mt.jobs.output_checks import files_of_model, refuse_loss
from transformer_mt.jobs.resume import is_other
from transformer_mt.model.transformer import Transformer
from transformer_mt.train.metrics_log import read_records

if TYPE_CHECKING:
    from transformer_mt.evaluate.attention_page import Attention


_OUTPUTS = ("report", "attention_html", "attention_png")


def run(job: EvaluateJob) -> None:
    """Scores, prints, and writes what it is asked to."""
    job = _at_home(job)
    _check(job)
    system = None if job.model is None else _System.load(job)
    if system is not None:
        refuse_loss(_outputs(job), files_of_model(system.folder, system.job.data))
    attention = None
    if system is not None and job.attention is not None:
        attention = _attend(job, system)
        if job.report is None:
            print(attention.translation)
            return
    test = _test_set(job, system)
    if system is None:
        hypotheses = {path: list(read_lines(path)) for path in job.hypotheses}
    else:
        assert test.source is not None
        hypotheses = {str(job.model): system.translator.translate(test.source)}
    found = ev.evaluate(hypotheses, test, _settings(job, system, test))
    if "comet" in (job.metrics or []):
        found = _add_comet(job, found)
    if system is not None and "ppl" in (job.metrics or []):
        found = _add_perplexity(system, found)
    for of in found.systems:
        for warning in of.diagnostics:
            print(f"mt-eval: {of.name}: {warning}", file=sys.stderr)
    print(ev.to_json(found) if job.format == "json" else ev.to_text(found), flush=True)
    if job.report is not None:
        _report(job, system, found, attention)


@dataclass(frozen=True)
class _System:
    """A model folder, ready to translate."""

    folder: Path
    model: Transformer
    tokenizer: Tokenizer
    job: TrainJob
    normalizer: Normalizer
    translator: Translator

    @classmethod
    def load(cls, asked: EvaluateJob) -> "_System":
        assert asked.model is not None
        folder = Path(asked.model)
        model, tokenizer, job = model_folder.load_model(folder, asked.step)
        model.to(distributed.pick_device(asked.device))
        normalizer = Normalizer.of(job.data)
        decode = job.decode.with_settings(asked)
        translator = Translator(TorchEngine(model, decode), tokenizer, normalizer, decode)
        return cls(folder, model, tokenizer, job, normalizer, translator)


def _at_home(job: EvaluateJob) -> EvaluateJob:
    """``~`` in a path is the home folder: in the quotes that lists need, no shell sees to it."""
    found: dict[str, Any] = {
        key: str(files.expand_user(value))
        for key in ("model", "source", "comet_model", *_OUTPUTS)
        if (value := getattr(job, key)) is not None
    }
    for key in ("hypotheses", "references"):
        found[key] = [str(files.expand_user(path)) for path in getattr(job, key)]
    return replace(job, **found)


def _outputs(job: EvaluateJob) -> dict[str, str | None]:
    return {key: getattr(job, key) for key in _OUTPUTS}


def _check(job: EvaluateJob) -> None:
    """What would be a pity to find out after translating and scoring."""
    if sys.stdout is None:
        raise InputError("standard output is closed: send the scores to a file, > FILE")
    for key, value in _outputs(job).items():
        if value is None:
            continue
        path = Path(value)
        if not (folder := path.resolve().parent).is_dir():
            raise InputError(f"{key}={value}: there is no folder {folder}")
        if path.is_dir():
            raise InputError(f"{key}={value} is a folder: name a file")
    read = [("hypotheses", path) for path in job.hypotheses]
    read += [("references", path) for path in job.references]
    read += [] if job.source is None else [("source", job.source)]
    refuse_loss(_outputs(job), [*read, ("comet_model", job.comet_model)])
    if "comet" in (job.metrics or []):
        comet_command()
    if job.report is not None:
        from transformer_mt.evaluate.report import check_report

        check_report(len(job.hypotheses))


def _test_set(job: EvaluateJob, system: _System | None) -> TestSet:
    """The one that is named, or else the model's own."""
    data = None if system is None else system.job.data
    if job.testset is not None:
        langs = job.langs or (f"{data.src_lang}-{data.tgt_lang}" if data else "")
        return load_testset(job.testset, langs)
    if job.references:
        test = TestSet(
            references={path: list(read_lines(path)) for path in job.references},
            source=None if job.source is None else list(read_lines(job.source)),
            source_name=job.source or "",
        )
        if system is not None:
            check_line_counts(test.texts)
        return test
    assert system is not None
    assert data is not None
    if job.subset == "valid":
        key, sources = "data.valid", data.valid
    else:
        key, sources = "data.test", data.test
    if not sources:
        raise InputError(f"{system.folder} was trained without a test set (data.test)")
    pairs = list(read_pairs(sources, src_lang=data.src_lang, tgt_lang=data.tgt_lang))
    if is_other(system.folder, key.removeprefix("data."), pairs):
        print(f"mt-eval: {key} is not what it was when this was trained", file=sys.stderr)
    return TestSet(
        references={key: [pair.tgt for pair in pairs]}, source=[pair.src for pair in pairs]
    )


def _settings(job: EvaluateJob, system: _System | None, test: TestSet) -> ev.Settings:
    tgt_lang = job.tgt_lang
    if tgt_lang is None and job.langs is not None:
        tgt_lang = job.langs.rpartition("-")[2]
    if tgt_lang is None and system is not None:
        tgt_lang = system.job.data.tgt_lang
    several = len(job.hypotheses) > 1
    bootstrap = _samples("bootstrap", job.bootstrap, 1000 if several or job.report else 0, test)
    trials = _samples("randomization", job.randomization, 10_000 if several else 0, test)
    names = metrics.DEFAULT if job.metrics is None else job.metrics
    return ev.Settings(
        metrics=[name for name in names if name not in ("comet", "ppl")],
        protocols=job.protocols,
        tgt_lang=tgt_lang,
        normalization="none" if system is None else system.job.data.normalization,
        bootstrap=bootstrap,
        randomization=trials,
    )


def _samples(key: str, asked: int | None, usual: int, test: TestSet) -> int:
    """As many as asked for, or as usual unless that would fill the memory."""
    if asked is not None:
        return asked
    lines = max(map(len, test.texts.values()))
    if not usual or lines <= ev.MANY_LINES:
        return usual
    skipped = f"no {key}: resampling {lines:,} lines takes much memory"
    print(f"mt-eval: {skipped}; {key}={usual} does it", file=sys.stderr)
    return 0


def _add_comet(job: EvaluateJob, found: ev.Evaluation) -> ev.Evaluation:
    assert found.test.source is not None
    scores = comet(
        {system.name: system.hypotheses for system in found.systems},
        found.test.source,
        next(iter(found.test.references.values())),
        model=job.comet_model,
        gpu=distributed.pick_device(job.device).type == "cuda",
    )
    systems = [replace(of, scores=[*of.scores, scores[of.name]]) for of in found.systems]
    return replace(found, systems=systems)


def _add_perplexity(system: _System, found: ev.Evaluation) -> ev.Evaluation:
    assert found.test.source is not None
    reference, vocab_size = next(iter(found.test.references.values())), system.model.vocab_size
    score = perplexity(system.translator, found.test.source, reference, vocab_size)
    return replace(found, systems=[replace(of, scores=[*of.scores, score]) for of in found.systems])


def _attend(job: EvaluateJob, system: _System) -> "Attention":
    """Where the model looks in the sentence, written to the files that were asked for."""
    # Here as below imported where it is needed: matplotlib takes a second.
    from transformer_mt.evaluate.attention_page import attention_of, write_image
    from transformer_mt.evaluate.report import write_attention

    assert job.attention is not None
    attention = attention_of(
        job.attention, system.model, system.tokenizer, system.translator, system.normalizer
    )
    if job.attention_html is not None:
        write_attention(Path(job.attention_html), attention)
    if job.attention_png is not None:
        write_image(attention, Path(job.attention_png))
    return attention


def _report(
    job: EvaluateJob, system: _System | None, found: ev.Evaluation, attention: "Attention | None"
) -> None:
    from transformer_mt.evaluate.report import write_report

    assert job.report is not None
    write_report(
        Path(job.report),
        found,
        title=", ".join(of.name for of in found.systems),
        curves=[] if system is None else read_records(system.folder),
        attention=attention,
    )
