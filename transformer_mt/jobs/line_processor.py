"""Translation, or scoring, of the lines of a job: one line of output for each."""

import hashlib
import json
import logging
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from pkgutil import resolve_name
from tempfile import TemporaryFile
from typing import Any

from transformer_mt import __version__, files
from transformer_mt.config import TranslateJob
from transformer_mt.data.text.lines import read_lines
from transformer_mt.data.text.tags import UNTAGGED, check_tag, tag_names, untagged
from transformer_mt.decode.engine import EngineRequest
from transformer_mt.decode.translator import Translator
from transformer_mt.errors import InputError
from transformer_mt.protocols import Document, LineTranslator, Translation
from transformer_mt.registries import MARKUP

log = logging.getLogger(__name__)

CHUNK_LINES = {"cpu": 2048, "cuda": 16384}
"""Number of lines translated at a time, by type of device: enough to fill batches with sentences of
similar length."""


_UNUSUAL = {
    "undecodable": "line(s) were not valid UTF-8 (the first: line {first:,}); invalid bytes were "
    "read as U+FFFD",
    "cut": "line(s) have sentences of more than max_source_tokens={limit} tokens, which were "
    "translated in parts",
    "empty": "line(s) with text have an empty translation (the first: line {first:,})",
    "short": "translation(s) have less than half of the tokens of their line, so text may be "
    "missing",
    "untagged": UNTAGGED,
}
"""Kinds of unusual lines, and what is logged after the number of each."""


@dataclass
class InputStats:
    """Number of lines translated, and of those of each unusual kind.

    The kinds are those of ``_UNUSUAL``, without those that do not occur.
    """

    lines: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    first: dict[str, int] = field(default_factory=dict)
    """Number of the first line of each kind that is found line by line."""

    def add(self, kind: str, line: int | None, count: int = 1) -> None:
        """Adds lines of a kind, the first of which has this number, if it is known."""
        self.counts[kind] = self.counts.get(kind, 0) + count
        if line is not None:
            self.first.setdefault(kind, line)


