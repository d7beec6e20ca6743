"""``mt-translate``: a file or a stream in, one translation a line out."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import BinaryIO

from transformer_mt import __version__, distributed, files, model_folder
from transformer_mt.config import DistributedConfig, TrainJob, TranslateJob
from transformer_mt.data.subwords.tokenizer import Tokenizer
from transformer_mt.data.text.lines import open_binary
from transformer_mt.data.text.normalization import Normalizer
from transformer_mt.decode.engines.ctranslate2_conversion import checksum
from transformer_mt.decode.engines.selection import EngineRequest, open_engine
from transformer_mt.decode.lines.markup import MarkupTranslator
from transformer_mt.decode.lines.sentences import SentenceTranslator
from transformer_mt.decode.translator import Translator
from transformer_mt.distributed import World
from transformer_mt.errors import InputError
from transformer_mt.jobs.aligned_file import AlignedFile
from transformer_mt.jobs.line_processor import Work
from transformer_mt.jobs.output_checks import Named, files_of_model, refuse_loss
from transformer_mt.jobs.translate_file import CHUNK, Answer, translate_file
from transformer_mt.jobs.translate_stream import (
    Form,
    InputStats,
    answer,
    arriving,
    as_json,
    as_score,
    as_text,
)

_PATIENT = DistributedConfig(timeout_minutes=24 * 60)
"""At the end of a file a rank waits for the chunk of another, which may take long on a CPU. One
that died is noticed at once."""


def run(job: TranslateJob) -> None:
    """Translates a file or a stream with the model of a folder."""
    device = distributed.pick_device(job.device)
    with distributed.propagate_errors(), distributed.join(device, _PATIENT) as world:
        _translate(job, world)


def _translate(job: TranslateJob, world: World) -> None:
    _check_output(job)
    paths = _paths(job)
    if world.size > 1 and paths is None:
        raise InputError("several ranks share a file: say input=FILE and output=FILE")
    folder, ensemble = files.expand_user(job.model), [files.expand_user(n) for n in job.ensemble]
    models, tokenizer, trained = model_folder.load_models(folder, job.step, ensemble)
    refuse_loss({"output": job.output}, _read(job, trained))
    decode = trained.decode.with_settings(job)
    trained = replace(trained, decode=decode)
    if job.alignment and not Normalizer.of(trained.data).keeps_words:
        raise InputError(
            f"alignment=true does not go with data.normalization={trained.data.normalization}, "
            "whose words are not those of the line"
        )
    if job.nbest > decode.beam_size and not decode.sampling:
        raise InputError(f"nbest={job.nbest} needs a beam_size of at least as many")
    report = _report if world.is_main else _say_nothing
    request = EngineRequest(
        folder=folder,
        models=models,
        tokenizer=tokenizer,
        config=decode,
        device=world.device,
        compute_type=job.compute_type,
        step=job.step,
        given_translations=[key for key in ("prefix", "score") if getattr(job, key) is not None],
    )
    translator = Translator(
        open_engine(job.engine, request, report),
        tokenizer,
        Normalizer.of(trained.data),
        decode,
        token_scores=job.format == "jsonl",
    )
    work = _work(job, translator, tokenizer, trained)
    answers = partial(answer, work, form=_form(job))
    if paths is None:
        odd = _translate_stream(job, answers, CHUNK[world.device.type], work.beside)
    else:
        checksums = [checksum(model, tokenizer) for model in models]
        identity = {"model": checksums, "settings": _identity(job, trained, work)}
        odd = translate_file(*paths, identity, answers, world, _report, work.beside)
    if world.is_main:
        for line in odd.report(decode.max_source_tokens):
            _report(line)


def _read(job: TranslateJob, trained: TrainJob) -> Iterator[Named]:
    """The files that the output must not be, each after a word for it."""
    for key in ("input", "prefix", "score"):
        if (path := getattr(job, key)) is not None:
            yield key, files.expand_user(path)
    for folder in (job.model, *job.ensemble):
        yield from files_of_model(files.expand_user(folder), trained.data)


def _work(
    job: TranslateJob, translator: Translator, tokenizer: Tokenizer, trained: TrainJob
) -> Work:
    within: MarkupTranslator | SentenceTranslator | None = None
    inner: Translator | MarkupTranslator = translator
    if job.markup == "keep":
        within = inner = MarkupTranslator(translator, tokenizer, Normalizer.of(trained.data))
    if job.split == "sentences":
        within = SentenceTranslator(inner, trained.data.src_lang, trained.data.tgt_lang)
    return Work(
        translator=translator,
        nbest=job.nbest,
        within=within,
        prefixes=_beside("prefix", job.prefix),
        targets=_beside("score", job.score),
        align=job.alignment,
    )


def _beside(key: str, path: str | None) -> AlignedFile | None:
    return None if path is None else AlignedFile(key, files.expand_user(path))


def _form(job: TranslateJob) -> Form:
    """How an outcome is written."""
    if job.format == "jsonl":
        return as_json
    return as_text if job.score is None else as_score


def _paths(job: TranslateJob) -> tuple[Path, Path] | None:
    """Input and output if both are files, not pipes or devices: what can be gone on with."""
    if job.input is None or job.output is None:
        return None
    source, target = files.expand_user(job.input), files.expand_user(job.output).resolve()
    if any(files.is_stream(path) for path in (source, target)):
        return None
    return source, target


def _check_output(job: TranslateJob) -> None:
    """Refuses a file that cannot be written, or would not be what its name says."""
    if job.output is None:
        return
    output = files.expand_user(job.output)
    if output.suffix in (".gz", ".zst"):
        raise InputError(
            f"output={job.output}: it is written as plain text; leave out {output.suffix}, and "
            "compress it afterwards"
        )
    if not output.exists() and not output.parent.is_dir():
        raise InputError(f"output={job.output}: there is no folder {output.parent}; make it first")
    if output.is_dir():
        raise InputError(f"output={job.output} is a folder: name a file")


def _identity(job: TranslateJob, trained: TrainJob, work: Work) -> dict[str, object]:
    """All settings that the output depends on."""
    decode = asdict(trained.decode)
    del decode["batch_tokens"]  # changes no translation; one may need less memory the second time
    keys = ("nbest", "format", "compute_type", "split", "markup", "alignment")
    own: dict[str, object] = {key: getattr(job, key) for key in keys}
    own["prefix"], own["score"] = (
        None if beside is None else beside.checksum for beside in (work.prefixes, work.targets)
    )
    if job.format == "jsonl" or job.compute_type != "float32":
        own["engine"] = work.translator.engine.name  # else the text is the same by any
    data = (trained.data.normalization, trained.data.src_lang, trained.data.tgt_lang)
    return {**decode, **own, "data": list(data), "version": __version__}


def _translate_stream(
    job: TranslateJob, answers: Answer, most: int, beside: AlignedFile | None
) -> InputStats:
    odd, number = InputStats(), 1
    with _input(job.input) as source, _output(job.output) as sink:
        for raw in arriving(source, job.input or "standard input", most):
            text, found = answers(raw, number)
            sink.write(text)
            sink.flush()
            odd, number = odd + found, number + len(raw)
        if beside is not None:
            beside.check(number - 1)
    return odd


@contextmanager
def _input(path: str | None) -> Iterator[BinaryIO]:
    if path is None:
        # Neither sys.stdin nor closed: the reading thread holds the lock of a stream it waits on,
        # and the program could not end before the next line.
        try:
            stream = open(0, "rb", closefd=False)  # noqa: SIM115
        except OSError:
            raise InputError("standard input is closed: say input=FILE") from None
        yield stream
        return
    with open_binary(files.expand_user(path)) as file:
        yield file


@contextmanager
def _output(path: str | None) -> Iterator[BinaryIO]:
    """A file takes its name once it is whole."""
    if path is None:
        if sys.stdout is None:
            raise InputError("standard output is closed: say output=FILE")
        yield sys.stdout.buffer
        return
    before = signal.signal(signal.SIGTERM, _end)
    try:
        with files.output(files.expand_user(path)) as place, place.open("wb") as file:
            yield file
    finally:
        signal.signal(signal.SIGTERM, before)


def _end(number: int, _: object) -> None:
    raise SystemExit(128 + number)  # not on the spot: what is half written is removed


def _say_nothing(_: str) -> None: ...


def _report(line: str) -> None:
    print(f"mt-translate: {line}", file=sys.stderr)
