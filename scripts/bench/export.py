"""Equality of a model and its export to Hugging Face transformers.

    python scripts/bench/export.py --model runs/mine runs/other    trained models
    python scripts/bench/export.py --size tiny base table3/B_dk_16 random weights of presets
    python scripts/bench/export.py --pieces 100000                 vocabularies on real text

Each model is exported by ``mt-export format=transformers`` and loaded by ``AutoModelForSeq2SeqLM``
and ``AutoTokenizer``. The table has the largest difference of a logit (teacher forcing on pairs of
Multi30k's test set) and the number of lines whose translations differ: at equal settings (greedy,
and beam 4 without length penalty; at the maximum length only the end symbol may follow, as in our
search), and at the model's own, of which generation_config.json has the closest. A tie is a pair of
translations whose log-probabilities under our model differ by less than 0.001. Random weights
translate at most as many tokens as the source has. For vocabularies it counts lines of all texts,
chosen at random, that are split into other pieces.
"""

import argparse
import json
import os
import random
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib.metadata import version
from itertools import groupby, islice
from pathlib import Path
from typing import Any

import torch
from reporting import SHARED_DATA, argument_parser, heading, run_main, table
from train import torch_details

from transformer_mt import checkpoint as ckpt
from transformer_mt import compose, export, model_folder, run_layout
from transformer_mt.batch import Packed
from transformer_mt.config import ExportJob, TokenizerConfig, TrainJob
from transformer_mt.conversion.marian_tokenizer import tokenizer_files
from transformer_mt.data.subwords.tokenizer import BOS, EOS, Tokenizer, train_tokenizer
from transformer_mt.data.text.lines import read_lines
from transformer_mt.data.text.normalization import Normalizer
from transformer_mt.decode.engines.torch_engine import TorchEngine
from transformer_mt.decode.translator import Translator
from transformer_mt.model.transformer import Transformer

VOCABULARY = 8000
BATCH = 32
TIE = 1e-3
HEAD = [
    "model", "class", "largest logit", "largest difference", "greedy", "beam 4", "own settings",
]  # fmt: skip

Lines = Sequence[str]


@dataclass(frozen=True)
class Pair:
    """A model and its export."""

    model: Transformer
    tokenizer: Tokenizer
    job: TrainJob
    theirs: Any
    their_tokenizer: Any

    @classmethod
    def load(cls, folder: Path, exported: Path) -> "Pair":
        """Exports a model folder and loads both."""
        from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

        export(ExportJob(model=str(folder), format="transformers", output=str(exported)))
        theirs = AutoModelForSeq2SeqLM.from_pretrained(exported).eval()
        loaded = model_folder.load_model(folder)
        return cls(*loaded, theirs, AutoTokenizer.from_pretrained(exported))

    def translate(self, lines: Lines, **settings: Any) -> Lines:
        """Our translations."""
        return self.translator(**settings).translate(lines)

    def translator(self, **settings: Any) -> Translator:
        config = self.job.decode.with_settings(settings)
        normalizer = Normalizer.of(self.job.data)
        return Translator(TorchEngine([self.model], config), self.tokenizer, normalizer, config)

    def generate(self, lines: Lines, exact_end: bool, **settings: Any) -> list[str]:
        """Their translations; ``exact_end``: at our maximum length they end as in our search."""
        from transformers import LogitsProcessorList

        ids = self.their_tokenizer([*lines]).input_ids
        order = sorted(range(len(lines)), key=lambda i: len(ids[i]))
        found = [""] * len(lines)
        for length, group in groupby(order, key=lambda i: len(ids[i])):
            equal = list(group)
            for start in range(0, len(equal), BATCH):
                part = equal[start : start + BATCH]
                longest = length + self.job.decode.max_extra_tokens  # end symbol included
                limit = {"max_new_tokens": longest, "max_length": None} if exact_end else {}
                processors = [partial(_end_at, longest)] if exact_end else []
                output = self.theirs.generate(
                    input_ids=torch.tensor([ids[i] for i in part]),
                    attention_mask=torch.ones(len(part), length, dtype=torch.long),
                    logits_processor=LogitsProcessorList(processors),
                    **limit,
                    **settings,
                )
                texts = self.their_tokenizer.batch_decode(output, skip_special_tokens=True)
                for i, text in zip(part, texts, strict=True):
                    found[i] = text.strip()
        return found


