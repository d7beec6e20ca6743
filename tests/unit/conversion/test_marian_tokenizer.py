"""Exported vocabularies split and join text as ours do."""

import json
from dataclasses import replace
from pathlib import Path
from shutil import copyfile
from typing import Any

import pytest
from support.model_folders import JOB
from support.models import make_tokenizer, random_lines
from support.tokenizers import options_of_others

from transformer_mt import run_layout
from transformer_mt.config import SearchConfig
from transformer_mt.conversion.marian_tokenizer import tokenizer_files
from transformer_mt.data.subwords.tokenizer import EOS

ODD_LINES = [
    *("</s> a <pad>", "<0x41><unk>", "", "  a  b ", "😀 ｘ ﬁ", "▁a", " a\xa0b", "a ▁ b"),
    *("e\u0301 « tres » “so”–…", "Tom &amp; &quot;Jerry&quot;", "''a''", "\u200ba", "Ⅷ ½ ㎏"),
]


@pytest.mark.parametrize("rule", ["identity", "nmt_nfkc"])
@pytest.mark.parametrize("kind", [{"type": "bpe"}, {"type": "unigram", "vocab_size": 310}])
def test_same_pieces(tmp_path: Path, kind: dict[str, Any], rule: str) -> None:
    import transformers

    with options_of_others(normalization_rule_name=rule):
        tokenizer = make_tokenizer(tmp_path, **kind)
    trained = replace(JOB, decode=SearchConfig(max_source_tokens=256))
    for name, content in tokenizer_files(tokenizer, trained, 512).items():
        (tmp_path / name).write_text(json.dumps(content), encoding="utf-8")
    for name in run_layout.SIDE_TOKENIZERS:
        copyfile(tmp_path / "m", tmp_path / name)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    lines = [*random_lines(50, 9, seed=3), *ODD_LINES]
    expected = list(map(tokenizer.encode, lines))
    assert theirs(lines).input_ids == [[*ids, EOS] for ids in expected]
    texts = theirs.batch_decode(expected, skip_special_tokens=True)
    assert [text.strip() for text in texts] == [tokenizer.decode(ids).strip() for ids in expected]
    assert theirs.model_max_length == 257
