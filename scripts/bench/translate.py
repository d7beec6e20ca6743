"""Translation speed of a model, compared with CTranslate2 called directly and Hugging Face.

    python scripts/bench/translate.py --model runs/mine
    python scripts/bench/translate.py --model runs/mine --engines ours-fp32,ct2-float32 --beams 4

ours-auto is mt-translate's default, and ours-fast is compute_type=fast. ct2-* call CTranslate2 as
its manual advises; hf-fp32 is ``generate`` with the folder of mt-export format=transformers.

All engines have the same weights and vocabulary, and translate text to text on a CPU. In each round
every engine translates the same lines, sorted by length: all at once, in batches of its choice, and
then some of them one by one. The order of the engines rotates. The report has medians over rounds
of paired ratios; ours-fp32-again is the noise floor. Tokens are those that an engine really
produced, and BLEU shows that it translates as well as the others.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import sacrebleu
import shared
import torch

from transformer_mt import Translator, export
from transformer_mt.config import ExportJob, TranslateJob
from transformer_mt.data.text.lines import read_lines
from transformer_mt.data.text.normalization import Normalizer
from transformer_mt.decode.engine import EngineRequest
from transformer_mt.decode.engines.converted_models import find_or_convert
from transformer_mt.errors import InputError

OURS = {
    "ours-fp32": ("torch", "float32"),
    "ours-fp32-again": ("torch", "float32"),
    "ours-bf16": ("torch", "bfloat16"),
    "ours-ct2-float32": ("ctranslate2", "float32"),
    "ours-ct2-int8": ("ctranslate2", "int8"),
    "ours-auto": ("auto", "auto"),
    "ours-fast": ("auto", "fast"),
}
"""``engine`` and ``compute_type`` of mt-translate."""
ENGINES = [*OURS, "ct2-float32", "ct2-int8", "hf-fp32"]
LENGTH_PENALTY = 0.6
BATCH = 32
"""Lines per batch of the other libraries: 16, 32 and 64 are within 3% of each other (base)."""
SINGLE_LINES = 50
"""Number of lines that are translated one by one."""

Lines = Sequence[str]
Run = Callable[[Lines], tuple[list[str], int]]
"""Lines → their translations, and the number of tokens in these."""


@dataclass
class Result:
    """Measurements of one engine in one setting, by round."""

    speeds: list[float] = field(default_factory=list)
    """Output tokens per second."""
    latencies: list[float] = field(default_factory=list)
    """Seconds of each call: of each line, if they are translated singly."""
    texts: list[str] = field(default_factory=list)
    """Translations of all rounds, in the order of the lines."""


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    sources, references = (
        read_text(path, options.lines * options.rounds)
        for path in (options.source, options.reference)
    )
    request = EngineRequest(TranslateJob(model=options.model, device="cpu"))
    job = request.trained
    model = job.model
    print(shared.heading())
    print(
        shared.wrap(
            f"{options.model}: {job.data.src_lang}–{job.data.tgt_lang}, d_model {model.d_model}, "
            f"{model.num_encoder_layers} + {model.num_decoder_layers} layers, "
            f"{request.tokenizer.vocab_size:,} pieces; {options.rounds} rounds of {options.lines} "
            f"lines of {options.source}; {os.cpu_count()} cores"
        )
    )
    with tempfile.TemporaryDirectory() as scratch:
        for beam_size, singly in product(options.beams, (False, True)):
            runs = {
                name: build(name, options.model, beam_size, singly, Path(scratch))
                for name in options.engines
            }
            title = f"beam {beam_size}, {'line by line' if singly else 'batches'}"
            print(title, file=sys.stderr)
            results = measure(runs, singly, sources, options)
            print("", report(results, title, singly, references), sep="\n", flush=True)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = shared.argument_parser(__doc__)
    add = parser.add_argument
    add("--model", type=Path, required=True, help="folder of a trained model")
    test = shared.SHARED_DATA / "multi30k/test_2016_flickr"
    add("--source", type=Path, default=f"{test}.en.gz", help="text (default: %(default)s)")
    add("--reference", type=Path, default=f"{test}.de.gz", help="its translation")
    add("--lines", type=int, default=200, help="lines per round (default: 200)")
    add("--rounds", type=int, default=5, help="rounds (default: 5)")
    add("--beams", default="4,1", help="beam sizes (default: 4,1)")
    add("--engines", default=",".join(ENGINES), help="separated by commas (default: all)")
    options = parser.parse_args(arguments)
    options.engines = shared.split_names(options.engines, ENGINES)
    options.beams = [int(beam) for beam in options.beams.split(",")]
    for name in options.engines:
        if name.startswith("hf"):
            shared.require("transformers", f"--engines: {name}")
        elif "ct2" in name:
            shared.require("ctranslate2", f"--engines: {name}")
    shared.check_positive(options, "lines", "rounds")
    return options


def read_text(path: Path, number: int) -> list[str]:
    """So many lines of a file; the text is repeated if it is shorter."""
    if not path.is_file():
        raise InputError(f"no file {path}: set --source FILE --reference FILE")
    lines = list(read_lines(path))
    return (lines * (number // len(lines) + 1))[:number]


# The engines.


def build(name: str, folder: Path, beam_size: int, singly: bool, scratch: Path) -> Run:
    """Loads an engine for many lines, or for single ones."""
    if name.startswith("hf"):
        return hugging_face(folder, beam_size, scratch / "transformers")
    if name.startswith("ct2"):
        return ctranslate2_alone(name.removeprefix("ct2-"), folder, beam_size, singly)
    engine, compute_type = OURS[name]
    translator = Translator.load(
        folder,
        device="cpu",
        engine=engine,
        compute_type=compute_type,
        beam_size=beam_size,
        length_penalty=LENGTH_PENALTY,
    )

    def run(lines: Lines) -> tuple[list[str], int]:
        found = [best[0] for best in translator.translate_nbest(lines, 1)]
        return [each.text for each in found], sum(each.tokens for each in found)

    return run


def ctranslate2_alone(compute_type: str, folder: Path, beam_size: int, singly: bool) -> Run:
    """CTranslate2 as its manual advises: one worker per core, or all cores for one line."""
    import ctranslate2

    request = EngineRequest(TranslateJob(model=str(folder), device="cpu"))
    tokenizer, normalizer = request.tokenizer, Normalizer(request.trained.data)
    cores = torch.get_num_threads()
    engine = ctranslate2.Translator(
        str(find_or_convert(request.folder, compute_type)),
        compute_type=compute_type,
        inter_threads=1 if singly else cores,
        intra_threads=cores if singly else 1,
    )
    torch.set_num_threads(cores)  # CTranslate2 sets those of the whole process
    names = tokenizer.vocabulary
    ids = {piece: i for i, piece in enumerate(names)}

    def run(lines: Lines) -> tuple[list[str], int]:
        encoded = [tokenizer.encode(normalizer.src(line)) for line in lines]
        found = engine.translate_batch(
            [[names[i] for i in line] for line in encoded],
            beam_size=beam_size,
            length_penalty=LENGTH_PENALTY,
            max_batch_size=BATCH,
            max_decoding_length=256,
        )
        generated = [[ids[piece] for piece in each.hypotheses[0]] for each in found]
        return list(map(tokenizer.decode, generated)), sum(map(len, generated))

    return run


def hugging_face(folder: Path, beam_size: int, exported: Path) -> Run:
    """``generate`` with the exported model."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    if not exported.exists():
        export(ExportJob(model=str(folder), format="transformers", output=str(exported)))
    model: Any = AutoModelForSeq2SeqLM.from_pretrained(exported).eval()
    tokenizer = AutoTokenizer.from_pretrained(exported)
    special = set(tokenizer.all_special_ids)
    beams: dict[str, Any] = {"num_beams": 1, "length_penalty": 1.0, "early_stopping": False}
    if beam_size > 1:
        beams = {"num_beams": beam_size, "length_penalty": LENGTH_PENALTY, "early_stopping": True}

    @torch.inference_mode()
    def run(lines: Lines) -> tuple[list[str], int]:
        texts, tokens = [], 0
        for start in range(0, len(lines), BATCH):
            batch = list(lines[start : start + BATCH])
            inputs = tokenizer(batch, return_tensors="pt", padding=True)
            output = model.generate(**inputs, **beams).tolist()
            tokens += sum(token not in special for row in output for token in row)
            found = tokenizer.batch_decode(output, skip_special_tokens=True)
            texts += [text.strip() for text in found]
        return texts, tokens

    return run


