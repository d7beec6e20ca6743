"""The built-in sample for tests, and a dataset in the form of the hub's wmt/wmt14."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from transformer_mt.config import SourceConfig
from transformer_mt.data.text.sources import read_pairs
from transformer_mt.protocols import Pair

CARD = """---
configs:
- config_name: cs-en
  data_files: [{split: train, path: cs-en/train-*}]
- config_name: de-en
  data_files:
  - {split: train, path: de-en/train-*}
  - {split: validation, path: de-en/validation-*}
  - {split: test, path: de-en/test-*}
- config_name: fr-en
  data_files: [{split: train, path: fr-en/train-*}]
---
"""


def sample_pairs(split: str) -> list[Pair]:
    """English–German pairs of a split."""
    return list(read_pairs([SourceConfig(sample=split)], src_lang="en", tgt_lang="de"))


def write_parquet(path: Path, columns: dict[str, Any], **options: Any) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path, **options)
    return str(path)


def translations(rows: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """The column of English–German pairs."""
    return {"translation": [{"de": de, "en": en} for en, de in rows]}


def write_wmt14(folder: Path, **splits: Sequence[tuple[str, str]]) -> str:
    """Writes two configurations, as ``hf download --include`` leaves them: of de-en these splits.

    The folder lacks the first configuration that its card names.
    """
    for split, rows in splits.items():
        write_parquet(folder / f"de-en/{split}-00000-of-00001.parquet", translations(rows))
    french = {"translation": [{"en": "a", "fr": "b"}]}
    write_parquet(folder / "fr-en/train-00000-of-00001.parquet", french)
    (folder / "README.md").write_text(CARD)
    return str(folder)
