"""Translation, or scoring, of the lines of a job: one line of output for each."""

import json
import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from transformer_mt import __version__, files
from transformer_mt.config import TranslateJob
from transformer_mt.data.text.lines import COMPRESSED, AlignedFile
from transformer_mt.data.text.normalization import Normalizer
from transformer_mt.data.text.tags import check_tag, split_tag, tag_names
from transformer_mt.decode.engines.selection import EngineRequest, Report
from transformer_mt.decode.lines.markup import MarkupTranslator, is_malformed
from transformer_mt.decode.lines.sentences import SentenceTranslator
from transformer_mt.decode.translator import Translation, Translator
from transformer_mt.errors import InputError
from transformer_mt.model_folder import model_files

log = logging.getLogger(__name__)

CHUNK_LINES = {"cpu": 2048, "cuda": 16384}
"""Number of lines translated at a time, by type of device: enough to fill batches with sentences of
similar length."""


def translates_file(job: TranslateJob) -> bool:
    """Whether input and output are both files, not pipes or devices, so that a job can resume."""
    if job.input is None or job.output is None:
        return False
    source, target = files.expand_user(job.input), files.expand_user(job.output)
    return not (files.is_stream(source) or files.is_stream(target))


def check_lines(job: TranslateJob) -> None:
    """Raises ``InputError`` if the job translates a document, and not line by line."""
    if job.document_format is not None:
        raise InputError(f"format={job.document_format} is a document: call translate_document")


@dataclass(frozen=True)
class InputStats:
    """Counts of unusual input lines, and the number of the first one of a kind (0: none)."""

    undecodable: int = 0
    first_undecodable: int = 0
    malformed: int = 0
    first_malformed: int = 0
    nul: int = 0
    first_nul: int = 0
    cut: int = 0
    short: int = 0
    untagged: int = 0

    def __add__(self, other: "InputStats") -> "InputStats":
        """The counts of two parts of one input together."""
        values = {}
        for f in fields(self):
            pair = getattr(self, f.name), getattr(other, f.name)
            first = f.name.startswith("first")
            values[f.name] = min(filter(None, pair), default=0) if first else sum(pair)
        return InputStats(**values)


