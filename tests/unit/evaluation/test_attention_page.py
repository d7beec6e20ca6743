"""The weights of a sentence reach the page and the image as the model has them."""

import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from PIL import Image
from support.models import make_translator
from support.tokenizers import small_tokenizer

from transformer_mt.config import DecodeConfig, ModelConfig
from transformer_mt.data.subwords.tokenizer import BOS, EOS, Tokenizer
from transformer_mt.data.text.normalization import Normalizer
from transformer_mt.errors import InputError
from transformer_mt.evaluation.attention_page import (
    MAX_PIECES,
    Attention,
    compute_attention,
    to_data,
)
from transformer_mt.evaluation.attention_page import write_image as write_png
from transformer_mt.evaluation.report import write_attention_page
from transformer_mt.model.attention_maps import attention_maps
from transformer_mt.model.transformer import Transformer

LINES = ["the dog didn't run .", "the street was wide .", "der Hund lief $nicht$ .", "die Straße"]
SENTENCE = "The dog didn't run <b>$x$</b> ."


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    path = tmp_path_factory.mktemp("vocabulary") / "tokenizer.model"
    return small_tokenizer(path, LINES * 3, vocab_size=310)


@pytest.fixture(scope="module")
def model(tokenizer: Tokenizer) -> Transformer:
    torch.manual_seed(1)
    config = ModelConfig(
        d_model=16, d_ff=32, num_heads=2, num_encoder_layers=2, num_decoder_layers=1
    )
    return Transformer(config, tokenizer.vocab_size).eval()


def attend(sentence: str, model: Transformer, tokenizer: Tokenizer, **decode: int) -> Attention:
    config = DecodeConfig(beam_size=2, max_extra_tokens=3, **decode)
    normalizer = Normalizer("none", "en", "de")
    translator = make_translator(model, tokenizer, config, normalizer)
    return compute_attention(sentence, model, translator)


def test_pieces_and_weights_are_those_of_the_model(
    model: Transformer, tokenizer: Tokenizer
) -> None:
    found = attend(SENTENCE, model, tokenizer)
    (src,) = tokenizer.encode([SENTENCE])
    config, plain = DecodeConfig(beam_size=2, max_extra_tokens=3), Normalizer("none", "en", "de")
    ((best,),) = make_translator(model, tokenizer, config, plain).translate_nbest([SENTENCE], 1)
    tgt = [tokenizer.vocabulary.index(piece) for piece in best.pieces[:-1]]
    assert found.maps.src == [*tokenizer.pieces(src), "</s>"]
    assert found.maps.tgt_in == ["<s>", *tokenizer.pieces(tgt)]
    src, tgt = [*src, EOS], [BOS, *tgt]
    expected = attention_maps(model, src, tgt, tokenizer.pieces(src), tokenizer.pieces(tgt))
    data = to_data(found)["kinds"]
    for kind, maps in zip(data, (expected.encoder, expected.decoder, expected.cross), strict=True):
        assert len(kind["layers"]) == len(maps)
        for layer, weights in zip(kind["layers"], maps, strict=True):
            shape = (2, len(kind["queries"]), len(kind["keys"]))
            torch.testing.assert_close(
                torch.tensor(layer).view(shape) / 1000, weights, atol=5.1e-4, rtol=0
            )
    assert [(kind["queries"], kind["keys"]) for kind in data] == [
        (expected.src, expected.src),
        (expected.tgt_in, expected.tgt_in),
        (expected.tgt_in, expected.src),
    ]


def test_image_has_a_heat_map_for_every_layer_and_head(
    model: Transformer, tokenizer: Tokenizer, tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    write_png(attend(SENTENCE, model, tokenizer), tmp_path / "a.png")
    with Image.open(tmp_path / "a.png") as image:
        assert image.format == "PNG"
        assert image.height > 4 * 150  # 2 + 1 + 1 layers
        assert image.width > 2 * 150  # heads
        assert len(set(image.convert("L").resize((80, 80)).tobytes())) > 20
    assert [path.name for path in tmp_path.iterdir()] == ["a.png"]
    assert [str(warning.message) for warning in recwarn] == []


def test_the_page_escapes_the_sentence(
    model: Transformer, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    write_attention_page(tmp_path / "a.html", attend(SENTENCE, model, tokenizer))
    html = (tmp_path / "a.html").read_text(encoding="utf-8")
    assert "The dog didn&#39;t run &lt;b&gt;$x$&lt;/b&gt; ." in html
    assert "<b>$" not in html


def test_too_long_sentence_is_refused(model: Transformer, tokenizer: Tokenizer) -> None:
    with pytest.raises(
        InputError, match=rf"has \d+ pieces, but a heat map shows at most {MAX_PIECES}"
    ):
        attend("dog " * 201, model, tokenizer)
    with pytest.raises(InputError, match="too long for this model"):
        attend("dog " * 20, model, tokenizer, max_source_tokens=10)


def page(attention: Attention, path: Path) -> None:
    write_attention_page(path, attention)


@pytest.mark.parametrize(("write", "start"), [(page, b"<!doctype"), (write_png, b"\x89PNG")])
def test_image_can_be_written_to_a_pipe(
    write: Callable[[Attention, Path], None],
    start: bytes,
    model: Transformer,
    tokenizer: Tokenizer,
    tmp_path: Path,
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append(pipe.read_bytes()), daemon=True)
    reader.start()
    write(attend(SENTENCE, model, tokenizer), pipe)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    reader.join(10)
    assert found[0].startswith(start)
    # A byte more or less, and the image would not be the one that a file gets.
    write(attend(SENTENCE, model, tokenizer), tmp_path / "file")
    assert found[0] == (tmp_path / "file").read_bytes()
