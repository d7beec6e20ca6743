"""Lines in, lines out, whatever the batch; lengths, prefixes, sampling."""

import math
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unicodedata import normalize
from unittest.mock import Mock, patch

import pytest
import torch
from support.models import (
    WORDS,
    constant_model,
    make_tokenizer,
    make_translator,
    random_lines,
    random_model,
    uncached,
)
from support.search_tables import reference_search
from support.tokenizers import options_of_others

from transformer_mt.config import DataConfig, DecodeConfig, SearchConfig, TranslateJob
from transformer_mt.data.subwords.tokenizer import EOS, Tokenizer, one_line
from transformer_mt.data.text.normalization import Normalizer
from transformer_mt.decode.engines import torch_engine
from transformer_mt.decode.engines.torch_engine import TorchEngine
from transformer_mt.decode.translator import Translator
from transformer_mt.errors import InputError
from transformer_mt.model.transformer import Transformer
from transformer_mt.protocols import Translation

DROPPED = "\ufffd"
"""What nmt_nfkc drops."""
BLANK = ["", " ", "\t \t", "\r", "\u2028", "\x85", "\x0b\x0c", "\u00a0\u3000", "\x1c\x1f"]
Make = Callable[..., Translator]


@pytest.mark.parametrize("name", ["none", "nfc", "standard", "moses"])
def test_lines_are_normalised_as_in_training(tokenizer: Tokenizer, name: str) -> None:
    # A raw line and the line that training reads, each written by hand.
    lines = {
        "none": ("THE “dog”, u\u0308ber", "THE “dog”, u\u0308ber"),
        "nfc": ("THE “dog”, u\u0308ber", "THE “dog”, über"),
        "standard": ("THE “dog”, u\u0308ber &amp; up", 'THE "dog", über & up'),
        "moses": ('THE "dog", über', 'THE "dog," über'),
    }
    raw, read = lines[name]
    config = DecodeConfig(max_extra_tokens=6)
    model = random_model()
    data = DataConfig(src_lang="en", tgt_lang="de", normalization=name)
    normalizing = make_translator(model, tokenizer, config, Normalizer(data))
    plain = make_translator(model, tokenizer, config)
    found = normalizing.translate_nbest([raw], 3)  # with their scores
    assert found == plain.translate_nbest([read], 3)
    same = normalize("NFC", raw) == normalize("NFC", read)  # as the tokenizer composes
    assert (found == plain.translate_nbest([raw], 3)) == same


@pytest.mark.parametrize("config", [{}, {"norm": "pre", "positions": "learned", "d_k": 5}])
@pytest.mark.parametrize(("beam_size", "alpha"), [(1, 0.6), (4, 0.6), (3, 1.0)])
@torch.inference_mode()
def test_equals_the_reference_search_without_caches(
    tokenizer: Tokenizer, config: dict[str, Any], beam_size: int, alpha: float
) -> None:
    model = random_model(**config)
    settings = DecodeConfig(beam_size=beam_size, length_penalty=alpha, max_extra_tokens=3)
    lines = random_lines(6, 5)
    found = make_translator(model, tokenizer, settings).translate_nbest(lines, beam_size)
    for line, translations in zip(lines, found, strict=True):
        source = tokenizer.encode(line)
        expected = reference_search(
            uncached(model, source),
            len(source) + 3,
            beam_size=beam_size,
            alpha=alpha,
            nbest=beam_size,
            eos=EOS,
            early_stop=False,
            margin=1e-5,
        )
        texts = [one_line(tokenizer.decode(h.tokens)).strip() for h in expected]
        assert [t.text for t in translations] == texts
        assert [t.tokens for t in translations] == [len(h.tokens) for h in expected]
        assert [t.score for t in translations] == pytest.approx([h.score for h in expected], 1e-4)