def _end_at(longest: int, tokens: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
    """A logits processor: the last token must be the end symbol, and keeps its score."""
    if tokens.shape[1] < longest:  # the start symbol included
        return scores
    return torch.full_like(scores, -torch.inf).index_copy(
        1, torch.tensor([EOS]), scores[:, EOS : EOS + 1]
    )


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    sources, references = (read_text(options.data, side, options.lines) for side in ("en", "de"))
    os.environ["HF_HUB_OFFLINE"] = "1"
    print(heading(f"transformers {version('transformers')}, {torch_details(torch.device('cpu'))}"))
    print(f"{len(sources):,} lines of Multi30k's test set\n")
    if options.pieces:
        print(compare_pieces(read_all(options.data, options.pieces)))
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        models = {str(path): path.expanduser() for path in options.model}
        for size in options.size:
            models[size] = write_random(Path(scratch) / size.replace("/", "_"), size, options.data)
        for number, (name, folder) in enumerate(models.items()):
            pair = Pair.load(folder, Path(scratch) / f"exported{number}")
            rows.append([name, *compare(pair, sources, references)])
            print(f"{name} is done", file=sys.stderr)
    if rows:
        print(table(HEAD, rows))


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argument_parser(__doc__)
    add = parser.add_argument
    add("--model", type=Path, nargs="+", default=[], help="folders of trained models")
    add("--size", nargs="+", default=[], help="random weights of a model= preset or an experiment")
    add("--pieces", type=int, default=0, help="lines to split into pieces (default: none)")
    add("--lines", type=int, default=1000, help="lines to translate (default: 1000)")
    add("--data", type=Path, default=SHARED_DATA, help="text folder (default: ../shared/data)")
    return parser.parse_args(arguments)


def read_text(data: Path, side: str, number: int, split: str = "test_2016_flickr") -> list[str]:
    return list(islice(read_lines(data / f"multi30k/{split}.{side}.gz"), number))


@cache
def vocabulary(data: Path) -> bytes:
    """The vocabulary of all random models."""
    text = [line for side in ("en", "de") for line in read_text(data, side, 29000, "train")]
    return train_tokenizer(text, TokenizerConfig(vocab_size=VOCABULARY))


def write_random(folder: Path, size: str, data: Path) -> Path:
    """A model folder with random weights."""
    chosen = f"experiment={size}" if "/" in size else f"model={size}"
    job = compose([chosen, "data.normalization=none", "decode.max_extra_tokens=0"])
    folder.mkdir()
    (folder / run_layout.TOKENIZER).write_bytes(vocabulary(data))
    model_folder.write_config(folder, job, folder / run_layout.TOKENIZER)
    torch.manual_seed(1)
    model = Transformer(job.model, VOCABULARY)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias") or "norm" in name:
                parameter.add_(0.1 * torch.randn_like(parameter))
        pre, end = job.model.norm == "pre", model.decoder[-1]
        last: Any = model.decoder_norm if pre else end.residual3.norm
        last.weight.mul_(4)  # distributions as peaked as those of a trained model
        last.bias.add_(10 * model.embedding.weight[EOS])
    ckpt.save_tensors(ckpt.parameters(model), folder / run_layout.WEIGHTS)
    return folder


def read_all(data: Path, number: int) -> list[str]:
    """Random lines of all texts, both languages."""
    lines = []
    for path in sorted(data.rglob("*.gz")):
        lines += [text for line in read_lines(path) for text in line.split("\t")]
    return random.Random(1).sample(lines, number)


def compare_pieces(lines: Lines) -> str:
    """A table of vocabularies and the lines that their exports split differently."""
    from transformers import AutoTokenizer

    rows = []
    for kind, rule in (("bpe", "identity"), ("bpe", "nmt_nfkc"), ("unigram", "identity")):
        config = TokenizerConfig(type=kind, vocab_size=VOCABULARY, normalization=rule)
        with tempfile.TemporaryDirectory() as scratch:
            for name in run_layout.SIDE_TOKENIZERS:
                (Path(scratch) / name).write_bytes(train_tokenizer(lines[:40000], config))
            ours = Tokenizer(Path(scratch) / run_layout.SIDE_TOKENIZERS[0])
            for name, content in tokenizer_files(ours, TrainJob()).items():
                (Path(scratch) / name).write_text(json.dumps(content))
            theirs = AutoTokenizer.from_pretrained(scratch)
        found, expected = theirs([*lines]).input_ids, ours.encode(lines)
        differ = sum(a != b[:-1] for a, b in zip(expected, found, strict=True))
        rows.append([kind, rule, f"{differ:,} of {len(lines):,}"])
    head = ["tokenizer.type", "tokenizer.normalization", "lines that differ"]
    return table(head, rows)


def compare(pair: Pair, sources: Lines, references: Lines) -> list[str]:
    """The row of a model."""
    largest, difference = compare_logits(pair, sources[:200], references[:200])
    cells = [type(pair.theirs).__name__, f"{largest:.1f}", f"{difference:.1e}"]
    equal = {"length_penalty": 0.0, "early_stopping": True}
    forced = pair.theirs.generation_config.forced_eos_token_id
    pair.theirs.generation_config.forced_eos_token_id = None
    for beams, theirs in (
        (1, {"num_beams": 1, "length_penalty": 1.0, "early_stopping": False}),
        (4, {"num_beams": 4, **equal}),
    ):
        found = pair.translate(sources, beam_size=beams, length_penalty=0.0)
        cells.append(count(pair, sources, found, pair.generate(sources, exact_end=True, **theirs)))
    if pair.job.decode.max_extra_tokens == 0:  # random weights rarely end a translation
        return [*cells, "–"]
    pair.theirs.generation_config.forced_eos_token_id = forced
    found, own = pair.translate(sources), pair.generate(sources, exact_end=False)
    return [*cells, count(pair, sources, found, own)]


@torch.inference_mode()
def compare_logits(pair: Pair, sources: Lines, references: Lines) -> tuple[float, float]:
    """Largest absolute logit, and largest absolute difference of a logit."""
    normalizer, largest, difference = Normalizer.of(pair.job.data), 0.0, 0.0
    src = pair.tokenizer.encode([normalizer.src(line) for line in sources])
    tgt = pair.tokenizer.encode([normalizer.tgt(line) for line in references])
    for source, target in zip(src, tgt, strict=True):
        src_ids, tgt_ids = [*source, EOS], [BOS, *target]
        packed = Packed.from_sequences([src_ids])
        hidden = pair.model.decode(
            Packed.from_sequences([tgt_ids]), pair.model.encode(packed), packed
        )
        ours = pair.model.logits(hidden)
        theirs = pair.theirs(
            input_ids=torch.tensor([src_ids]), decoder_input_ids=torch.tensor([tgt_ids])
        ).logits[0]
        largest = max(largest, float(ours.abs().max()))
        difference = max(difference, float((ours - theirs).abs().max()))
    return largest, difference


def count(pair: Pair, sources: Lines, ours: Lines, theirs: Lines) -> str:
    """Number of lines that differ, and how many of them are ties."""
    differ = [i for i in range(len(sources)) if ours[i] != theirs[i]]
    if not differ:
        return "0"
    translator = pair.translator()
    lines = [sources[i] for i in differ]
    a, b = (translator.score(lines, [texts[i] for i in differ]) for texts in (ours, theirs))
    ties = sum(abs(x.log_prob - y.log_prob) < TIE for x, y in zip(a, b, strict=True))
    return f"{len(differ)} ({ties} ties)"


if __name__ == "__main__":
    run_main(main)
