"""Packages of Argos Translate: their content, and what the real ``argostranslate`` does."""

import json
import os
import random
import subprocess
import sys
import zipfile
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import sentencepiece as spm
from support.errors import input_error
from support.model_folders import JOB, VOCAB_SIZE, vocabulary, write_model
from support.paths import ROOT
from support.tokenizers import random_lines

from transformer_mt import Translator, model_folder, run_layout
from transformer_mt import export as export_folder
from transformer_mt.config import ExportJob, TokenizerConfig, TrainJob
from transformer_mt.data.subwords.tokenizer import EOS
from transformer_mt.data.subwords.vocabulary_training import train_tokenizer

pytest.importorskip("ctranslate2")
TRAINED = ROOT / "tests/e2e/fixtures/run_2_3"
NAME = "transformer_mt-en_de"


def export(model: Path, output: Path, **more: Any) -> Path:
    export_folder(ExportJob(model=str(model), format="argos", output=str(output), **more))
    (archive,) = output.iterdir()
    return archive


def job(**data: Any) -> TrainJob:
    return replace(JOB, data=replace(JOB.data, **data))


@pytest.mark.parametrize(("compute_type", "loaded"), [(None, "int8_float32"), ("float32",) * 2])
def test_content(tmp_path: Path, compute_type: str | None, loaded: str) -> None:
    import ctranslate2

    write_model(tmp_path / "model", job(src_lang="eng_Latn", tgt_lang="nds"))
    archive = export(tmp_path / "model", tmp_path / "out", compute_type=compute_type)
    assert archive.name == "transformer_mt-en_nds.argosmodel"
    with zipfile.ZipFile(archive) as package:
        assert {name for name in package.namelist() if not name.endswith("/")} == {
            f"transformer_mt-en_nds/{name}"
            for name in ("metadata.json", "sentencepiece.model", "model/model.bin",
                         "model/config.json", "model/shared_vocabulary.json")
        }  # fmt: skip
        package.extractall(tmp_path)
    folder = tmp_path / "transformer_mt-en_nds"
    assert json.loads((folder / "metadata.json").read_text()) == {
        "package_version": "1.0",
        "argos_version": "1.10",
        "from_code": "en",
        "from_name": "English",
        "to_code": "nds",
        "to_name": "nds",  # no name is listed
    }
    model = (tmp_path / "model" / run_layout.TOKENIZER).read_bytes()
    assert (folder / "sentencepiece.model").read_bytes() == model
    assert ctranslate2.Translator(str(folder / "model")).compute_type == loaded


