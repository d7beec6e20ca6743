"""MarianMT folders, as transformers writes them, used like model folders of ours."""

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import torch
import transformers
from support import fake_hub, marian_models
from support.errors import input_error
from support.fake_hub import read_files
from support.model_folders import Payload, load_folder

from transformer_mt import InputError, Translator, export, model_folder
from transformer_mt.batch import Packed
from transformer_mt.config import ExportJob, SearchConfig, TrainJob
from transformer_mt.conversion.marian_vocabulary import convert_vocabularies
from transformer_mt.data.subwords.tokenizer import BOS, EOS, PAD
from transformer_mt.decode.engines import ctranslate2_engine, torch_engine
from transformer_mt.model_folder import ModelFolder

RNG = random.Random(1)
WORDS = ["".join(RNG.choices("abcdefgh", k=RNG.randint(2, 6))) for _ in range(200)]
SOURCE = [" ".join(RNG.choices(WORDS, k=RNG.randint(1, 12))) for _ in range(400)]
TARGET = [line.upper().replace("A", "Ä") for line in SOURCE]
LINES = [*SOURCE[:8], ">>deu<< abc def", "“abc” — 1 000…", "Xyz ab", "ab Ä", ""]
"""As ``generate`` with ``max_new_tokens=25, length_penalty=0, early_stopping=True``."""


def write(
    folder: Path,
    *,
    separate: bool = False,
    start: bool = False,
    lacking: tuple[str, ...] = (),
    **settings: Any,
) -> Any:
    """A MarianMT folder, with ``start`` with an unused ``<s>``; returns its model.

    Pieces that are ``lacking`` are in the SentencePiece models only.
    """
    folder.mkdir()
    pieces = [
        marian_models.train_side(lines, folder / name, size)
        for lines, name, size in ((SOURCE, "source.spm", 90), (TARGET, "target.spm", 100))
    ]
    if separate:
        sizes = [
            len(marian_models.write_vocabulary(folder, [side], name=name, pad_first=True))
            for side, name in zip(pieces, ("vocab.json", "target_vocab.json"), strict=True)
        ]
        settings |= {"decoder_vocab_size": sizes[1], "share_encoder_decoder_embeddings": False}
        settings |= {"pad_token_id": 2, "decoder_start_token_id": 2}
    else:
        tags = [*["<s>"] * start, ">>deu<<"]
        kept = [[piece for piece in side if piece not in lacking] for side in pieces]
        sizes = [len(marian_models.write_vocabulary(folder, kept, tags))]
    marian_models.write_tokenizer_config(folder, "en", "pt_BR", separate_vocabs=separate)
    model = marian_models.random_model(sizes[0], scale=3, **settings)
    model.save_pretrained(folder)
    return model


@pytest.fixture(scope="module")
def marian(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    folder = tmp_path_factory.mktemp("marian") / "opus"
    return folder, write(folder)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return tmp_path / "cache"


def their_ids(folder: Path, lines: list[str]) -> list[list[int]]:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    ids: list[list[int]] = tokenizer([tokenizer.normalize(line) for line in lines])["input_ids"]
    return ids


@torch.inference_mode()
def largest_difference(folder: Path, model: Any) -> float:
    """The largest difference of the logits of some pairs, of what both vocabularies have."""
    ours, tokenizer, _ = load_folder(folder)
    theirs = json.loads((folder / "vocab.json").read_text())
    target = folder / "target_vocab.json"
    columns = json.loads(target.read_text()) if target.exists() else theirs
    start = model.config.decoder_start_token_id
    source_pieces, pieces = ({i: name for name, i in ids.items()} for ids in (theirs, columns))
    ids = {piece: i for i, piece in enumerate(tokenizer.tgt.vocabulary)}
    kept = [i for i, piece in pieces.items() if piece not in ("<pad>", "<s>")]
    differences = []
    for source in their_ids(folder, LINES[:-1]):
        tgt = [start, *(i % len(columns) for i in source)]
        tgt_in = Packed.from_sequences([[ids["<s>" if i == start else pieces[i]] for i in tgt]])
        src_ids = [tokenizer.vocabulary.index(source_pieces[i]) for i in source]
        src = Packed.from_sequences([src_ids])
        hidden = ours.decode(tgt_in, ours.encode(src), src)
        found = ours.logits(hidden)[:, [ids[pieces[i]] for i in kept]]
        expected = model(torch.tensor([source]), decoder_input_ids=torch.tensor([tgt])).logits[0]
        differences.append(float((found - expected[:, kept]).abs().max()))
        assert found.isfinite().all()
    return max(differences)


def their_translations(folder: Path, model: Any, lines: list[str], beam_size: int) -> list[str]:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    found = marian_models.generate(model, their_ids(folder, lines), beam_size, 25)
    return [tokenizer.decode(best, use_source_tokenizer=False) for best in found]


@pytest.mark.parametrize("old_format", [False, True])
def test_a_folder_cannot_run_code(
    old_format: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "opus"
    write(folder)
    (folder / "model.safetensors").unlink()
    file = folder / "pytorch_model.bin"
    torch.save({"x": Payload()}, file, _use_new_zipfile_serialization=not old_format)
    with pytest.raises(InputError, match="contains more than tensors; download it again"):
        model_folder.locate(folder)
    assert not (tmp_path / "HARMED").exists()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"d_model": None}, r"config\.json.* it has no d_model of type int"),
        ({"vocab_size": 99}, "its vocabulary has .* pieces, not vocab_size=99"),
        ({"encoder_ffn_dim": 64}, "encoder and decoder differ in ffn_dim: 64 and "),
        ({"decoder_start_token_id": 5}, "its decoder starts with .*, not with <pad> or <s>"),
        ({"decoder_layers": 5}, "has no tensor model.decoder.layers"),
        ({"model_type": "bart"}, "of type bart: .* only type marian can be used"),
        ({"activation_function": "mish"}, "activation_function=mish is not supported"),
    ],
)
def test_settings_that_are_refused(
    marian: tuple[Path, Any], settings: dict[str, Any], message: str, tmp_path: Path
) -> None:
    folder = shutil.copytree(marian[0], tmp_path / "opus")
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))
    with input_error(message) as error:
        model_folder.locate(folder)
    assert str(folder) in str(error.value)


