"""The weights of a sentence reach the page as the model has them."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from support.errors import input_error
from support.model_folders import JOB, load_folder, write_model

from transformer_mt import Translator
from transformer_mt.contrib.report.attention import (
    Attention,
    compute_attention,
    main,
)
from transformer_mt.data.subwords.tokenizer import BOS, EOS
from transformer_mt.model import attention_maps as model_maps

LINES = ["the dog didn't run .", "the street was wide .", "der Hund lief $nicht$ .", "die Straße"]
SENTENCE = "The dog didn't run <b>$x$</b> ."


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained model of two encoder layers and one decoder layer."""
    folder = tmp_path_factory.mktemp("parent") / "model"
    job = replace(JOB, model=replace(JOB.model, num_encoder_layers=2))
    write_model(folder, job, text=LINES * 3, size=310)
    return folder


def opened(model: Path) -> Translator:
    return Translator.load(model, device="cpu", engine="torch")


def attend(model: Path, sentence: str = SENTENCE) -> Attention:
    return compute_attention(opened(model), sentence)


def test_pieces_and_weights_are_those_of_the_model(model: Path) -> None:
    found = attend(model)
    network, tokenizer, _ = load_folder(model)
    src = tokenizer.encode(SENTENCE)
    ((best,),) = opened(model).translate_nbest([SENTENCE], 1)
    assert found.translation == best.text
    tgt = [tokenizer.vocabulary.index(piece) for piece in best.pieces[:-1]]
    src, tgt = [*src, EOS], [BOS, *tgt, EOS]
    src_pieces, tgt_pieces = tokenizer.pieces(src), tokenizer.pieces(tgt)
    expected = model_maps.attention_maps(network, src, tgt[:-1])
    names = ["cross-attention to the source", "decoder self-attention", "encoder self-attention"]
    assert [kind.name for kind in found.kinds] == names
    for kind, maps in zip(
        found.kinds, [expected[name] for name in ("cross", "decoder", "encoder")], strict=True
    ):
        assert len(kind.layers) == len(maps)
        for layer, weights in zip(kind.layers, maps, strict=True):
            shape = (2, len(kind.queries), len(kind.keys))
            torch.testing.assert_close(
                torch.tensor(layer).view(shape) / 1000, weights, atol=5.1e-4, rtol=0
            )
    assert [(kind.queries, kind.keys) for kind in found.kinds] == [
        (tgt_pieces[1:], src_pieces),
        (tgt_pieces[1:], tgt_pieces[:-1]),
        (src_pieces, src_pieces),
    ]


def test_a_sentence_in_capitals_is_shown_as_it_is_translated(model: Path) -> None:
    usual, capitals = (attend(model, text) for text in ("The Street .", "THE STREET ."))
    assert capitals.kinds == usual.kinds
    assert capitals.translation == usual.translation.upper()


def test_too_long_sentence_is_refused(model: Path) -> None:
    translator = opened(model)
    translator.max_source_tokens = 10
    for sentence in ("dog " * 20, "The dog didn't run. " * 2):
        with input_error("too long for this model"):
            compute_attention(translator, sentence)
    with input_error("the sentence is empty"):
        attend(model, " ")


def test_the_command_prints_the_translation_and_writes_the_weights(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.html"
    monkeypatch.setattr(sys, "argv", ["attention", str(model), SENTENCE, str(path)])
    main()
    assert capsys.readouterr() == (opened(model).translate([SENTENCE])[0] + "\n", "")
    assert "The dog didn&#39;t run &lt;b&gt;$x$&lt;/b&gt; ." in path.read_text(encoding="utf-8")


def test_a_mistake_on_the_command_line_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["attention", str(tmp_path / "none"), "x", "a.html"])
    with pytest.raises(SystemExit) as caught:
        main()
    out, err = capsys.readouterr()
    assert (caught.value.code, out) == (1, "")
    assert f"no model folder {tmp_path / 'none'}" in err.splitlines()[-1]
