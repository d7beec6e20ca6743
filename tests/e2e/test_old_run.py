"""The committed folder of an older version: it translates as before, and training resumes.

``fixtures/run_2_3`` has a model folder of format 2 and a checkpoint of format 3. It was
created on 2026-11-20 with the recipe of ``support.training_runs`` and the overrides below; of its
paths only the folder was changed. Later versions must read it, or the CHANGELOG must say that they
do not.
"""

import json
import shutil
from pathlib import Path

import pytest
from support.models import make_translator
from support.training_runs import Start, curve

from transformer_mt import model_folder
from transformer_mt.data.text.normalization import Normalizer

FOLDER = Path(__file__).parent / "fixtures/run_2_3"
OVERRIDES = [
    *("train.average_checkpoints=1", "train.precision=fp32", "train.max_steps=400"),
    *("train.checkpoint_every=400", "train.validate_every=400"),
]


def test_translations_are_unchanged() -> None:
    expected = json.loads((FOLDER / "translations.json").read_text(encoding="utf-8"))
    model, tokenizer, job = model_folder.load_model(FOLDER)
    translator = make_translator(model, tokenizer, job.decode, Normalizer.of(job.data))
    found = translator.translate_nbest(list(expected), 1)
    # Our own output, on purpose: the test is that it does not change.
    for (best,), (text, score) in zip(found, expected.values(), strict=True):
        assert best.text == text
        assert best.score == pytest.approx(score, abs=1e-4)


def test_training_resumes(tmp_path: Path, train: Start) -> None:
    run_dir = tmp_path / "run"
    shutil.copytree(FOLDER, run_dir)
    _, err = train(run_dir, *OVERRIDES, "train.max_steps=408").done()
    assert "resuming after update 400" in err
    assert [record[0] for record in curve(run_dir)] == [*range(8, 409, 8)]
