"""Corpora that the program mtdata downloads by their names."""

import logging
import os
import re
import shutil
import subprocess
from pathlib import Path

from transformer_mt import InputError, files
from transformer_mt.config import SourceConfig
from transformer_mt.config.languages import base_language

log = logging.getLogger(__name__)

COMMAND = "mtdata"
"""mtdata's command. Its package pins rich and requests, and its index of corpora is a pickle. It
therefore runs as a separate process, from an environment of its own."""

_NAME = re.compile(r"[^\s/-]+(-[^\s/-]+){2}(-[A-Za-z]+(_[A-Za-z0-9]+)*){2}")


def download(source: SourceConfig, src_lang: str, tgt_lang: str) -> list[str]:
    """Downloads a corpus of two languages once, into the cache of mtdata (``MTDATA``).

    Returns:
        The files of its source and target lines.
    """
    name = source.name
    if not _NAME.fullmatch(name):
        raise InputError(
            f"mtdata={name!r} does not name a corpus of two languages, as "
            "Statmt-europarl-10-deu-eng does (mtdata list --id)"
        )
    languages = base_language(src_lang), base_language(tgt_lang)
    if set(languages) != set(map(base_language, name.split("-")[-2:])):
        raise InputError(f"{source} is not in {src_lang} and {tgt_lang}, as its name says")
    entry = files.expand_user(os.environ.get("MTDATA") or "~/.mtdata") / "transformer_mt" / name
    files.build_once(entry, lambda folder: _get(name, folder))
    return [str(_texts(entry)[language]) for language in languages]


def _get(name: str, folder: Path) -> None:
    """Downloads a corpus into a folder; mtdata leaves blank lines out."""
    if (program := shutil.which(COMMAND)) is None:
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


def _texts(folder: Path) -> dict[str, Path]:
    """The two files of text, ``train-parts/NAME.LANGUAGE.gz``, by language."""
    paths = folder.glob("train-parts/*.gz")
    return {
        base_language(path.name.split(".")[-2]): path for path in paths if ".meta." not in path.name
    }
