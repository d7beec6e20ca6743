"""Corpora that the program mtdata downloads by their names."""

import logging
import subprocess
from dataclasses import replace
from pathlib import Path

from transformer_mt import files
from transformer_mt.config import SourceConfig
from transformer_mt.data.text.languages import base_language
from transformer_mt.errors import InputError, printable

log = logging.getLogger(__name__)

COMMAND = "mtdata"
"""mtdata's command. Its package pins rich and requests, and its index of corpora is a pickle. It
therefore runs as a separate process, from an environment of its own."""


def check_languages(source: SourceConfig, src_lang: str, tgt_lang: str) -> None:
    """Raises ``InputError`` unless a corpus is in these languages, as its name says."""
    assert source.mtdata is not None
    languages = {base_language(lang) for lang in source.mtdata.split("-")[-2:]}
    if languages != {base_language(src_lang), base_language(tgt_lang)}:
        raise InputError(f"{source} is not in {src_lang} and {tgt_lang}, as its name says")


def download(name: str, folder: Path) -> None:
    """Downloads a corpus into a folder, as ``mtdata get`` does; it leaves blank lines out.

    Raises:
        InputError: The program is not installed, or cannot download the corpus.
    """
    program = files.find_program(COMMAND)
    if program is None:
        raise InputError(
            f"mtdata: {name} needs the program {COMMAND}, which is not installed; install it in an "
            f"environment of its own: pipx install {COMMAND}"
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
        reason = printable(errors[-1]) if errors else f"exit status {done.returncode}"
        raise InputError(
            f"mtdata: {name} cannot be downloaded ({reason}): check the connection, and the name "
            f"with {COMMAND} list --id"
        )


def as_files(source: SourceConfig, folder: Path, src_lang: str, tgt_lang: str) -> SourceConfig:
    """The source as the two files that ``download`` wrote into a folder."""
    texts = _texts(folder)
    if len(texts) != 2:
        raise InputError(f"{folder} is damaged: delete the folder; it will be downloaded again")
    src, tgt = (str(texts[base_language(lang)]) for lang in (src_lang, tgt_lang))
    return replace(source, mtdata=None, src=src, tgt=tgt)


def _texts(folder: Path) -> dict[str, Path]:
    """The two files of text, ``train-parts/NAME.LANGUAGE.gz``, by language."""
    paths = folder.glob("train-parts/*.gz")
    return {
        base_language(path.name.split(".")[-2]): path for path in paths if ".meta." not in path.name
    }
