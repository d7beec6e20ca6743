"""Translation, or scoring, of the lines of a job: one line of output for each."""

import json
import logging
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from transformer_mt import __version__, files
from transformer_mt.config import TranslateJob
from transformer_mt.data.text.lines import COMPRESSED, AlignedFile
from transformer_mt.data.text.normalization import Normalizer
from transformer_mt.data.text.tags import check_tag, split_tag, tag_names
from transformer_mt.decode.engines.selection import EngineRequest
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


_UNUSUAL = {
    "undecodable": "line(s) were not valid UTF-8 (the first: line {first:,}); invalid bytes were "
    "read as U+FFFD",
    "malformed": "line(s) have markup that does not parse (the first: line {first:,}) and were "
    "translated as text; for whole pages use format=html",
    "nul": "line(s) contain NUL characters (the first: line {first:,})",
    "cut": "line(s) were longer than max_source_tokens={limit} and were translated in parts",
    "short": "translation(s) have less than a quarter of the tokens of their line, so text may be "
    "missing{advice}",
    "untagged": "line(s) have no tag, but this model was trained with tags: set tag ({tags})",
}
"""Kinds of unusual lines, and what is logged after the number of each."""


@dataclass(frozen=True)
class InputStats:
    """Counts of unusual input lines by kind (``_UNUSUAL``), without kinds that do not occur."""

    counts: dict[str, int] = field(default_factory=dict)
    first: dict[str, int] = field(default_factory=dict)
    """Number of the first line of each kind that is found line by line."""

    def __add__(self, following: "InputStats") -> "InputStats":
        """The counts of two consecutive parts of an input."""
        counts = Counter(self.counts) + Counter(following.counts)
        return InputStats({**counts}, following.first | self.first)


class LineProcessor:
    """Translates the lines of a job, or scores given translations of them.

    The job is checked and its models are opened; see ``translate_file`` for the errors.

    Args:
        job: What to translate with.
        device: Overrides the job's, for one of several ranks.
    """

    def __init__(self, job: TranslateJob, device: str | None = None):
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
            given=[*given],
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
        self._translator = Translator.open(request, job.engine, token_scores=job.format == "jsonl")
        self.chunk_lines = CHUNK_LINES[request.device.partition(":")[0]]
        """Number of lines translated at a time."""
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
        return {"model": self._request.checksums, **settings}

    def log_input_stats(self, stats: InputStats) -> None:
        """Logs what was unusual about the input."""
        if not stats.counts:
            return
        values = {
            "limit": self._request.config.max_source_tokens,
            "tags": tag_names(self._request.tokenizer.tags),
            "advice": "" if self._job.split == "sentences" else ": try split=sentences",
        }
        for kind, message in _UNUSUAL.items():
            if count := stats.counts.get(kind):
                log.warning(f"{count:,} {message.format(first=stats.first.get(kind), **values)}")

    def process_bytes(self, raw: Sequence[bytes], first_line: int) -> tuple[bytes, InputStats]:
        """The output for input lines of any bytes, without line feeds.

        The first of the lines has the number ``first_line`` in the input, from 1.
        """
        lines = list[str]()
        unusual: dict[str, list[int]] = {kind: [] for kind in _UNUSUAL}
        for number, line in enumerate(raw, first_line):
            try:
                lines.append(line.decode())
            except UnicodeDecodeError:
                lines.append(line.decode(errors="replace"))
                unusual["undecodable"].append(number)
            if b"\0" in line:
                unusual["nul"].append(number)
        translator = self._translator
        cut_before, short_before = translator.cut_lines, translator.short_translations
        tagged, tags = translator.with_tag(lines, self._job.tag), translator.tokenizer.tags
        needs_tag = tags and all(source.tag for source in self._request.trained.data.train)
        keeps_markup = self._job.markup == "keep"
        if needs_tag or keeps_markup:
            for number, source in enumerate(tagged, first_line):
                tag, text = split_tag(source, tags)
                if needs_tag and not tag and text.strip():
                    unusual["untagged"].append(number)
                if keeps_markup and is_malformed(text):
                    unusual["malformed"].append(number)
        rows = map(self._format, lines, self._process(tagged, first_line))
        output = "\n".join([*rows, ""]).encode()
        counts = {kind: len(numbers) for kind, numbers in unusual.items()}
        counts["cut"] = translator.cut_lines - cut_before
        counts["short"] = translator.short_translations - short_before
        first = {kind: numbers[0] for kind, numbers in unusual.items() if numbers}
        return output, InputStats({kind: n for kind, n in counts.items() if n}, first)

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
