"""Jobs that prepare small corpora, and the text that was prepared."""

import gzip
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from support.stores import rows
from transformer_mt.config import DataConfig, SourceConfig, TokenizerConfig, TrainJob
from transformer_mt.data.prepare import Prepared
from transformer_mt.data.subwords.tokenizer import EOS, Tokenizer
from transformer_mt.protocols import Pair


def write_pairs(path: Path, pairs: Iterable[tuple[str, str]]) -> SourceConfig:
    """Writes pairs as a TSV file, compressed if it is named so."""
    text = "".join(f"{src}\t{tgt}\n" for src, tgt in pairs).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return SourceConfig(tsv=str(path))


def prepare_job(
    folder: Path, train: Sequence[SourceConfig], vocab_size: int, **data: Any
) -> TrainJob:
    """A job whose cache is in a folder, and which prepares in this process."""
    settings = {"src_lang": "en", "tgt_lang": "de", "train": [*train], "workers": 0, **data}
    return TrainJob(
        run_dir=str(folder / "run"),
        cache_dir=str(folder / "cache"),
        data=DataConfig(**settings),
        tokenizer=TokenizerConfig(vocab_size=vocab_size),
    )


def changed(job: TrainJob, part: str, **changes: Any) -> TrainJob:
    """The job with settings of ``data``, ``data.cleaning``, … changed."""
    head, _, rest = part.partition(".")
    child = getattr(job, head)
    if rest:
        changes = {rest: replace(getattr(child, rest), **changes)}
    return replace(job, **{head: replace(child, **changes)})


def training_text(prepared: Prepared) -> list[Pair]:
    """The training pairs, decoded."""
    tokenizer, store = Tokenizer(prepared.tokenizer_model), prepared.train.sample
    sides = rows(store.src), rows(store.tgt)
    assert {row[-1] for side in sides for row in side} == {EOS}
    return list(map(Pair, *(map(tokenizer.decode, side) for side in sides)))
