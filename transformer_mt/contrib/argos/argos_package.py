"""``mt-export format=argos``: packages of Argos Translate and LibreTranslate."""

import json
import logging
import re
import shutil
from pathlib import Path

from transformer_mt import InputError
from transformer_mt.config.languages import base_language
from transformer_mt.protocols import LoadedFolder

_NAMES = """
ar Arabic az Azerbaijani be Belarusian bg Bulgarian bn Bengali bs Bosnian ca Catalan cs Czech
cy Welsh da Danish de German el Greek en English eo Esperanto es Spanish et Estonian eu Basque
fa Persian fi Finnish fr French ga Irish gl Galician gu Gujarati he Hebrew hi Hindi hr Croatian
hu Hungarian hy Armenian id Indonesian is Icelandic it Italian ja Japanese ka Georgian kk Kazakh
ko Korean ky Kyrgyz lt Lithuanian lv Latvian mk Macedonian ml Malayalam mr Marathi ms Malay
mt Maltese nb Norwegian nl Dutch no Norwegian pl Polish pt Portuguese ro Romanian ru Russian
sk Slovak sl Slovenian sq Albanian sr Serbian sv Swedish sw Swahili ta Tamil te Telugu th Thai
tl Tagalog tr Turkish uk Ukrainian ur Urdu uz Uzbek vi Vietnamese zh Chinese
"""
_ENGLISH_NAMES = dict(re.findall(r"(\w+) (\w+)", _NAMES))
_VOCABULARIES = ("tokenizer.model", "source.spm")
"""Names that a model folder may have for the vocabulary of the source."""

log = logging.getLogger(__name__)


def write_package(source: LoadedFolder, folder: Path, compute_type: str | None) -> str:
    """Writes a package that Argos Translate and LibreTranslate install: a zip of one folder.

    An ``ExportFormat``.
    """
    normalization, compute_type = source.trained.data.normalization, compute_type or "int8"
    needs = [f"tags such as {tag}" for tag in source.tags][:1]
    needs += [f"data.normalization={normalization}"] * normalization.startswith("moses")
    if needs:
        raise InputError(
            f"format=argos: this model needs {needs[0]}, which Argos Translate does not apply to "
            "its input; set format=ctranslate2"
        )
    codes = [base_language(lang) for lang in source.trained.data.languages(None)]
    package = folder / "transformer_mt-{}_{}".format(*codes)
    model = package / "model"
    model.mkdir(parents=True)
    source.write("ctranslate2", model, compute_type)
    # Of two vocabularies, that of the source: to join pieces it need not know them.
    vocabulary = next(filter(Path.exists, map(model.joinpath, _VOCABULARIES)))
    vocabulary.rename(package / "sentencepiece.model")
    metadata = {"package_version": "1.0", "argos_version": "1.10"}  # 1.9 does not join bytes
    for side, code in zip(("from", "to"), codes, strict=True):
        metadata |= {f"{side}_code": code, f"{side}_name": _ENGLISH_NAMES.get(code, code)}
    text = json.dumps(metadata, indent=2, ensure_ascii=False) + "\n"
    (package / "metadata.json").write_text(text, encoding="utf-8")
    archive = shutil.make_archive(str(package), "zip", folder, package.name)
    Path(archive).rename(package.with_suffix(".argosmodel"))
    shutil.rmtree(package)
    if normalization != "none":
        log.warning("Argos Translate does not apply data.normalization=%s", normalization)
    return f"a package of Argos Translate in {compute_type}"