def test_batches_never_change_a_translation(make: Make) -> None:
    lines = [*random_lines(24, 12), *BLANK]
    one_by_one = make()
    alone = [found for line in lines for found in one_by_one.translate_nbest([line], 2)]
    assert len({best[0].text for best in alone}) > 20
    assert one_by_one.translate(lines) == [best[0].text for best in alone]
    for batch_tokens in (300, 10**6):
        order = random.Random(batch_tokens).sample(range(len(lines)), len(lines))
        shuffled = make(batch_tokens=batch_tokens).translate_nbest([lines[i] for i in order], 2)
        for i, found in zip(order, shuffled, strict=True):
            assert [t.text for t in found] == [t.text for t in alone[i]]
            assert [t.score for t in found] == pytest.approx([t.score for t in alone[i]], 1e-4)


def test_batches_hold_no_more_than_batch_tokens(make: Make) -> None:
    start = Transformer.init_decoder_state
    with patch.object(Transformer, "init_decoder_state", autospec=True, side_effect=start) as spy:
        make(beam_size=3, batch_tokens=600).translate(random_lines(60, 12))
    padded = []
    for call in spy.call_args_list:
        _, src, beam_size = call.args
        (bucket,) = src.boundaries.buckets
        padded.append(bucket.num_sequences * bucket.max_length * beam_size)
    assert max(padded) <= 600
    assert len(padded) < 20


