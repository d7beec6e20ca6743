"""Exported vocabularies split and join text as SentencePiece does."""

import gzip
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sentencepiece as spm
from support.model_folders import JOB
from support.models import make_tokenizer, random_lines
from support.paths import MULTI30K

from transformer_mt.config import SearchConfig
from transformer_mt.conversion.transformers_tokenizer import (
    convert_tokenizer,
    normalization_gap,
    tokenizer_files,
)
from transformer_mt.data.subwords.tokenizer import EOS, Tokenizer
from transformer_mt.data.text.normalization import normalize
from transformer_mt.errors import InputError

ODD_LINES = [
    *(
        "</s> a <pad>",
        "<0x41><unk>",
        "",
        "  a  b ",
        "a\tb\x85c",
        "😀 ｘ ﬁ",
        "▁a",
        " a\xa0b",
        "a ▁ b",
    ),
    *("e\u0301 « tres » “so”–…", "Tom &amp; &quot;Jerry&quot;", "''a''", "\u200ba\x93b", "Ⅷ ½ ㎏"),
]


def write(folder: Path, tokenizer: Tokenizer, normalization: str = "none") -> Any:
    """Loads the exported vocabulary."""
    transformers = pytest.importorskip("transformers")
    data = replace(JOB.data, normalization=normalization)
    trained = replace(JOB, data=data, decode=SearchConfig(max_source_tokens=256))
    for name, content in tokenizer_files(tokenizer, trained).items():
        (folder / name).write_text(json.dumps(content), encoding="utf-8")
    return transformers.AutoTokenizer.from_pretrained(folder)


@pytest.mark.parametrize("normalization", ["none", "nfc", "standard"])
@pytest.mark.parametrize("rule", ["identity", "nmt_nfkc"])
@pytest.mark.parametrize("kind", [{"type": "bpe"}, {"type": "unigram", "vocab_size": 310}])
def test_same_pieces(tmp_path: Path, kind: dict[str, Any], rule: str, normalization: str) -> None:
    tokenizer = make_tokenizer(tmp_path, rule, **kind)
    theirs = write(tmp_path, tokenizer, normalization)
    lines = [*random_lines(50, 9, seed=3), *ODD_LINES]
    expected = tokenizer.encode([normalize(line, normalization, "en") for line in lines])
    assert theirs(lines).input_ids == [[*ids, EOS] for ids in expected]
    texts = theirs.batch_decode(expected, skip_special_tokens=True)
    assert [text.strip() for text in texts] == [text.strip() for text in tokenizer.decode(expected)]
    assert theirs.model_max_length == 257


@pytest.mark.skipif(not MULTI30K.is_dir(), reason="needs ../shared/data")
def test_same_pieces_of_real_text(tmp_path: Path) -> None:
    lines = []
    for side in ("en", "de"):
        with gzip.open(MULTI30K / f"test_2016_flickr.{side}.gz", "rt", encoding="utf-8") as file:
            lines += [line.rstrip("\n") for line in file]
    tokenizer = make_tokenizer(tmp_path)
    theirs = write(tmp_path, tokenizer)
    assert [ids[:-1] for ids in theirs(lines).input_ids] == tokenizer.encode(lines)


def test_gaps_are_named() -> None:
    assert normalization_gap("none") is None
    assert "HTML" in str(normalization_gap("standard"))
    assert "Moses" in str(normalization_gap("moses_lowercase"))


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"model_type": "word"}, "type 3"),
        ({"user_defined_symbols": ["<x>"]}, "user-defined symbols"),
        ({"add_dummy_prefix": False}, "no dummy prefix"),
        ({"remove_extra_whitespaces": False}, "spaces that are kept"),
        ({"treat_whitespace_as_suffix": True}, "whitespace as suffix"),
    ],
)
def test_other_sentencepiece_models_are_refused(
    tmp_path: Path, options: dict[str, Any], reason: str
) -> None:
    model = io.BytesIO()
    spm.SentencePieceTrainer.train(
        sentence_iterator=iter(random_lines(100, 9)),
        model_writer=model,
        **{"vocab_size": 60, "hard_vocab_limit": False, "minloglevel": 2, **options},
        pad_id=0,
        unk_id=1,
        bos_id=2,
        eos_id=3,
    )
    (tmp_path / "m").write_bytes(model.getvalue())
    with pytest.raises(InputError, match=reason):
        convert_tokenizer(Tokenizer(tmp_path / "m"), "none")
