"""Packages of Argos Translate: their content, and what Argos Translate makes of it."""

import json
import random
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sentencepiece as spm
import torch
from support.model_folders import JOB, VOCAB_SIZE, write_model
from support.paths import ROOT
from support.tokenizers import random_lines

from transformer_mt import Translator, model_folder, run_layout
from transformer_mt import checkpoint as ckpt
from transformer_mt import export as export_folder
from transformer_mt.config import ExportJob, TokenizerConfig, TrainJob
from transformer_mt.data.subwords.tokenizer import EOS, train_tokenizer
from transformer_mt.errors import InputError
from transformer_mt.model.transformer import Transformer

ctranslate2 = pytest.importorskip("ctranslate2")
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
        with pytest.raises(InputError, match=rf"needs data\.normalization={normalization}, which"):
            export(tmp_path / f"{number}", tmp_path / "out")
    write_model(tmp_path / "tagged")
    tagged = train_tokenizer(random_lines(), TokenizerConfig(vocab_size=VOCAB_SIZE), ["<2de>"])
    (tmp_path / "tagged" / run_layout.TOKENIZER).write_bytes(tagged)
    with pytest.raises(InputError, match="needs tags such as <2de>, which") as caught:
        export(tmp_path / "tagged", tmp_path / "out")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()
    assert not caplog.records
    write_model(tmp_path / "nfc", job(normalization="nfc"))
    export(tmp_path / "nfc", tmp_path / "out")
    assert "does not apply data.normalization=nfc" in caplog.text


def write_two_vocabularies(folder: Path) -> None:
    config = replace(JOB.model, tied_embeddings="decoder")
    folder.mkdir()
    model_folder.write_config(folder, replace(JOB, model=config))
    settings, greek = TokenizerConfig(vocab_size=VOCAB_SIZE), str.maketrans("abcdehst", "αβγδεησθ")
    for name, lines in zip(
        run_layout.SIDE_TOKENIZERS,
        (random_lines(), [line.translate(greek) for line in random_lines()]),
        strict=True,
    ):
        (folder / name).write_bytes(train_tokenizer(lines, settings))
    torch.manual_seed(1)
    model = Transformer(config, VOCAB_SIZE, VOCAB_SIZE)
    ckpt.save_tensors(ckpt.parameters(model), folder / run_layout.WEIGHTS)


class Argos:
    """What ``argostranslate`` 1.10.0 does with a package, but that it splits no sentences."""

    def __init__(self, archive: Path, folder: Path):
        with zipfile.ZipFile(archive) as package:
            package.extractall(folder)
        self.model = ctranslate2.Translator(str(folder / NAME / "model"))
        vocabulary = str(folder / NAME / "sentencepiece.model")
        self.pieces = spm.SentencePieceProcessor(model_file=vocabulary)

    def decode(self, pieces: list[str]) -> str:
        text: str = self.pieces.decode_pieces(pieces)
        return text.replace("▁", " ").replace("_", " ")

    def translate(self, lines: list[str]) -> list[str]:
        """Greedily, as its beam search has another length penalty."""
        encoded = self.pieces.encode(lines, out_type=str)
        found = self.model.translate_batch(encoded, replace_unknowns=True, beam_size=1)
        return [self.decode(best.hypotheses[0]).removeprefix(" ") for best in found]


def test_argos_translate_gives_our_translations(tmp_path: Path) -> None:
    archive = export(TRAINED, tmp_path / "out", compute_type="float32")
    rng = random.Random(1)
    lines = [" ".join(rng.choices("abcdefgh", k=rng.randint(1, 9))) for _ in range(100)]
    lines += ["Grüße, 中文 und 🙂", "x_y", "a\u00a0b  c"]
    translator = Translator.load(TRAINED, engine="torch", beam_size=1, max_extra_tokens=99)
    ours = [best[0] for best in translator.translate_nbest(lines, 1)]
    for text, own in zip(Argos(archive, tmp_path).translate(lines), ours, strict=True):
        ended = own.tokens < 99  # some never end, neither here nor there
        assert text == own.text if ended else text.startswith(own.text)
    assert len({own.text for own in ours}) > 5
    assert sum(own.tokens < 99 for own in ours) > 50


@pytest.mark.parametrize("joint", [True, False])
def test_argos_translate_joins_pieces_as_we_do(tmp_path: Path, joint: bool) -> None:
    """Bytes as well, and of two vocabularies the target's pieces with the source's model."""
    write_model(tmp_path / "model") if joint else write_two_vocabularies(tmp_path / "model")
    tokenizer, _ = model_folder.load_tokenizer(tmp_path / "model")
    argos = Argos(export(tmp_path / "model", tmp_path / "out"), tmp_path)
    ids = tokenizer.tgt.encode(["grüßt 中文 🙂", "the dog sleeps", "η ρoteς", " ä"])
    rng = random.Random(1)
    ids += [rng.choices(range(EOS + 1, VOCAB_SIZE), k=rng.randint(1, 9)) for _ in range(200)]
    joined = [argos.decode(tokenizer.tgt.pieces(line)) for line in ids]
    ours = [line.replace("_", " ") for line in tokenizer.tgt.decode(ids)]
    assert [line.strip() for line in joined] == [line.strip() for line in ours]
    assert any("🙂" in line for line in joined)
    assert not any("<0x" in line for line in joined)
    # The model that Argos Translate is given for the source is the source's.
    assert argos.pieces.serialized_model_proto() == tokenizer.serialized
