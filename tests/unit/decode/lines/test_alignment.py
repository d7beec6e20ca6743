"""Word alignment: words of pieces, and the attention maps it is derived from."""

import numpy as np
import pytest
import torch
from support.models import WORDS, make_translator, random_lines, random_model, tiny_config

from transformer_mt.config import DataConfig, DecodeConfig
from transformer_mt.data.subwords.tokenizer import BOS, EOS, Tokenizer
from transformer_mt.data.text.normalization import Normalizer
from transformer_mt.decode.engines.torch_engine import TorchEngine
from transformer_mt.decode.lines.alignment import target_word_ids, word_links
from transformer_mt.model.attention_maps import attention_maps
from transformer_mt.model.transformer import Transformer


def test_attention_is_summed_over_the_pieces_of_a_word() -> None:
    weights = np.array(
        [
            [0.40, 0.30, 0.30, 0.0],  # of the pieces the first, of the words the second
            [0.90, 0.00, 0.10, 0.0],
            [0.00, 0.45, 0.45, 0.1],  # these two make one word, linked to the first: 0.95
            [0.95, 0.00, 0.00, 0.0],
        ],
        np.float32,
    )
    links = word_links(weights, [0, 1, 1, 2], [0, 1, 2, 2])
    assert links == [(1, 0), (0, 1), (0, 2)]
    assert word_links(weights[:2], [-1, 0, 0, 1], [0, 1]) == [(0, 0), (0, 1)]  # a tag
    assert word_links(weights[:0], [0], []) == []
    assert word_links(weights[:1, :2], [0, 0], [0]) == [(0, 0)]


@pytest.mark.parametrize(("layers", "chosen"), [(1, 0), (2, 0), (6, 4)])
def test_alignment_is_the_attention_of_the_last_layer_but_one(layers: int, chosen: int) -> None:
    torch.manual_seed(2)
    model = Transformer(tiny_config(num_decoder_layers=layers), 20).eval()
    pairs = [([5, 6, 7], [8, 9]), ([4], [8, 9, 9, 5]), ([6, 7, 5], []), ([3, 4], [7])]
    found = TorchEngine([model], DecodeConfig()).align(pairs)
    for weights, (source, target) in zip(found, pairs, strict=True):
        assert weights.shape == (len(target), len(source))
        maps = attention_maps(model, [*source, EOS], [BOS, *target])["cross"][chosen]
        for t in range(len(target)):
            for s in range(len(source)):  # in the step that says t, which is read in the next
                assert weights[t, s].item() == pytest.approx(maps[:, t, s].mean().item())


def test_every_word_of_a_translation_is_linked(tokenizer: Tokenizer) -> None:
    config = DecodeConfig(beam_size=2, max_extra_tokens=3, max_source_tokens=25)
    data = DataConfig(src_lang="en", tgt_lang="de", normalization="standard")
    # Which makes five words of a—b—c.
    translator = make_translator(random_model(), tokenizer, config, Normalizer(data))
    lines = [*random_lines(8, 6), "the " + "x" * 9 + " dog", " ".join(WORDS * 2), "a—b—c", ""]
    found = translator.translate_nbest(lines, 2, align=True)
    assert translator.cut_lines == 1
    for line, translations in zip(lines[:-3], found[:-3], strict=True):
        for t in translations:
            assert t.alignment is not None
            assert [b for _, b in t.alignment] == list(range(len(t.text.split())))
            assert all(0 <= a < len(line.split()) for a, _ in t.alignment)
    assert all(t.alignment is None for translations in found[-3:-1] for t in translations)
    assert [t.alignment for t in found[-1]] == [[], []]
    assert all(t.alignment is None for (t,) in translator.translate_nbest(lines, 1))


def test_a_language_without_spaces_has_none_between_parts(tokenizer: Tokenizer) -> None:
    config = DecodeConfig(max_extra_tokens=3, max_source_tokens=25)
    german, chinese = (
        make_translator(random_model(), tokenizer, config, Normalizer(data)).translate_nbest(
            [" ".join(WORDS * 2)], 1
        )[0][0]
        for data in (DataConfig(src_lang="en", tgt_lang=language) for language in ("de", "zh"))
    )
    parts = german.pieces.count("</s>")
    assert german.text.count(" ") - chinese.text.count(" ") == parts - 1 > 0
    assert german.text.replace(" ", "") == chinese.text.replace(" ", "")


def test_target_words_follow_the_decoded_text(tokenizer: Tokenizer) -> None:
    def numbers(*pieces: str) -> list[int]:
        return target_word_ids(tokenizer, [tokenizer.vocabulary.index(piece) for piece in pieces])

    euro = ["<0xE2>", "<0x82>", "<0xAC>"]
    assert numbers("▁", "a", "▁b") == [0, 0, 1]
    assert numbers("▁b", "▁", "▁b", "▁") == [0, 1, 1, 1]
    assert numbers("▁b", *euro, "▁", *euro) == [0, 0, 0, 0, 1, 1, 1, 1]
    assert numbers("▁b", "<0x0A>", "a") == [0, 1, 1]
    assert numbers("▁", "▁") == numbers() == []
    no_break = ["<0xC2>", "<0xA0>"]  # within a word; not printed at the ends of a line
    assert numbers("▁b", *no_break, "a", "▁b") == [0, 0, 0, 0, 1]
    assert numbers("▁", *no_break, "▁b", "▁", *no_break) == [0, 0, 0, 0, 0, 0, 0]