class LineProcessor:
    """Translates the lines of a job, or scores given translations of them.

    The job is checked and its models are opened; see ``translate_file`` for the errors.

    Args:
        job: What to translate with.
        device: Overrides the job's, for one of several ranks.
        report: Called with each message about the engine.
    """

    def __init__(self, job: TranslateJob, device: str | None = None, report: Report = log.info):
        given: dict[str, Path] = {}
        for key in ("input", "prefix", "score"):
            if path := getattr(job, key):
                given[key] = files.expand_user(path)
        inputs = list(given.items())
        given.pop("input", None)
        if job.output is not None and (suffix := Path(job.output).suffix) in COMPRESSED:
            raise InputError(
                f"output={job.output}: the output is plain text; leave out {suffix}, and compress "
                "the file afterwards"
            )
        self._job = job
        self._request = request = EngineRequest(
            job.model,
            device=device or job.device,
            compute_type=job.compute_type,
            step=job.step,
            ensemble=job.ensemble,
            cache_dir=job.cache_dir,
        )
        data, config = request.trained.data, request.config.with_settings(job)
        request.config = config
        if job.output is not None:
            for folder in (request.folder, *request.ensemble):
                inputs += model_files(folder, data)
            check_outputs({"output": job.output}, inputs)
        if job.alignment and not Normalizer.of(data).keeps_words:
            raise InputError(
                f"alignment=true does not work with data.normalization={data.normalization}"
                ", which changes the words of the line"
            )
        if job.tag is not None:
            check_tag(job.tag, request.tokenizer.tags)
        if job.nbest > config.beam_size and not config.sampling:
            raise InputError(f"nbest={job.nbest} needs a beam_size of at least {job.nbest}")
        # CTranslate2 would leave all of the work to PyTorch.
        engine = "torch" if given and job.engine == "auto" else job.engine
        self._translator = Translator.open(
            request, engine, token_scores=job.format == "jsonl", report=report
        )
        self.languages = data.tags.get(job.tag or "", data.languages(None))
        """Source and target language of the lines."""
        self.unplaced: list[str] = []
        """Markup of lines so far that no word of their translations belongs to."""
        self._segments: MarkupTranslator | SentenceTranslator | None = None
        if job.markup == "keep" or job.document_format is not None:
            self._segments = MarkupTranslator(self._translator, self.unplaced)
        if job.split == "sentences":
            inner = self._segments or self._translator
            self._segments = SentenceTranslator(inner)
        self.aligned_file: AlignedFile | None = None
        """Read in step with the input: beginnings of translations, or translations to score."""
        for key, path in given.items():  # at most one
            self.aligned_file = AlignedFile(key, path)

    @property
    def chunk_lines(self) -> int:
        """Number of lines translated at a time."""
        return CHUNK_LINES[self._request.device.partition(":")[0]]

    def output_settings(self) -> dict[str, Any]:
        """Everything that the output depends on, the input aside, as JSON values."""
        settings = asdict(self._request.config)
        del settings["batch_tokens"]  # changes no translation; may be lowered for a second attempt
        for key in ("nbest", "format", "split", "markup", "alignment"):
            settings[key] = getattr(self._job, key)
        for key in ("prefix", "score"):
            aligned = self.aligned_file if getattr(self._job, key) else None
            settings[key] = aligned.checksum if aligned else None
        engine = self._translator.engine
        settings["compute_type"] = engine.compute_type
        if self._job.format == "jsonl" or engine.compute_type != "float32":
            settings["engine"] = engine.name  # else all give the same text
        data = self._request.trained.data
        settings["data"] = [data.normalization, data.src_lang, data.tgt_lang]
        if self._request.tokenizer.tags:
            languages = {tag: [*pair] for tag, pair in data.tags.items()}  # lists, as JSON has
            settings["tag"] = [self._job.tag, languages]
        settings["version"] = __version__
        return {"model": self._request.checksums, "settings": settings}

    def log_input_stats(self, stats: InputStats) -> None:
        """Logs what was unusual about the input."""
        if stats.undecodable:
            log.warning(
                f"{stats.undecodable:,} line(s) were not valid UTF-8 (the first: line "
                f"{stats.first_undecodable:,}); invalid bytes were read as U+FFFD"
            )
        if stats.malformed:
            log.warning(
                f"{stats.malformed:,} line(s) have markup that does not parse (the first: line "
                f"{stats.first_malformed:,}) and were translated as text; for whole pages use "
                "format=html"
            )
        if stats.nul:
            log.warning(
                f"{stats.nul:,} line(s) contain NUL characters (the first: line "
                f"{stats.first_nul:,})"
            )
        if stats.cut:
            limit = self._request.config.max_source_tokens
            log.warning(
                f"{stats.cut:,} line(s) were longer than max_source_tokens={limit} and were "
                "translated in parts"
            )
        if stats.short:
            log.warning(
                f"{stats.short:,} translation(s) have less than a quarter of the tokens of their "
                "line, so text may be missing: try split=sentences"
            )
        sources = self._request.trained.data.train
        if stats.untagged and all(source.tag for source in sources):
            log.warning(
                f"{stats.untagged:,} line(s) have no tag, but this model was trained with tags: "
                f"set tag ({tag_names(self._request.tokenizer.tags)})"
            )

    def process_bytes(self, raw: Sequence[bytes], first_line: int) -> tuple[bytes, InputStats]:
        """The output for input lines of any bytes, without line feeds.

        The first of the lines has the number ``first_line`` in the input, from 1.
        """
        lines, undecodable, nul = [], [], []
        for number, line in enumerate(raw, first_line):
            try:
                lines.append(line.decode())
            except UnicodeDecodeError:
                lines.append(line.decode(errors="replace"))
                undecodable.append(number)
            if b"\0" in line:
                nul.append(number)
        translator = self._translator
        cut_before, short_before = translator.cut_lines, translator.short_translations
        tagged = translator.with_tag(lines, self._job.tag)
        tags, malformed, untagged = translator.tokenizer.tags, list[int](), 0
        for number, source in enumerate(tagged, first_line):
            tag, text = split_tag(source, tags)
            untagged += bool(tags and not tag and text.strip())
            if self._job.markup == "keep" and is_malformed(text):
                malformed.append(number)
        rows = map(self._format, lines, self._process(tagged, first_line))
        return "\n".join([*rows, ""]).encode(), InputStats(
            undecodable=len(undecodable),
            first_undecodable=min(undecodable, default=0),
            malformed=len(malformed),
            first_malformed=min(malformed, default=0),
            nul=len(nul),
            first_nul=min(nul, default=0),
            cut=translator.cut_lines - cut_before,
            short=translator.short_translations - short_before,
            untagged=untagged,
        )

    def _process(self, lines: list[str], first_line: int) -> list[list[Translation]]:
        """The translations of lines, best first, or the scores of given ones."""
        nbest = self._job.nbest
        if self._segments is not None:
            return self._segments.translate_nbest(lines, nbest)
        aligned = None
        if self.aligned_file is not None:
            aligned = self.aligned_file.read(first_line, len(lines))
            if self._job.score is not None:
                return [[scored] for scored in self._translator.score(lines, aligned)]
        return self._translator.translate_nbest(
            lines, nbest, prefixes=aligned, align=self._job.alignment
        )

    def _format(self, source: str, translations: Sequence[Translation]) -> str:
        """The output line of an input line and its translations, best first."""
        if self._job.format == "jsonl":
            row = {"source": source, "translations": [asdict(each) for each in translations]}
            return json.dumps(row, ensure_ascii=False)
        best = translations[0]
        return best.text if self._job.score is None else f"{best.score:.6f}"


def check_outputs(outputs: Mapping[str, str | None], inputs: Iterable[tuple[str, Path]]) -> None:
    """Refuses an output (setting → path) that cannot be written, before any work is done for it.

    Args:
        outputs: Files to write. A pipe or a device, such as /dev/null, is never refused.
        inputs: Files and folders that must not be overwritten; each is preceded by what it is
            called in messages.

    Raises:
        InputError: An output is a folder or in none, or would overwrite an input or another output.
    """
    taken = [*inputs]
    for key, value in outputs.items():
        if value is None:
            continue
        path = files.expand_user(value)
        target = path.resolve()
        if target.is_dir():
            raise InputError(f"{key}={value} is a folder: name a file")
        if files.is_stream(path):
            continue
        if not target.parent.is_dir():
            raise InputError(f"{key}={value}: there is no folder {target.parent}; create it first")
        try:
            TemporaryFile(dir=target.parent).close()
        except OSError as error:
            raise InputError(
                f"{key}={value}: cannot write to the folder {target.parent}: {error.strerror}"
            ) from error
        for called, other in taken:
            # Not Path.exists, which raises if a parent folder is not readable.
            same = os.path.exists(path) and os.path.exists(other) and path.samefile(other)  # noqa: PTH110
            inside = target.is_file() and target.is_relative_to(other.resolve())
            if same or inside or target == other.resolve():
                raise InputError(
                    f"{key}={value} would overwrite the file of {called}: choose another file"
                )
        taken.append((key, path))
