"""Corpora that the program mtdata downloads by their names."""

import logging
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from transformer_mt import InputError
from transformer_mt.config import SourceConfig
from transformer_mt.config.languages import base_language

log = logging.getLogger(__name__)

COMMAND = "mtdata"
"""mtdata's command. Its package pins rich and requests, and its index of corpora is a pickle. It
therefore runs as a separate process, from an environment of its own."""

_NAME = re.compile(r"[^\s/-]+(-[^\s/-]+){2}(-[A-Za-z]+(_[A-Za-z0-9]+)*){2}")


class MtdataCorpus:
    """A corpus of mtdata, from one of its two languages to the other."""

    def __init__(self, source: SourceConfig, src_lang: str, tgt_lang: str):
        assert source.mtdata is not None
        self._source, self._name = source, source.mtdata
        if not _NAME.fullmatch(self._name):
            raise InputError(
                f"mtdata={self._name!r} does not name a corpus of two languages, as "
                "Statmt-europarl-10-deu-eng does (mtdata list --id)"
            )
        self._languages = base_language(src_lang), base_language(tgt_lang)
        if set(self._languages) != set(map(base_language, self._name.split("-")[-2:])):
            raise InputError(f"{source} is not in {src_lang} and {tgt_lang}, as its name says")

    def fetch(self, folder: Path) -> None:
        """Downloads the corpus into a folder, as ``mtdata get`` does; it leaves blank lines out."""
        sibling, name = Path(sys.executable).with_name(COMMAND), self._name
        program = str(sibling) if sibling.exists() else shutil.which(COMMAND)
        if program is None:
            raise InputError(
                f"mtdata: {name} needs the program {COMMAND}, which is not installed; install it "
                f"in an environment of its own: pipx install {COMMAND}"
            )
        log.info("downloading %s with %s", name, program)
        langs = "-".join(name.split("-")[-2:])
        options = ["--langs", langs, "--train", name, "--compress", "--out", "."]
        # In the new folder, because mtdata imports each mtdata*.py of the folder where it runs.
        done = subprocess.run(
            [program, "--no-pbar", "get", *options],
            cwd=folder,
            capture_output=True,
            check=False,
            errors="replace",
        )
        if done.returncode or len(_texts(folder)) != 2:
            errors = [line.strip() for line in done.stderr.splitlines() if line.strip()]
            reason = errors[-1] if errors else f"exit status {done.returncode}"
            raise InputError(
                f"mtdata: {name} cannot be downloaded ({reason}): check the connection, and the "
                f"name with {COMMAND} list --id"
            )

    def files(self, folder: Path) -> SourceConfig:
        """The source as the two files that ``fetch`` wrote into a folder."""
        src, tgt = (str(_texts(folder)[lang]) for lang in self._languages)
        return replace(self._source, mtdata=None, src=src, tgt=tgt)


def _texts(folder: Path) -> dict[str, Path]:
    """The two files of text, ``train-parts/NAME.LANGUAGE.gz``, by language."""
    paths = folder.glob("train-parts/*.gz")
    return {
        base_language(path.name.split(".")[-2]): path for path in paths if ".meta." not in path.name
    }
