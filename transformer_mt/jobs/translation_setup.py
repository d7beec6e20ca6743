"""Set-up of a translation job: checks, models, engine and line processor."""

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from transformer_mt import __version__, files
from transformer_mt.config import DistributedConfig, TrainJob, TranslateJob
from transformer_mt.data.text.lines import COMPRESSED
from transformer_mt.data.text.normalization import Normalizer
from transformer_mt.decode.engines.selection import EngineRequest
from transformer_mt.decode.lines.markup import MarkupTranslator
from transformer_mt.decode.lines.sentences import SentenceTranslator
from transformer_mt.decode.translator import Translator
from transformer_mt.distributed.environment import Ranks, env_size
from transformer_mt.errors import InputError
from transformer_mt.jobs.line_processor import (
    AlignedFile,
    InputStats,
    LineProcessor,
    format_json,
    format_score,
    format_text,
)
from transformer_mt.jobs.output_checks import NamedPath, check_outputs, model_files

log = logging.getLogger(__name__)

CHUNK_LINES = {"cpu": 2048, "cuda": 16384}
"""Number of lines translated at a time, by type of device: enough to fill batches with sentences of
similar length."""

_LONG_TIMEOUT = DistributedConfig(timeout_minutes=24 * 60)
"""At the end of a file a rank waits for another to finish its chunk, which may take long on a CPU.
The failure of a rank is still noticed immediately."""


def translates_file(job: TranslateJob) -> bool:
    """Whether input and output are both files, not pipes or devices, so that a job can resume."""
    paths = job.input, job.output
    return all(path is not None and not files.is_stream(files.expand_user(path)) for path in paths)


@contextmanager
def translation_ranks(job: TranslateJob) -> Iterator[Ranks]:
    """The ranks that share a translation job; for this process alone PyTorch is not loaded."""
    if env_size() == 1:
        yield Ranks()
        return
    from transformer_mt.distributed.failures import propagate_errors
    from transformer_mt.distributed.world import join, pick_device

    device = pick_device(job.device)
    with propagate_errors(), join(device, _LONG_TIMEOUT) as world:
        yield world


@dataclass(frozen=True)
class TranslationSetup:
    """Everything that a translation job needs, loaded and checked."""

    processor: LineProcessor
    request: EngineRequest
    """Everything that the engine is built from."""

    @classmethod
    def open(cls, job: TranslateJob, ranks: Ranks) -> "TranslationSetup":
        """Checks the job and opens its models; see ``translate_file`` for the errors."""
        _check_output(job)
        request = EngineRequest.open(
            job.model,
            device=str(getattr(ranks, "device", job.device)),  # of several ranks, each has its own
            compute_type=job.compute_type,
            step=job.step,
            ensemble=job.ensemble,
            cache_dir=job.cache_dir,
        )
        trained = request.trained
        check_outputs(
            {"output": job.output}, _inputs(job, [request.folder, *request.ensemble], trained)
        )
        config = trained.decode.with_settings(job)
        if job.alignment and not Normalizer.of(trained.data).keeps_words:
            raise InputError(
                f"alignment=true does not work with data.normalization={trained.data.normalization}"
                ", which changes the words of the line"
            )
        if job.nbest > config.beam_size and not config.sampling:
            raise InputError(f"nbest={job.nbest} needs a beam_size of at least {job.nbest}")
        given = [key for key in ("prefix", "score") if getattr(job, key)]
        request = replace(request, config=config, given_translations=given)
        translator = Translator.open(
            request,
            job.engine,
            token_scores=job.format == "jsonl",
            report=log.info if ranks.is_main else log.debug,
        )
        return cls(_line_processor(job, translator, trained), request)

    @property
    def chunk_lines(self) -> int:
        """Number of lines translated at a time."""
        return CHUNK_LINES[self.request.device.partition(":")[0]]

    def output_settings(self, job: TranslateJob) -> dict[str, Any]:
        """Everything that the output depends on, the input aside, as JSON values."""
        decode = asdict(self.request.config)
        del decode["batch_tokens"]  # changes no translation; a second attempt may need less memory
        keys = ("nbest", "format", "split", "markup", "alignment")
        own: dict[str, object] = {key: getattr(job, key) for key in keys}
        prefixes, targets = self.processor.prefixes, self.processor.targets
        own["prefix"] = prefixes and prefixes.checksum
        own["score"] = targets and targets.checksum
        engine = self.processor.translator.engine
        own["compute_type"] = engine.compute_type
        if job.format == "jsonl" or engine.compute_type != "float32":
            own["engine"] = engine.name  # else all give the same text
        data = self.request.trained.data
        own["data"] = [data.normalization, data.src_lang, data.tgt_lang]
        settings = {**decode, **own, "version": __version__}
        return {"model": self.request.checksums, "settings": settings}

    def log_input_stats(self, stats: InputStats) -> None:
        """Logs what was unusual about the input."""
        for line in stats.messages(self.request.config.max_source_tokens):
            log.warning("%s", line)


def _check_output(job: TranslateJob) -> None:
    """Refuses an output that cannot be written, or whose name would be wrong."""
    if job.output is None:
        return
    output = files.expand_user(job.output)
    if output.suffix in COMPRESSED:
        raise InputError(
            f"output={job.output}: the output is plain text; leave out {output.suffix}, and "
            "compress the file afterwards"
        )
    if not output.exists() and not output.parent.is_dir():
        raise InputError(
            f"output={job.output}: there is no folder {output.parent}; create it first"
        )
    if output.is_dir():
        raise InputError(f"output={job.output} is a folder: name a file")


def _inputs(job: TranslateJob, folders: Iterable[Path], trained: TrainJob) -> Iterator[NamedPath]:
    for key in ("input", "prefix", "score"):
        if (path := getattr(job, key)) is not None:
            yield key, files.expand_user(path)
    for folder in folders:
        yield from model_files(folder, trained.data)


def _line_processor(job: TranslateJob, translator: Translator, trained: TrainJob) -> LineProcessor:
    segment_translator: MarkupTranslator | SentenceTranslator | None = None
    inner: Translator | MarkupTranslator = translator
    if job.markup == "keep":
        inner = MarkupTranslator(translator)
        segment_translator = inner
    if job.split == "sentences":
        languages = trained.data.src_lang, trained.data.tgt_lang
        segment_translator = SentenceTranslator(inner, *languages)
    line_format = format_text if job.score is None else format_score
    return LineProcessor(
        translator=translator,
        nbest=job.nbest,
        segment_translator=segment_translator,
        prefixes=_aligned_file("prefix", job.prefix),
        targets=_aligned_file("score", job.score),
        align=job.alignment,
        format=format_json if job.format == "jsonl" else line_format,
    )


def _aligned_file(key: str, path: str | None) -> AlignedFile | None:
    return None if path is None else AlignedFile(key, files.expand_user(path))