class LineProcessor:
    """Translates the lines of a job, or scores given translations of them.

    The job is checked and its models are opened; see ``translate`` for the errors.

    Args:
        job: What to translate with.
        document: What the lines belong to. Their markup is kept, as with the job's ``markup``.
    """

    def __init__(self, job: TranslateJob, document: Document | None = None):
        if job.output is not None and (suffix := Path(job.output).suffix) in files.COMPRESSED:
            raise InputError(
                f"output={job.output}: the output is plain text; leave out {suffix}, and compress "
                "the file afterwards"
            )
        self._job = job
        self._request = request = EngineRequest(job)
        if job.output is not None:
            inputs = [(key, getattr(job, key)) for key in ("input", "prefix", "score")]
            check_output("output", job.output, inputs)
        if job.tag is not None:
            check_tag(job.tag, request.tokenizer.tags)
        request.config.check_nbest(job.nbest)
        self._translator = Translator.open(request)
        self.chunk_lines = CHUNK_LINES[request.device]
        """Number of lines translated at a time."""
        self.stats = InputStats()
        """Lines so far; of a job that resumes, from the beginning of its input."""
        self._wrapped: LineTranslator = self._translator
        if document is not None or job.markup == "keep":
            unplaced = None if document is None else document.unplaced
            self._wrapped = resolve_name(MARKUP)(self._translator, unplaced)
        # A document reports its own, and a given translation may be empty.
        self._counts_empty = document is None and job.score is None
        # Beginnings of translations, or translations to score; one for each line of the input.
        aligned = job.prefix or job.score
        self._aligned = None if aligned is None else list(read_lines(aligned))

    @property
    def languages(self) -> tuple[str, str]:
        """Source and target language of the lines."""
        return self._translator.normalizer.languages(self._job.tag or "")

    def output_settings(self) -> dict[str, Any]:
        """Everything that the output depends on, the input aside, as JSON values."""
        aligned = "\n".join(self._aligned or ()).encode()
        engine, job = self._translator.engine, self._job
        settings = {
            "version": __version__,
            "model": [folder.checksum for folder in self._request.folders],
            "engine": [engine.name, engine.compute_type],
            **asdict(self._request.config),
            **{key: getattr(job, key) for key in ("nbest", "format", "markup", "alignment", "tag")},
            "aligned": hashlib.sha256(aligned).hexdigest(),
            "score": job.score is not None,
        }
        del settings["batch_tokens"]  # changes no translation; may be lowered for a second attempt
        return settings

    def check_line_count(self, num_lines: int, at_least: str = "") -> None:
        """Raises ``InputError`` unless the file of ``prefix`` or ``score`` has a line for each."""
        if self._aligned is None or len(self._aligned) == num_lines:
            return
        key = "prefix" if self._job.prefix else "score"
        raise InputError(
            f"{key}={getattr(self._job, key)} has {len(self._aligned):,} line(s), but the input "
            f"has {at_least}{num_lines:,}: both must have the same number of lines"
        )

    def log_input_stats(self) -> None:
        """Logs what was unusual about the input."""
        for kind, message in _UNUSUAL.items():
            if count := self.stats.counts.get(kind):
                text = message.format(
                    first=self.stats.first.get(kind),
                    limit=self._request.config.max_source_tokens,
                    tags=tag_names(self._request.tokenizer.tags),
                )
                log.warning(f"{count:,} {text}")

    def process_bytes(self, raw: Sequence[bytes]) -> bytes:
        """The output for the next lines of the input, of any bytes, without line feeds."""
        lines, stats, first_line = list[str](), self.stats, self.stats.lines + 1
        for number, content in enumerate(raw, first_line):
            lines.append(content.decode(errors="replace"))
            if lines[-1].encode() != content:
                stats.add("undecodable", number)
        translator, tagged = self._translator, lines
        cut_before, short_before = translator.cut_lines, translator.short_translations
        if tags := self._request.tokenizer.tags:
            tagged = translator.with_tag(lines, self._job.tag)
            for i in untagged(tagged, self._request.trained.data, tags):
                stats.add("untagged", first_line + i)
        output = bytearray()
        found = self._translate(tagged)
        for number, (line, translations) in enumerate(zip(lines, found, strict=True), first_line):
            if self._counts_empty and translations[0].pieces and not translations[0].text:
                stats.add("empty", number)
            if self._job.format == "jsonl":
                row = {"source": line, "translations": list(map(asdict, translations))}
                text = json.dumps(row, ensure_ascii=False)
            elif self._job.score is not None:
                text = f"{translations[0].score:.6f}"
            else:
                text = translations[0].text
            output += f"{text}\n".encode()
        if cut := translator.cut_lines - cut_before:
            stats.add("cut", None, cut)
        if short := translator.short_translations - short_before:
            stats.add("short", None, short)
        stats.lines += len(lines)
        return bytes(output)

    def _translate(self, lines: list[str]) -> list[list[Translation]]:
        """The translations of the next lines, best first, or the scores of given ones."""
        nbest = self._job.nbest
        if self._wrapped is not self._translator:
            return self._wrapped.translate_nbest(lines, nbest)
        aligned = None
        if self._aligned is not None:
            end = self.stats.lines + len(lines)
            aligned = self._aligned[self.stats.lines : end]
            if len(aligned) < len(lines):
                self.check_line_count(end, "at least ")
            if self._job.score is not None:
                return [[scored] for scored in self._translator.score(lines, aligned)]
        return self._translator.translate_nbest(
            lines, nbest, prefixes=aligned, align=self._job.alignment
        )


def check_output(key: str, value: str, inputs: Iterable[tuple[str, str | Path | None]]) -> None:
    """Refuses an output that cannot be written, before any work is done for it.

    Args:
        key: The setting that names it.
        value: Its path. A pipe or a device, such as /dev/null, is never refused.
        inputs: Settings and the files, if any, that must not be overwritten.
    """
    path = files.expand_user(value)
    target = path.resolve()
    if target.is_dir():
        raise InputError(f"{key}={value} is a folder: name a file")
    if files.is_stream(path):
        return
    try:
        TemporaryFile(dir=target.parent).close()
    except OSError as error:
        raise InputError(
            f"{key}={value}: cannot write to the folder {target.parent}: {error.strerror}"
        ) from error
    for called, other in inputs:
        if other is not None and files.expand_user(other).resolve() == target:
            raise InputError(
                f"{key}={value} would overwrite the file of {called}: choose another file"
            )
