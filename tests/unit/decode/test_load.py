"""``Translator.load`` opens a model folder with the engine that ``mt-translate`` would use."""

from pathlib import Path

import pytest
from support.models import make_tokenizer, make_translator, random_lines, random_model

from transformer_mt import checkpoint as ckpt
from transformer_mt import model_folder, run_layout
from transformer_mt.config import DataConfig, SourceConfig, TrainJob
from transformer_mt.decode.translator import Translator
from transformer_mt.errors import InputError

LINES = random_lines(6, 5)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    folder.mkdir()
    model, source = random_model(), [SourceConfig(sample="train")]
    data = DataConfig(
        src_lang="en", tgt_lang="de", train=source, valid=source, normalization="none"
    )
    model_folder.write_config(folder, TrainJob(data=data, model=model.config))
    make_tokenizer(tmp_path)
    (tmp_path / "m").rename(folder / run_layout.TOKENIZER)
    ckpt.save_tensors(ckpt.parameters(model), folder / run_layout.WEIGHTS)
    return folder


def expected(folder: Path, members: int = 1) -> list[str]:
    model, tokenizer, job = model_folder.load_model(folder)
    return make_translator(
        model, tokenizer, job.decode, ensemble=[model] * (members - 1)
    ).translate(LINES)


def test_ctranslate2_is_the_default_on_a_cpu(folder: Path) -> None:
    pytest.importorskip("ctranslate2", reason="CTranslate2 is not installed (the extra 'fast')")
    translator = Translator.load(folder, device="cpu")
    assert translator.engine.name == "ctranslate2"
    assert translator.translate(LINES) == expected(folder)
    ((best,),) = translator.translate_nbest(LINES[:1], 1)
    assert len(best.piece_log_probs) == len(best.pieces)


def test_settings_that_need_torch(folder: Path) -> None:
    alone = Translator.load(folder, device="cpu", engine="torch")
    assert alone.engine.name == "torch"
    assert alone.translate(LINES) == expected(folder)
    both = Translator.load(folder, device="cpu", ensemble=[folder])
    assert both.engine.name == "torch"
    assert both.translate(LINES) == expected(folder, 2)
    assert Translator.load(folder, device="cpu", sampling=True).engine.name == "torch"


def test_unknown_names_are_refused(folder: Path) -> None:
    for settings in ({"engine": "fast"}, {"compute_type": "float8"}):
        with pytest.raises(InputError, match="is not one of"):
            Translator.load(folder, device="cpu", **settings)  # type: ignore[arg-type]


def test_missing_weights_are_explained(folder: Path) -> None:
    (folder / run_layout.WEIGHTS).unlink()
    with pytest.raises(InputError, match="has not reached the first checkpoint"):
        Translator.load(folder, device="cpu")
