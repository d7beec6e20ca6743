"""``mt-export format=argos``: packages of Argos Translate and LibreTranslate."""

import json
import logging
import shutil
from pathlib import Path

from transformer_mt import InputError, LoadedFolder
from transformer_mt.config.languages import base_language, language_name

log = logging.getLogger(__name__)


def write_package(source: LoadedFolder, folder: Path, compute_type: str | None) -> str:
    """Writes a package that Argos Translate and LibreTranslate install: a zip of one folder.

    An ``ExportFormat``.
    """
    normalization, compute_type = source.trained.data.normalization, compute_type or "int8"
    needs = [f"tags such as {tag}" for tag in source.tokenizer.tags][:1]
    needs += [f"data.normalization={normalization}"] * normalization.startswith("moses")
    if needs:
        raise InputError(
            f"format=argos: this model needs {needs[0]}, which Argos Translate does not apply to "
            "its input; set format=ctranslate2"
        )
    codes = [base_language(lang) for lang in source.trained.data.languages()]
    package = folder / "transformer_mt-{}_{}".format(*codes)
    model = package / "model"
    model.mkdir(parents=True)
    source.write("ctranslate2", model, compute_type)
    # Of two vocabularies, that of the source: to join pieces it need not know them.
    names = "tokenizer.model", "source.spm"
    vocabulary = next(filter(Path.exists, map(model.joinpath, names)))
    vocabulary.rename(package / "sentencepiece.model")
    metadata = {"package_version": "1.0", "argos_version": "1.10"}  # 1.9 does not join bytes
    for side, code in zip(("from", "to"), codes, strict=True):
        metadata |= {f"{side}_code": code, f"{side}_name": language_name(code)}
    text = json.dumps(metadata, indent=2, ensure_ascii=False) + "\n"
    (package / "metadata.json").write_text(text, encoding="utf-8")
    archive = shutil.make_archive(str(package), "zip", folder, package.name)
    Path(archive).rename(package.with_suffix(".argosmodel"))
    shutil.rmtree(package)
    if normalization != "none":
        log.warning("Argos Translate does not apply data.normalization=%s", normalization)
    return f"a package of Argos Translate in {compute_type}"
