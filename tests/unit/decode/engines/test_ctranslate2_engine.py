"""CTranslate2 finds what our own search finds, in batches of any size, with the same scores."""

import random
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from test_translator import PLAIN, constant_model, make_tokenizer, random_lines, random_model

from transformer_mt.config import DecodeConfig
from transformer_mt.data.subwords.tokenizer import BOS, EOS, PAD, UNK, Tokenizer
from transformer_mt.decode.engines import ctranslate2_conversion as conversion
from transformer_mt.decode.engines.ctranslate2_engine import CTranslate2Translator, check_available
from transformer_mt.decode.translator import Translator
from transformer_mt.errors import InputError
from transformer_mt.model.transformer import Transformer

pytest.importorskip("ctranslate2", reason="CTranslate2 is not installed (the extra 'fast')")


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return make_tokenizer(tmp_path_factory.mktemp("vocabulary"))


@pytest.fixture
def left(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Fills with the lengths of the sentences that CTranslate2 leaves to our own search."""
    lengths: list[int] = []
    search = Translator._search

    def spy(self: Translator, sources: list[list[int]], nbest: int) -> Any:
        if isinstance(self, CTranslate2Translator):
            lengths.extend(map(len, sources))
        return search(self, sources, nbest)

    monkeypatch.setattr(Translator, "_search", spy)
    return lengths


def model_that_ends(logit: float, scale: float = 1.0, **config: Any) -> Transformer:
    """Random, but like a trained model it ends sentences, and never says a special symbol.

    The first dimension of its last hidden state is 1, and only these symbols have weights for it.
    """
    model = random_model(**config)
    last = model.decoder_norm if model.config.norm == "pre" else model.decoder[-1].residual3.norm
    with torch.no_grad():
        last.weight.fill_(scale)  # type: ignore[union-attr, operator]
        last.weight[0], last.bias[0] = 0, 1  # type: ignore[index, union-attr, operator]
        weights = model.embedding.weight
        weights[:, 0] = 0
        weights[[PAD, UNK, BOS], 0] = -30
        weights[EOS] = logit * torch.eye(model.config.d_model)[0]
    return model


def converted(folder: Path, model: Transformer, tokenizer: Tokenizer) -> Path:
    spec = conversion.specification(model, tokenizer)
    spec.validate()
    spec.optimize(quantization="float32")
    folder.mkdir()
    spec.save(str(folder))
    return folder


MODELS = {
    "post": lambda: model_that_ends(4.0, 1.5),
    "pre": lambda: model_that_ends(2.5, norm="pre"),
    "learned": lambda: model_that_ends(2.5, positions="learned", max_positions=40),
    "pre, learned": lambda: model_that_ends(3.0, norm="pre", positions="learned", max_positions=40),
}


@pytest.mark.parametrize("name", MODELS)
def test_equals_our_own_search(
    tmp_path: Path, tokenizer: Tokenizer, left: list[int], name: str
) -> None:
    model = MODELS[name]()
    folder = converted(tmp_path / "m", model, tokenizer)
    sources = tokenizer.encode(random_lines(25, 9))
    for beam_size, alpha, most in [
        (1, 0.6, 40),
        (2, 0.6, None),
        (4, 0, 20),
        (4, 1, 8),
        (8, 2, None),
    ]:
        config = DecodeConfig(
            beam_size=beam_size, length_penalty=alpha, max_extra_tokens=20, max_length=most
        )
        theirs = CTranslate2Translator(folder, model, tokenizer, config, PLAIN)
        ours = Translator(model, tokenizer, config, PLAIN)
        expected, found = ours._search(sources, beam_size), theirs._search(sources, beam_size)
        for mine, other in zip(expected, found, strict=True):
            assert other[0].tokens == mine[0].tokens
            assert len(other) == len(mine) == beam_size
            assert sorted(other, key=lambda h: -h.score) == other
            scores = {tuple(h.tokens): h.score for h in mine}
            both = [h for h in other if tuple(h.tokens) in scores]
            assert len(both) >= beam_size / 2
            for h in both:
                assert h.score == pytest.approx(scores[tuple(h.tokens)], abs=1e-4)
    # Not by leaving the work to our own search; these models end late, or never.
    assert len(left) < 0.6 * 5 * len(sources)


def test_batches_and_workers_never_change_a_translation(
    tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch, left: list[int]
) -> None:
    model = MODELS["learned"]()
    folder = converted(tmp_path / "m", model, tokenizer)
    lines = [*random_lines(30, 12), "", " \t"]
    expected = Translator(model, tokenizer, DecodeConfig(), PLAIN).translate(lines)
    for workers, batch_tokens in [(1, 1), (3, 300), (2, 10**6)]:
        monkeypatch.setattr(torch, "get_num_threads", lambda n=workers: n)
        monkeypatch.setattr(torch, "set_num_threads", lambda _: None)
        order = random.Random(batch_tokens).sample(range(len(lines)), len(lines))
        config = DecodeConfig(batch_tokens=batch_tokens)
        translator = CTranslate2Translator(folder, model, tokenizer, config, PLAIN)
        found = translator.translate([lines[i] for i in order])
        assert found == [expected[i] for i in order]
    assert len(left) < 3 * 30


def test_token_scores_are_those_of_our_own_search(tmp_path: Path, tokenizer: Tokenizer) -> None:
    model = MODELS["post"]()
    folder = converted(tmp_path / "m", model, tokenizer)
    lines = [*random_lines(12, 9), ""]
    parts = (model, tokenizer, DecodeConfig(max_extra_tokens=20), PLAIN)
    theirs = CTranslate2Translator(folder, *parts, token_scores=True).translate_nbest(lines, 4)
    ours = Translator(*parts).translate_nbest(lines, 4)
    compared = 0
    for found, expected in zip(theirs, ours, strict=True):
        scores = {tuple(t.pieces): t.piece_log_probs for t in expected}
        for t in found:
            assert sum(t.piece_log_probs) == pytest.approx(t.log_prob, abs=1e-3)
            if tuple(t.pieces) in scores:
                assert t.piece_log_probs == pytest.approx(scores[tuple(t.pieces)], abs=1e-4)
                compared += len(t.pieces) > 1
    assert compared > 12


def test_pytorch_keeps_its_threads(tmp_path: Path, tokenizer: Tokenizer) -> None:
    model, before = MODELS["pre"](), torch.get_num_threads()
    folder = converted(tmp_path / "m", model, tokenizer)
    try:
        torch.set_num_threads(2)
        CTranslate2Translator(folder, model, tokenizer, DecodeConfig(), PLAIN)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(("max_extra_tokens", "max_length"), [(0, None), (1, None), (4, 9)])
def test_the_longest_length_is_each_sentence_s_own(
    tmp_path: Path,
    tokenizer: Tokenizer,
    left: list[int],
    max_extra_tokens: int,
    max_length: int | None,
) -> None:
    """In one batch with longer ones; at its length a translation is ended, not cut off."""
    model = model_that_ends(2.0)
    folder = converted(tmp_path / "m", model, tokenizer)
    config = DecodeConfig(
        beam_size=3, length_penalty=2.0, max_extra_tokens=max_extra_tokens, max_length=max_length
    )
    lines = random_lines(30, 12)
    theirs, ours = (
        translator.translate_nbest(lines, 1, align=True)
        for translator in (
            CTranslate2Translator(folder, model, tokenizer, config, PLAIN),
            Translator(model, tokenizer, config, PLAIN),
        )
    )
    assert [t.text for (t,) in theirs] == [t.text for (t,) in ours]
    assert [t.score for (t,) in theirs] == pytest.approx([t.score for (t,) in ours], abs=1e-4)
    assert [t.alignment for (t,) in theirs] == [t.alignment for (t,) in ours]
    assert max_length is None or max(t.tokens for (t,) in ours) == max_length
    assert left


def test_greedy_translations_that_never_end(
    tmp_path: Path, tokenizer: Tokenizer, left: list[int]
) -> None:
    """They are as long as they may be, and not searched a second time."""
    model = model_that_ends(2.0)
    folder = converted(tmp_path / "m", model, tokenizer)
    sources = tokenizer.encode(random_lines(30, 12))
    config = DecodeConfig(beam_size=1, max_extra_tokens=4, max_length=30)
    found = CTranslate2Translator(folder, model, tokenizer, config, PLAIN)._search(sources, 1)
    assert not left
    expected = Translator(model, tokenizer, config, PLAIN)._search(sources, 1)
    lengths = [len(mine.tokens) for (mine,) in expected]
    assert lengths == [min(len(source) + 4, 30) for source in sources]
    for (other,), (mine,) in zip(found, expected, strict=True):
        assert other.tokens == mine.tokens
        assert other.log_prob == pytest.approx(mine.log_prob, abs=1e-3)
        assert other.score == pytest.approx(mine.score, abs=1e-4)


def test_special_symbols_are_never_said(
    tmp_path: Path, tokenizer: Tokenizer, left: list[int]
) -> None:
    logits = {"<pad>": 2.0, "<unk>": 3.0, "<s>": 2.0, "x": 1.0, "</s>": 0.0}
    model = constant_model(tokenizer, logits)
    folder = converted(tmp_path / "m", model, tokenizer)
    config = DecodeConfig(beam_size=2, max_extra_tokens=3)
    found = CTranslate2Translator(folder, model, tokenizer, config, PLAIN).translate(["x", "a"])
    assert found == Translator(model, tokenizer, config, PLAIN).translate(["x", "a"])
    assert len(left) == 2


def test_sentences_longer_than_the_converted_model_takes(
    tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch, left: list[int]
) -> None:
    monkeypatch.setattr(conversion, "_SINUSOIDS", 20)
    model = MODELS["post"]()
    folder = converted(tmp_path / "m", model, tokenizer)
    config = DecodeConfig(beam_size=4)
    lines = random_lines(30, 12)
    found = CTranslate2Translator(folder, model, tokenizer, config, PLAIN).translate(lines)
    assert found == Translator(model, tokenizer, config, PLAIN).translate(lines)
    assert max(left) >= 20
    assert len(left) < 30


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    with pytest.raises(InputError, match=r"pip install 'transformer-mt\[fast\]'"):
        check_available("float32", torch.device("cpu"))


def test_a_type_that_the_device_does_not_compute_in_is_named() -> None:
    check_available("float32", torch.device("cpu"))
    with pytest.raises(InputError, match=r"compute_type=float15 .* choose from float32"):
        check_available("float15", torch.device("cpu"))


def test_a_library_that_a_gpu_lacks_is_named(
    tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = MODELS["post"]()
    folder = converted(tmp_path / "m", model, tokenizer)
    translator = CTranslate2Translator(folder, model, tokenizer, DecodeConfig(), PLAIN)

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("Library libcublas.so.12 is not found or cannot be loaded")

    answer = SimpleNamespace(result=fail)
    engine = SimpleNamespace(translate_batch=lambda batch, **_: [answer] * len(batch))
    monkeypatch.setattr(translator, "_engine", engine)
    with pytest.raises(InputError, match=r"libcublas\.so\.12 .* loaded; engine=torch does without"):
        translator.translate(["a b"])
