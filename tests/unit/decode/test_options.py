"""Options of translation: lengths, n-grams, prefixes, sampling, damaged weights."""

import random
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest
import torch
from support.models import (
    WORDS,
    constant_model,
    make_tokenizer,
    make_translator,
    random_lines,
    random_model,
)

from transformer_mt.config import DecodeConfig, SearchConfig, TranslateJob
from transformer_mt.config.decode import search_settings
from transformer_mt.data.subwords.tokenizer import Tokenizer
from transformer_mt.decode.translator import Translation, Translator
from transformer_mt.errors import InputError

Make = Callable[..., Translator]


def test_joined() -> None:
    one = Translation("a", -1.0, 1, -2.0, ["▁a", "</s>"], [-1.5, -0.5])
    blank = Translation("", 0.0, 0)
    assert Translation.joined([one, blank, one], " ") == Translation(
        "a a", -2.0, 2, -4.0, ["▁a", "</s>"] * 2, [-1.5, -0.5] * 2
    )


def test_ngram_blocking(make: Make, tokenizer: Tokenizer) -> None:
    model = constant_model(tokenizer, {"a": 0.5, "b": 0.4, "c": 0.3, "</s>": -3.0})
    ((free,),) = make(model, min_length=8).translate_nbest(["the"], 1)
    assert free.text.strip() == "a" * free.tokens
    ((found,),) = make(model, min_length=8, no_repeat_ngram=2).translate_nbest(["the"], 1)
    pairs = list(zip(found.pieces, found.pieces[1:], strict=False))
    assert len(set(pairs)) == len(pairs) > 3


def test_translations_much_shorter_than_their_line_are_counted(
    make: Make, tokenizer: Tokenizer
) -> None:
    model = constant_model(tokenizer, {"x": 0.0, "</s>": 1.0})
    lines = ["the dog " * 40, "the dog", "the dog " * 40, " ".join(["red. Red"] * 40)]
    counting = make(model, max_source_tokens=200)
    assert max(best.tokens for (best,) in counting.translate_nbest(lines[:3], 1)) < 4
    assert counting.short_translations == 2
    talkative = constant_model(tokenizer, {"x": 1.0, "</s>": 0.0})
    long_enough = make(talkative, max_source_tokens=200, beam_size=1)
    long_enough.translate(lines)
    assert long_enough.short_translations == 0


def test_prefixes(make: Make) -> None:
    lines = ["the dog", "", *random_lines(10, 12)]
    prefixes = ["the fox jumps", "lost", "", "☃ 漢字", *["Über"] * 8]
    translator = make(max_source_tokens=20)
    found = translator.translate_nbest(lines, 2, prefixes=prefixes)
    for prefix, line, best in zip(prefixes, lines, found, strict=True):
        assert all(t.text.startswith(prefix if line else "") for t in best)
    free = translator.translate_nbest(lines, 2)
    assert found[1] == free[1] == [Translation("", 0.0, 0)]
    assert [t.text for t in found[2]] == [t.text for t in free[2]]
    assert translator.cut_lines > 0
    ((best,),) = make(max_length=1).translate_nbest(["a"], 1, prefixes=["the fox jumps"])
    assert best.text.startswith("the fox jumps")  # though it is longer than max_length


@pytest.mark.parametrize("settings", [{}, {"top_k": 20, "temperature": 1.5, "top_p": 0.9}])
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
    for least in (0, 12):
        bounded = make(min_length=least, max_length=least + 3)
        found = bounded.translate_nbest(random_lines(12, 5), 2)
        lengths = [t.tokens for best in found for t in best]
        assert least <= min(lengths) <= max(lengths) <= least + 3
    model = random_model(positions="learned", max_positions=20)  # limit both sides
    for (best,) in make(model, min_length=30).translate_nbest(random_lines(5, 3), 1):
        assert best.tokens == 19
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
    text = "\ud800 A dog."
    for call in (
        lambda: make().translate(["a", text]),
        lambda: make().translate_nbest(["a", "b"], 1, prefixes=["a", text]),
        lambda: make().score(["a", "b"], ["a", text]),
    ):
        with pytest.raises(InputError, match=r"text 2 has the surrogate U\+D8"):
            call()
    no_bytes = make_tokenizer(tmp_path, byte_fallback=False, vocab_size=80)
    with pytest.raises(InputError, match="characters that are not in this model's vocabulary"):
        make_translator(random_model(), no_bytes, DecodeConfig()).translate_nbest(
            ["the dog"], 1, prefixes=["☃"]
        )
    damaged = random_model()
    with torch.no_grad():
        damaged.embedding.weight[7, 3] = torch.nan
    with pytest.raises(InputError, match="not a number: its weights are damaged"):
        make(damaged).translate(["the dog"])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"min_length": 10**9}, "min_length=1000000000 must be .*≤ 10,000"),
        ({"beam_size": "4"}, "beam_size='4' is not a number"),
        ({"max_length": 3, "min_length": 4}, "max_length=3 must be ≥ min_length"),
        ({"no_repeat_ngram": -2}, "no_repeat_ngram=-2 must be ≥ 0"),
        ({"sampling": True, "temperature": 0.0}, "temperature=0.0 must be > 0"),
        ({"top_k": 3}, "top_k applies to sampling only"),
    ],
)
def test_invalid_settings(settings: dict[str, float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        DecodeConfig(**settings)  # type: ignore[arg-type]


def test_settings_of_a_job_and_of_a_folder() -> None:
    given = {field.name: (field.type, field.default) for field in fields(TranslateJob)}
    recorded = [field.name for field in fields(SearchConfig)]
    for field in fields(DecodeConfig):
        if field.name in recorded:  # null: as in the model folder
            assert given[field.name] == (field.type | None, None)
        else:
            assert given[field.name] == (field.type, field.default)
    job = search_settings(TranslateJob(model="x", sampling=True, seed=3))
    expected = DecodeConfig(sampling=True, seed=3, beam_size=7, length_penalty=1.0)
    assert SearchConfig(beam_size=7, length_penalty=1.0).with_settings(job) == expected
