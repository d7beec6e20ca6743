"""``mt-translate``: a file or a stream in, one translation a line out."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import BinaryIO

from transformer_mt import __version__, distributed
from transformer_mt import checkpoint as ckpt
from transformer_mt.cli import app
from transformer_mt.cli.file_job import Answer, translate_file
from transformer_mt.cli.streaming import LineTranslator, Oddities, answer, arriving
from transformer_mt.config import DecodeConfig, TrainJob, TranslateJob
from transformer_mt.data.normalization import Normalizer
from transformer_mt.data.text import open_binary
from transformer_mt.data.tokenizer import Tokenizer
from transformer_mt.decode.conversion import check_shape, checksum, convert
from transformer_mt.decode.ctranslate2 import CTranslate2Translator, check_available
from transformer_mt.decode.sentences import SentenceTranslator
from transformer_mt.decode.translator import Translator
from transformer_mt.distributed import World
from transformer_mt.errors import InputError
from transformer_mt.model.transformer import Transformer


def main() -> None:
    """Entry point of ``mt-translate``."""
    app.main("translate", TranslateJob, run)


def run(job: TranslateJob) -> None:
    """Translates a file or a stream with the model of a folder."""
    device = distributed.pick_device(job.device)
    single = nullcontext(World(device))
    with distributed.join(device) if distributed.under_launcher() else single as world:
        _translate(job, world)


def _translate(job: TranslateJob, world: World) -> None:
    files = _files(job)
    if world.size > 1 and files is None:
        raise InputError("several ranks share a file: say input=FILE and output=FILE")
    model, tokenizer, trained = ckpt.load_model(Path(job.model).expanduser())
    trained = replace(trained, decode=_settings(trained.decode, job))
    if job.nbest > trained.decode.beam_size:
        raise InputError(f"nbest={job.nbest} needs a beam_size of at least as many")
    identity = {"model": checksum(model, tokenizer), "settings": _identity(job, trained)}
    translator = _translator(job, world, model, tokenizer, trained)
    answers = partial(answer, translator, nbest=job.nbest, json_lines=job.format == "jsonl")
    if files is None:
        odd = _translate_stream(job, answers)
    else:
        odd = translate_file(*files, identity, answers, world, _report)
    if world.is_main:
        for line in odd.report(trained.decode.max_source_tokens):
            _report(line)


def _files(job: TranslateJob) -> tuple[Path, Path] | None:
    """Input and output if both are files, not pipes or devices: what can be gone on with."""
    if job.input is None or job.output is None:
        return None
    source, target = Path(job.input).expanduser(), Path(job.output).expanduser().resolve()
    if any(path.exists() and not path.is_file() for path in (source, target)):
        return None
    return source, target


def _settings(trained: DecodeConfig, job: TranslateJob) -> DecodeConfig:
    """The folder's own decoding settings, with those of the command line over them."""
    keys = ("beam_size", "length_penalty", "max_extra_tokens", "max_source_tokens", "batch_tokens")
    given = {key: value for key in keys if (value := getattr(job, key)) is not None}
    return replace(trained, **given)


def _identity(job: TranslateJob, trained: TrainJob) -> dict[str, object]:
    """All settings that the output depends on."""
    decode = asdict(trained.decode)
    del decode["batch_tokens"]  # changes no translation; one may need less memory the second time
    keys = ("nbest", "format", "compute_type", "split")
    data = (trained.data.normalization, trained.data.src_lang, trained.data.tgt_lang)
    own = {key: getattr(job, key) for key in keys}
    return {**decode, **own, "data": list(data), "version": __version__}


def _translator(
    job: TranslateJob, world: World, model: Transformer, tokenizer: Tokenizer, trained: TrainJob
) -> LineTranslator:
    """The engine that the job asks for, or the best one."""
    engine = job.engine if job.engine != "auto" else _fastest(job, world, model)
    parts = (tokenizer, trained.decode, Normalizer.of(trained.data))
    converted = None
    if engine == "ctranslate2":
        check_available(job.compute_type, world.device)
        folder = Path(job.model).expanduser()
        try:
            converted, note = convert(folder, model, tokenizer, job.compute_type)
        except InputError as error:
            if job.engine != "auto" or job.compute_type != "float32":
                raise
            note = f"{error}; going on with engine=torch"
        if note and world.is_main:
            _report(note)
    model.to(world.device)
    if converted is None:
        translator = Translator(model, *parts)
    else:
        translator = CTranslate2Translator(converted, model, *parts, job.compute_type)
    if job.split == "sentences":
        return SentenceTranslator(translator, trained.data.src_lang, trained.data.tgt_lang)
    return translator


def _fastest(job: TranslateJob, world: World, model: Transformer) -> str:
    """What ``engine=auto`` means.

    On a CPU that is CTranslate2, where it is installed and can hold the model. In float32, with
    the same translations: int8 is faster still but changes some, so it has to be asked for.
    """
    if job.compute_type != "float32":
        return "ctranslate2"
    if world.device.type != "cpu" or find_spec("ctranslate2") is None:
        return "torch"
    try:
        check_shape(model.config)
    except InputError:
        return "torch"
    return "ctranslate2"


def _translate_stream(job: TranslateJob, answers: Answer) -> Oddities:
    odd, number = Oddities(), 1
    with _input(job.input) as source, _output(job.output) as sink:
        for raw in arriving(source, job.input or "standard input"):
            text, found = answers(raw, number)
            sink.write(text)
            sink.flush()
            odd, number = odd + found, number + len(raw)
    return odd


@contextmanager
def _input(path: str | None) -> Iterator[BinaryIO]:
    if path is None:
        # Neither sys.stdin nor closed: the reading thread holds the lock of a stream it waits on,
        # and the program could not end before the next line.
        yield open(0, "rb", closefd=False)  # noqa: SIM115
        return
    with open_binary(Path(path).expanduser()) as file:
        yield file


@contextmanager
def _output(path: str | None) -> Iterator[BinaryIO]:
    """A file takes its name once it is whole."""
    if path is None:
        yield sys.stdout.buffer
        return
    target = Path(path).expanduser().resolve()
    if target.exists() and not target.is_file():
        with target.open("wb") as stream:  # a pipe, or /dev/null: nothing to put a file over
            yield stream
        return
    with ckpt.atomic(target) as temporary, temporary.open("wb") as file:
        yield file


def _report(line: str) -> None:
    print(f"mt-translate: {line}", file=sys.stderr)


if __name__ == "__main__":
    main()