# Timing.


def measure(
    runs: dict[str, Run], singly: bool, sources: Lines, options: argparse.Namespace
) -> dict[str, Result]:
    """Times all engines on the lines of each round."""
    names = [*runs]
    results = {name: Result() for name in names}
    for run in runs.values():
        run(sources[: min(8, options.lines)])
    for number in range(options.rounds):
        lines = sources[number * options.lines : (number + 1) * options.lines]
        order = sorted(range(len(lines)), key=lambda i: -len(lines[i]))
        if singly:
            order = order[:: max(1, len(order) // SINGLE_LINES)]  # of all lengths
        for name in shared.rotated(names, number):
            result, texts, tokens = results[name], [], 0
            started = time.perf_counter()
            for part in [[i] for i in order] if singly else [order]:
                before = time.perf_counter()
                found, count = runs[name]([lines[i] for i in part])
                result.latencies.append(time.perf_counter() - before)
                texts += found
                tokens += count
            result.speeds.append(tokens / (time.perf_counter() - started))
            if not singly:
                placed = dict(zip(order, texts, strict=True))
                result.texts += [placed[i] for i in range(len(lines))]
        print(f"round {number + 1} of {options.rounds}", file=sys.stderr)
    return results


def report(results: dict[str, Result], title: str, singly: bool, references: Lines) -> str:
    """A Markdown table of the engines with the speed of ours relative to each."""
    ours = [name for name in results if name in OURS and not name.endswith("again")]
    head = [title, "tokens/s", *(f"{name} ÷ it" for name in ours)]
    head += ["p50 ms", "p95 ms"] if singly else ["BLEU"]
    rows = []
    for name, result in results.items():
        row = [name, f"{statistics.median(result.speeds):,.0f}"]
        for mine in ours:
            ratios = [a / b for a, b in zip(results[mine].speeds, result.speeds, strict=True)]
            row.append("–" if mine == name else shared.spread(ratios))
        if singly:
            ordered = sorted(result.latencies)
            row += [f"{1e3 * ordered[int(q * (len(ordered) - 1))]:.0f}" for q in (0.5, 0.95)]
        else:
            row.append(f"{sacrebleu.corpus_bleu(result.texts, [list(references)]).score:.2f}")
        rows.append(row)
    return shared.table(head, rows)


if __name__ == "__main__":
    shared.run_main(main)