@pytest.mark.parametrize("name", ["config.json", "vocab.json", "source.spm", "model.safetensors"])
def test_damaged_and_missing_files(marian: tuple[Path, Any], name: str, tmp_path: Path) -> None:
    folder = shutil.copytree(marian[0], tmp_path / "opus")
    content = (folder / name).read_bytes()
    for damaged in (content[: len(content) // 2], b""):
        (folder / name).write_bytes(damaged)
        with input_error(rf"{name}"):
            model_folder.locate(folder)
    (folder / name).unlink()
    if name != "config.json":  # without one it is not a MarianMT folder
        with pytest.raises((InputError, FileNotFoundError), match=name):
            model_folder.locate(folder)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"activation_function": "relu", "encoder_layers": 3, "tie_word_embeddings": False},
        {"activation_function": "gelu", "scale_embedding": False, "start": True},
        {"separate": True},
        {"separate": True, "tie_word_embeddings": False},
    ],
)
def test_logits_are_equal(settings: dict[str, Any], tmp_path: Path) -> None:
    model = write(tmp_path / "opus", **settings)
    assert largest_difference(tmp_path / "opus", model) < 1e-4
    # After an export as well, and after importing that again.
    output = tmp_path / "exported"
    export(ExportJob(model=str(tmp_path / "opus"), format="transformers", output=str(output)))
    again = transformers.AutoModelForSeq2SeqLM.from_pretrained(output)
    assert largest_difference(output, again.eval()) < 1e-4
    first, second = (model_folder.locate(folder) for folder in (tmp_path / "opus", output))
    assert {path.name for path in first.iterdir()} == {
        *("config.yaml", "model.safetensors", "source.spm", "target.spm")
    }
    for path in first.iterdir():
        if path.name != "config.yaml":  # has the name of the folder
            assert path.read_bytes() == (second / path.name).read_bytes(), path.name
    one, two = (model_folder.read_config(folder, TrainJob) for folder in (first, second))
    assert (one.model, one.data, one.decode) == (two.model, two.data, two.decode)


def test_pieces_are_equal(marian: tuple[Path, Any]) -> None:
    folder, _ = marian
    opened = ModelFolder(folder)
    tokenizer, job = opened.tokenizer, opened.trained
    data = job.data
    assert (data.src_lang, data.tgt_lang, data.normalization) == ("en", "pt_BR", "moses")
    assert tokenizer.vocabulary[:4] == ["<pad>", "<unk>", "<s>", "</s>"]
    pieces = {i: piece for piece, i in json.loads((folder / "vocab.json").read_text()).items()}
    normalizer = Translator.load(folder, engine="torch").normalizer
    found = [tokenizer.encode_source(line, normalizer) for line in LINES]
    for ids, theirs in zip(found, their_ids(folder, LINES), strict=True):
        assert [*tokenizer.pieces(ids), "</s>"] == [pieces[i] for i in theirs]
    assert tokenizer.pieces(found[-5])[0] == ">>deu<<"
    assert [*tokenizer.tags] == [">>deu<<"]
    translator = Translator.load(folder, engine="torch")
    assert translator.translate(["abc def"], ">>deu<<") == translator.translate([LINES[-5]])
    target = tokenizer.tgt.encode(TARGET[0])
    assert tokenizer.tgt.decode([BOS, *target, EOS, PAD]) == TARGET[0]