def test_what_argos_translate_cannot_do_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for number, normalization in enumerate(("moses", "moses_lowercase")):
        write_model(tmp_path / f"{number}", job(normalization=normalization))
        with input_error(rf"needs data\.normalization={normalization}, which"):
            export(tmp_path / f"{number}", tmp_path / "out")
    write_model(tmp_path / "tagged")
    tagged = train_tokenizer(random_lines(), TokenizerConfig(vocab_size=VOCAB_SIZE), ["<2de>"])
    (tmp_path / "tagged" / run_layout.TOKENIZER).write_bytes(tagged)
    with input_error("needs tags such as <2de>, which"):
        export(tmp_path / "tagged", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert not caplog.records
    write_model(tmp_path / "nfc", job(normalization="nfc"))
    export(tmp_path / "nfc", tmp_path / "out")
    assert "does not apply data.normalization=nfc" in caplog.text


def write_two_vocabularies(folder: Path) -> None:
    write_model(folder, replace(JOB, model=replace(JOB.model, tied_embeddings="decoder")))
    (folder / run_layout.TOKENIZER).unlink()
    greek = str.maketrans("abcdehst", "αβγδεησθ")
    sides = random_lines(), [line.translate(greek) for line in random_lines()]
    for name, lines in zip(run_layout.SIDE_TOKENIZERS, sides, strict=True):
        (folder / name).write_bytes(vocabulary(tuple(lines), VOCAB_SIZE))


ARGOS = """
import json, sys
from pathlib import Path
from argostranslate import package, translate
# One sentence a line: the splitter's model would be downloaded.
translate.MiniSBDSentencizer.split_sentences = lambda self, text: [text]
given = json.load(sys.stdin)
package.install_from_path(Path(given["archive"]))
(installed,) = package.get_installed_packages()
translation = translate.get_translation_from_codes("en", "de")
json.dump({
    "name": str(translation),
    "texts": [translation.translate(line) for line in given["lines"]],
    "joined": [installed.tokenizer.decode(pieces) for pieces in given["pieces"]],
}, sys.stdout)
"""
INSTALLED = pytest.mark.skipif(
    find_spec("argostranslate") is None, reason="argostranslate is not installed"
)


def run_argos(
    archive: Path, home: Path, lines: list[str], pieces: list[list[str]]
) -> dict[str, Any]:
    """What argostranslate makes of a package, greedily in float32 and without the network."""
    folders = ("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME")
    settings = {"PACKAGES_DIR": str(home / "p"), "COMPUTE_TYPE": "float32", "BEAM_SIZE": "1"}
    env = {**os.environ, **dict.fromkeys(folders, str(home))}
    env |= {f"ARGOS_{name}": value for name, value in settings.items()}
    done = subprocess.run(
        [sys.executable, "-c", ARGOS],
        input=json.dumps({"archive": str(archive), "lines": lines, "pieces": pieces}),
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


@INSTALLED
def test_argos_translate_gives_our_translations(tmp_path: Path) -> None:
    """Greedily, as its beam search has another length penalty."""
    archive = export(TRAINED, tmp_path / "out", compute_type="float32")
    rng = random.Random(1)
    lines = [" ".join(rng.choices("abcdefgh", k=rng.randint(1, 9))) for _ in range(400)]
    lines += ["Grüße, 中文 und 🙂", "x_y", "a\u00a0b  c"]
    result = run_argos(archive, tmp_path, lines, [])
    assert result["name"] == "English → German"
    translator = Translator.load(TRAINED, engine="torch", beam_size=1, max_extra_tokens=99)
    ours = [best[0] for best in translator.translate_nbest(lines, 1)]
    for text, own in zip(result["texts"], ours, strict=True):
        ended = own.tokens < 99  # some never end, neither here nor there
        assert text == own.text if ended else text.startswith(own.text)
    assert len(set(result["texts"])) > 5
    assert sum(own.tokens < 99 for own in ours) > 200


@INSTALLED
@pytest.mark.parametrize("joint", [True, False])
def test_argos_translate_joins_pieces_as_we_do(tmp_path: Path, joint: bool) -> None:
    """Bytes as well, and of two vocabularies the target's pieces with the source's model."""
    write_model(tmp_path / "model") if joint else write_two_vocabularies(tmp_path / "model")
    tokenizer, _ = model_folder.load_tokenizer(tmp_path / "model")
    archive = export(tmp_path / "model", tmp_path / "out")
    texts = ["grüßt 中文 🙂", "the dog sleeps", "η ρoteς", " ä"]
    ids = tokenizer.tgt.encode(texts)
    rng = random.Random(1)
    ids += [rng.choices(range(EOS + 1, VOCAB_SIZE), k=rng.randint(1, 9)) for _ in range(200)]
    result = run_argos(archive, tmp_path, [], [tokenizer.tgt.pieces(line) for line in ids])
    ours = [line.replace("_", " ") for line in tokenizer.tgt.decode(ids)]
    assert [line.strip() for line in result["joined"]] == [line.strip() for line in ours]
    assert any("🙂" in line for line in result["joined"])
    assert not any("<0x" in line for line in result["joined"])
    # The model that Argos Translate is given for the source is the source's.
    own = tokenizer.serialized
    with zipfile.ZipFile(archive) as package:
        sentencepiece = package.read(f"{NAME}/sentencepiece.model")
    assert spm.SentencePieceProcessor(model_proto=sentencepiece).serialized_model_proto() == own
