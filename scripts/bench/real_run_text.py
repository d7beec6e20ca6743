"""The text, vocabulary and recipe that all runs of ``real_run.py`` share."""

import argparse
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

from real_run_peers import Recipe

from transformer_mt.config import SourceConfig, TokenizerConfig, TrainConfig
from transformer_mt.data.subwords.tokenizer import one_line, train_tokenizer
from transformer_mt.data.text.sources import Pair, read_pairs
from transformer_mt.errors import InputError
from transformer_mt.files import write_text


def multi30k(data: Path) -> tuple[list[SourceConfig], list[SourceConfig]]:
    train, valid = (
        [SourceConfig(src=str(data / f"multi30k/{n}.en.gz"), tgt=str(data / f"multi30k/{n}.de.gz"))]
        for n in ("train", "val")
    )
    return train, valid


def mix(data: Path) -> tuple[list[SourceConfig], list[SourceConfig]]:
    """Six kinds of text, validated on newstest2013."""
    kinds = ("news", "parliament", "books", "manuals", "bible", "sentences")
    train = [SourceConfig(tsv=str(data / f"mix/{kind}.tsv.gz")) for kind in kinds]
    valid = data / "mix/newstest2013"
    return train, [SourceConfig(src=f"{valid}.en.gz", tgt=f"{valid}.de.gz")]


def sample(data: Path) -> tuple[list[SourceConfig], list[SourceConfig]]:
    """The built-in sample."""
    return [SourceConfig(sample="train")], [SourceConfig(sample="valid")]


CORPORA = {"multi30k": multi30k, "mix": mix, "sample": sample}
"""Training and validation sources by name, in the folder --data."""


def prepare(options: argparse.Namespace) -> Recipe:
    """Writes text, vocabulary and recipe; refuses other settings than those of earlier runs."""
    folder = options.folder.resolve()
    data = folder / "data"
    recipe = Recipe(
        data=str(data),
        label_smoothing=TrainConfig().label_smoothing,
        **{
            key: getattr(options, key)
            for key in (
                "model", "precision", "batch_tokens", "peak_lr", "warmup_steps",
                "validate_every", "log_every",
            )
        },
    )  # fmt: skip
    text = {key: getattr(options, key) for key in ("corpus", "pairs", "valid_pairs", "vocab")}
    settings: dict[str, Any] = {**text, "minutes": options.minutes, "recipe": asdict(recipe)}
    written = folder / "settings.json"
    if written.exists():
        before = json.loads(written.read_text())
        changed = [key for key in settings if settings[key] != before.get(key)]
        if changed:
            raise InputError(
                f"{folder} has runs with other settings ({', '.join(changed)}): set --folder"
            )
        return recipe
    data.mkdir(parents=True, exist_ok=True)
    sources = CORPORA[options.corpus](options.data)
    limits = (options.pairs, options.valid_pairs)
    lines: list[str] = []
    for split, source, limit in zip(("train", "valid"), sources, limits, strict=True):
        pairs = list(islice(pairs_of_text(source), limit))
        for i, side in enumerate(("src", "tgt")):
            side_lines = [pair[i] for pair in pairs]
            write_text(data / f"{split}.{side}", "".join(f"{line}\n" for line in side_lines))
            lines += side_lines if split == "train" else []
    model = train_tokenizer(lines, TokenizerConfig(vocab_size=options.vocab))
    (data / "tokenizer.model").write_bytes(model)
    write_text(folder / "recipe.json", json.dumps(asdict(recipe), indent=2))
    write_text(written, json.dumps(settings, indent=2))
    return recipe


def pairs_of_text(sources: Sequence[SourceConfig]) -> Iterable[Pair]:
    """Pairs with text on both sides, each side on one line."""
    for pair in read_pairs(sources, src_lang="en", tgt_lang="de"):
        src, tgt = map(one_line, pair)
        if src and tgt:
            yield pair._replace(src=src, tgt=tgt)