@pytest.mark.parametrize("model_type", ["unigram", "bpe"])
def test_text_is_split_as_by_the_original_models(model_type: str, tmp_path: Path) -> None:
    """By the models of a vocabulary in another order, which lacks some pieces."""
    names, sides = ("source.spm", "target.spm"), (SOURCE, TARGET)
    pieces = [
        marian_models.train_side(lines, tmp_path / name, 90, model_type)
        for lines, name in zip(sides, names, strict=True)
    ]
    order = sorted({*pieces[0], *pieces[1]})[5:]
    random.Random(2).shuffle(order)
    size = len(marian_models.write_vocabulary(tmp_path, [order]))
    settings = {"vocab_size": size, "decoder_start_token_id": size - 1}
    output = tmp_path / "converted"
    output.mkdir()
    convert_vocabularies(tmp_path, settings, output, separate=False)
    words = "".join(RNG.choices("abcdefghABCDEFGHÄ ▁é", k=3000)).split(" ")
    for name, lines in zip(names, ([*SOURCE, *TARGET, *words],) * 2, strict=True):
        before, after = (
            sentencepiece.SentencePieceProcessor(model_file=str(folder / name))
            for folder in (tmp_path, output)
        )
        assert after.encode(lines, out_type=str) == before.encode(lines, out_type=str)
        assert after.decode(after.encode(lines)) == before.decode(before.encode(lines))


@pytest.fixture
def at_most_24_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    for engine in (torch_engine, ctranslate2_engine):
        monkeypatch.setattr(engine, "max_output_tokens", lambda *_: 24)


@pytest.mark.usefixtures("at_most_24_tokens")
def test_pieces_that_the_vocabulary_lacks_act_as_unk(tmp_path: Path) -> None:
    folder = tmp_path / "opus"
    lacking = ("▁ga", "▁abd", "d", "B")
    model = write(folder, lacking=lacking)
    assert {*ModelFolder(folder).tokenizer.vocabulary[-4:]} == {*lacking}
    assert largest_difference(folder, model) < 1e-4
    expected = their_translations(folder, model, SOURCE[:20], 1)
    translator = Translator.load(folder, engine="torch", beam_size=1, length_penalty=0.0)
    # A language token in a translation is not text.
    assert translator.translate(SOURCE[:20]) == [x.replace(">>deu<<", "") for x in expected]


@pytest.mark.usefixtures("at_most_24_tokens")
@pytest.mark.parametrize(("engine", "beam_size"), [("torch", 1), ("torch", 4), ("ctranslate2", 4)])
def test_translations_are_equal(marian: tuple[Path, Any], engine: str, beam_size: int) -> None:
    folder, model = marian
    expected = their_translations(folder, model, LINES[:-1], beam_size)
    translator = Translator.load(folder, engine=engine, beam_size=beam_size, length_penalty=0.0)
    assert translator.translate(LINES) == [*expected, ""]


def test_half_precision_becomes_single(tmp_path: Path) -> None:
    folder = tmp_path / "opus"
    write(folder).half().save_pretrained(folder)
    model = transformers.MarianMTModel.from_pretrained(folder, dtype=torch.float32)
    assert largest_difference(folder, model.eval()) < 1e-4
    decode = model_folder.read_config(model_folder.locate(folder), TrainJob).decode
    # generate divides by |Y|^1; ((5 + |Y|) / 6)^1.25 prefers longer translations as much.
    assert decode == SearchConfig(beam_size=4, length_penalty=1.25, max_source_tokens=511)


@pytest.mark.parametrize("old_format", [False, True])
def test_a_pickle_is_read_without_running_it(old_format: bool, tmp_path: Path) -> None:
    from safetensors.torch import load_file

    folder, name = tmp_path / "opus", "model.safetensors"
    write(folder)
    expected = model_folder.locate(folder)
    tensors = load_file(folder / name)
    tensors["model.encoder.embed_positions.weight"] = torch.zeros(512, 16)
    file = folder / "pytorch_model.bin"
    torch.save(tensors, file, _use_new_zipfile_serialization=not old_format)
    (folder / name).unlink()
    found = model_folder.locate(folder)
    assert found != expected
    assert (found / name).read_bytes() == (expected / name).read_bytes()
    assert not list(found.glob("*.bin"))
    file.write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(InputError, match=r"pytorch_model\.bin is damaged: .*download it again"):
        model_folder.locate(folder)


def test_a_repository_of_the_hub(
    marian: tuple[Path, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = fake_hub.install(tmp_path / "hub", monkeypatch)
    files = read_files(marian[0]) | {"pytorch_model.bin": b"never", "tf_model.h5": b"never"}
    hub.push("Helsinki-NLP/opus-mt-en-de", files)
    translator = Translator.load("hf://Helsinki-NLP/opus-mt-en-de", engine="torch")
    assert {*hub.downloads} == {
        *("config.json", "generation_config.json", "model.safetensors"),
        *("source.spm", "target.spm", "vocab.json", "tokenizer_config.json"),
    }
    expected = Translator.load(marian[0], engine="torch")
    assert translator.translate(LINES[:3]) == expected.translate(LINES[:3])