@pytest.mark.parametrize("normalization", ["identity", "nmt_nfkc"])
def test_blank_lines_do_not_reach_the_model(
    tmp_path: Path, normalization: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Mock(side_effect=AssertionError("the model was asked"))
    monkeypatch.setattr(Transformer, "init_decoder_state", asked)
    with options_of_others(normalization_rule_name=normalization):
        tokenizer = make_tokenizer(tmp_path)
    lines = [*BLANK, "\u200b\ufeff", "\x01"]
    if normalization == "nmt_nfkc":
        assert not tokenizer.encode(DROPPED)
        lines.append(DROPPED)
    silent = make_translator(random_model(), tokenizer, DecodeConfig())
    assert silent.translate(lines) == [""] * len(lines)
    assert silent.translate_nbest(lines, 3) == [[Translation("", 0.0, 0)] * 3] * len(lines)
    assert silent.translate([]) == []
    with pytest.raises(AssertionError, match="the model was asked"):
        silent.translate(["x"])


def test_repeated_lines_are_translated_once(make: Make) -> None:
    lines = ["the red dog", "a fox", "the red dog", "", "x" * 200, "a fox", "x" * 200]
    searching = make(max_source_tokens=12)
    one_by_one = [[t.text for t in searching.translate_nbest([line], 3)[0]] for line in lines]
    search = TorchEngine.search
    with patch.object(TorchEngine, "search", autospec=True, side_effect=search) as spy:
        found = searching.translate_nbest(lines, 3)
    assert [[t.text for t in best] for best in found] == one_by_one
    spy.assert_called_once()
    parts = spy.call_args.args[1]
    assert len(parts) == len(set(map(tuple, parts))) <= 6


def test_special_symbols_are_never_generated(make: Make, tokenizer: Tokenizer) -> None:
    """They keep their probability, as in training; the others are not rescaled."""
    logits = {"<pad>": 2.0, "<unk>": 3.0, "<s>": 2.0, "x": 1.0, "</s>": 0.0}
    model = constant_model(tokenizer, logits)
    greedy = make(model, beam_size=1, max_extra_tokens=1, length_penalty=0.0)
    ((found,),) = greedy.translate_nbest(["x"], 1)
    ids = tokenizer.encode("x")
    assert found.text == "x" * found.tokens
    assert found.tokens == len(ids) + 1
    total = math.log(sum(map(math.exp, logits.values())))
    assert found.score == pytest.approx(found.tokens * (1 - total) + (0 - total))


def test_bytes_give_text(make: Make, tokenizer: Tokenizer) -> None:
    model = constant_model(tokenizer, {"<0xFF>": 3.0, "</s>": 0.0})
    (found,) = make(model, beam_size=1, max_extra_tokens=0).translate(["the dog"])
    assert set(found) == {"\ufffd"}
    model = constant_model(tokenizer, {"<0x0A>": 0.2, "a": 0.1, "b": 0.0, "</s>": -0.1})
    (best,) = make(model, beam_size=60, max_extra_tokens=2).translate_nbest(["a"], 60)
    texts = {t.text for t in best}
    assert {"", "a", "ab", "a b", "a  b"} <= texts
    assert not any("\n" in text for text in texts)


def test_sentences_are_translated_one_by_one(make: Make) -> None:
    sentences = ["The dog jumps.", "A red fox sleeps!", "Yes."]
    line = " ".join(sentences)
    one_by_one = make().translate_nbest(sentences, 3, align=True)
    (found,) = make().translate_nbest([line], 3, align=True)
    for joined, *parts in zip(found, *one_by_one, strict=True):
        expected = Translation.joined(parts, " ", [0, 3, 7])
        assert (joined.text, joined.alignment) == (expected.text, expected.alignment)
    (around,) = make().translate_nbest([f"- {line} 😀👍"], 3, align=True)
    for copied, inside in zip(around, found, strict=True):
        links = [(0, 0), *((i + 1, j + 1) for i, j in inside.alignment or ())]
        assert copied.text == f"- {inside.text} 😀👍"
        assert copied.alignment == [*links, (8 + 1, len(copied.text.split(" ")) - 1)]
    ((symbol,), (item,)) = make(beam_size=1).translate_nbest(["😀", "- 😀"], 1)
    assert (symbol.alignment, item.alignment) == (None, None)  # as of other lines
    whole = make(split="none").translate([line])
    assert whole != [found[0].text]
    ((forced,),) = make(max_extra_tokens=0).translate_nbest([line], 1, prefixes=["the fox"])
    assert forced.pieces.count("</s>") == 1  # with a prefix, a line is translated whole


def test_joined() -> None:
    one = Translation("a b", -1.0, 1, -2.0, ["▁a", "</s>"], [-1.5, -0.5], [(1, 0), (0, 1)])
    blank = Translation("", 0.0, 0, alignment=[])
    assert Translation.joined([one, blank, one], " ") == Translation(
        "a b a b", -2.0, 2, -4.0, ["▁a", "</s>"] * 2, [-1.5, -0.5] * 2
    )
    # In the second row, the first word of a part and the last one before it are one word.
    for space, words, second in (
        (" ", [0, 2, 3], [(4, 2), (3, 3)]),
        ("", [0, 1, 1], [(2, 1), (1, 2)]),
    ):
        joined = Translation.joined([one, blank, one], space, words)
        assert joined.alignment == [(1, 0), (0, 1), *second]
    assert Translation.joined([one, replace(one, alignment=None)], " ", [0, 2]).alignment is None


def test_translations_much_shorter_than_their_line_are_counted(
    make: Make, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = constant_model(tokenizer, {"x": 1.0, "</s>": -30.0})
    (line,) = (text for n in range(40) if len(tokenizer.encode(text := "a " * n)) == 32)
    (less,) = (text for n in range(40) if len(tokenizer.encode(text := "a " * n)) == 22)
    for length, expected in ((15, 3), (16, 0)):
        monkeypatch.setattr(torch_engine, "max_output_tokens", lambda *_, n=length: n)
        counting = make(model, beam_size=1)
        found = counting.translate_nbest([line, less, f"{line} ", "", f" {line}"], 1)
        assert [best.tokens for (best,) in found] == [length, length, length, 0, length]
        assert counting.short_translations == expected


def test_prefixes(make: Make) -> None:
    lines = ["the dog", "", *random_lines(10, 12)]
    prefixes = ["the fox jumps", "lost", "", "☃ 漢字", *["Über"] * 8]
    translator = make(max_source_tokens=20)
    found = translator.translate_nbest(lines, 2, prefixes=prefixes)
    for prefix, line, best in zip(prefixes, lines, found, strict=True):
        assert all(t.text.startswith(prefix if line else "") for t in best)
    free = translator.translate_nbest(lines, 2)
    assert found[1] == free[1] == [Translation("", 0.0, 0)] * len(free[0])
    assert [t.text for t in found[2]] == [t.text for t in free[2]]
    assert translator.cut_lines > 0
    ((best,),) = make(max_extra_tokens=0).translate_nbest(["a"], 1, prefixes=["the fox jumps"])
    assert best.text.startswith("the fox jumps")  # though it is longer than max_extra_tokens allows
    lines = [f"{mark} The fox jumps. The dog is lost." for mark in ("-", "😀", "")]
    found = make(max_source_tokens=18).translate_nbest(lines, 1, prefixes=["- Über"] * 3)
    assert all(best.text.startswith("- Über") for (best,) in found)


@pytest.mark.parametrize("settings", [{}, {"top_k": 20, "temperature": 1.5}])
def test_samples_depend_on_the_line_only(make: Make, settings: dict[str, float]) -> None:
    lines = random_lines(14, 8)
    sampling = make(sampling=True, **settings)
    alone = [found for line in lines for found in sampling.translate_nbest([line], 3)]
    order = random.Random(1).sample(range(len(lines)), len(lines))
    small = make(sampling=True, batch_tokens=150, **settings)
    shuffled = small.translate_nbest([lines[i] for i in order], 3)
    for i, found in zip(order, shuffled, strict=True):
        assert [t.text for t in found] == [t.text for t in alone[i]]
    assert len({t.text for found in alone for t in found}) > len(lines)
    other = make(sampling=True, seed=2, **settings).translate(lines)
    assert other != [found[0].text for found in alone]
    # More samples add to those there were.
    assert sampling.translate(lines) == [found[0].text for found in alone]


def test_lengths(make: Make) -> None:
    model = random_model(positions="learned", max_positions=20)  # limit both sides
    bounded = make(model, max_extra_tokens=100)
    ((long,), (short,)) = bounded.translate_nbest([" ".join(WORDS), ","], 1)
    assert bounded.cut_lines == 1
    assert long.tokens > 0
    assert short.tokens <= 19


def test_what_cannot_be_translated_is_refused(make: Make, tmp_path: Path) -> None:
    for settings in ({}, {"length_penalty": 1.0}):
        two = make(beam_size=2, **settings)
        assert [len(found) for found in two.translate_nbest(["the dog"], 2)] == [2]
        with pytest.raises(InputError, match=r"nbest=3 .*beam_size"):  # wider: another best one
            two.translate_nbest(["the dog"], 3)
    sampling = make(beam_size=2, sampling=True)
    assert [len(found) for found in sampling.translate_nbest(["the dog"], 3)] == [3]
    with options_of_others(byte_fallback=False):
        no_bytes = make_tokenizer(tmp_path, vocab_size=80)
    lacking = make_translator(random_model(), no_bytes, DecodeConfig())
    with pytest.raises(InputError, match="characters that are not in this model's vocabulary"):
        lacking.translate_nbest(["the dog"], 1, prefixes=["☃"])


def test_settings_of_a_job_and_of_a_folder() -> None:
    job = TranslateJob(model="x", sampling=True, seed=3)
    expected = DecodeConfig(sampling=True, seed=3, beam_size=7, length_penalty=1.0)
    assert SearchConfig(beam_size=7, length_penalty=1.0).for_job(job) == expected
    with pytest.raises(InputError, match=r"temperature=0\.0 must be > 0"):
        DecodeConfig(sampling=True, temperature=0.0)
    with pytest.raises(InputError, match="top_k applies to sampling only"):
        DecodeConfig(top_k=3)
