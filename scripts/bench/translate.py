"""Translation speed, compared with CTranslate2 called directly and with Hugging Face.

    python scripts/bench/translate.py --model runs/mine                    a trained model
    python scripts/bench/translate.py --size base                          random weights
    python scripts/bench/translate.py --model runs/mine --engines ours-fp32,ct2-float32 --beams 4
    python scripts/bench/translate.py --model runs/mine --device cuda --lines 10000 --batches best

ours-auto is mt-translate's default, and ours-fast is compute_type=fast.

All engines have the same weights and vocabulary, and translate text to text. In each round every
engine translates the same lines, sorted by length; the order rotates. The report has medians over
rounds of paired ratios; ours-fp32-again is the noise floor. Tokens are those that an engine really
produced. Start-up time and peak memory are measured in separate processes. With a trained model
BLEU is reported too. Random weights would never end a translation, so all engines produce as many
tokens as the mean reference has, and start-up and memory are not measured. MarianMT supports
post-norm models only. On a GPU only ours (torch) and Hugging Face run; forced lengths prevent ours
from using CUDA graphs there.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from reporting import SHARED_DATA, argument_parser, heading, run_main, spread, table
from train import model_config, torch_details

from transformer_mt import model_folder, run_layout
from transformer_mt.config import DecodeConfig, TokenizerConfig
from transformer_mt.data.subwords.tokenizer import BOS, EOS, PAD, UNK, Tokenizer, train_tokenizer
from transformer_mt.data.text.lines import read_lines
from transformer_mt.data.text.normalization import Normalizer
from transformer_mt.decode.engines.converted_models import find_or_convert
from transformer_mt.decode.engines.engine import Engine
from transformer_mt.decode.engines.request import EngineRequest, open_engine
from transformer_mt.decode.engines.torch_engine import TorchEngine
from transformer_mt.decode.translator import Translator
from transformer_mt.distributed.world import join, pick_device
from transformer_mt.errors import InputError
from transformer_mt.model.transformer import Transformer

ENGINES = [
    "ours-fp32", "ours-fp32-again", "ours-bf16", "ours-ct2-float32", "ours-ct2-int8",
    "ours-auto", "ours-fast", "ct2-float32", "ct2-int8", "hf-fp32",
]  # fmt: skip
CHOSEN = {"ours-auto": "auto", "ours-fast": "fast"}
"""``engine=auto`` → its ``compute_type``."""
TEXTS = {
    "multi30k": ("multi30k/test_2016_flickr.en.gz", "multi30k/test_2016_flickr.de.gz"),
    "wmt": ("wmt-sample/train.en.gz", "wmt-sample/train.de.gz"),
}
BEST_BATCH = {"hf": 32, "ct2": 32}
"""Lines per batch in the setting ``best``: 16, 32 and 64 are within 3% of each other (base)."""

Lines = Sequence[str]
Run = Callable[[Lines], tuple[list[str], int]]
"""Lines → their translations, and the number of tokens in these."""


@dataclass(frozen=True)
class Model:
    """The model that all engines run."""

    folder: Path | None
    model: Transformer
    tokenizer: Tokenizer
    normalizer: Normalizer
    length: int | None
    """Forced number of tokens of every translation; None for none."""

    @property
    def device(self) -> torch.device:
        """The device of the PyTorch engines."""
        return self.model.embedding.weight.device

    def settings(self, beam_size: int) -> DecodeConfig:
        """The default settings with this beam size and the forced length."""
        config, length = DecodeConfig(beam_size=beam_size), self.length
        if length is None:
            return config
        extra = max(config.max_extra_tokens, length)
        return replace(config, min_length=length, max_length=length, max_extra_tokens=extra)


@dataclass
class Result:
    """Measurements of one engine in one setting, by round."""

    speeds: list[float] = field(default_factory=list)
    """Output tokens per second."""
    latencies: list[float] = field(default_factory=list)
    """Seconds for each line, with one line per batch."""
    texts: list[str] = field(default_factory=list)
    """Translations of all rounds, in the order of the lines."""


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    device = pick_device(options.device)
    with join(device), tempfile.TemporaryDirectory() as scratch:
        if options.threads:
            torch.set_num_threads(options.threads)
        if options.child:
            child(options.child, load(options, [], Path(scratch), device))
            return
        sources, references = read_text(options)
        model = load(options, references, Path(scratch), device)
        engines = [name for name in options.engines if reason_to_skip(name, model) is None]
        for name in options.engines:
            if (reason := reason_to_skip(name, model)) is not None:
                print(f"{name} is skipped: {reason}", file=sys.stderr)
        print(heading(torch_details(device)), describe(options, model, sources), sep="\n")
        results = {}
        for beam_size in options.beams:
            for batch in options.batches:
                found = measure(engines, model, beam_size, batch, sources, options, Path(scratch))
                results[f"beam {beam_size}, batch {batch}"] = found
                print("", report(found, beam_size, batch, model, references), sep="\n", flush=True)
        if "hf-fp32" in engines and "ours-fp32" in engines:
            print("", parity(model, sources[: options.parity]), sep="\n")
        processes = {}
        if options.model is not None and not options.no_processes:
            processes = {name: in_new_process(name, model, sources, options) for name in engines}
            rows = [[n, f"{a['start']:.2f}", f"{a['peak']:,.0f}"] for n, a in processes.items()]
            print("", table(["engine", "start-up s", "peak MiB"], rows), sep="\n")
    if options.json:
        raw = {key: {n: vars(r) for n, r in found.items()} for key, found in results.items()}
        options.json.write_text(json.dumps({"results": raw, "processes": processes}, indent=1))


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argument_parser(__doc__)
    add = parser.add_argument
    add("--model", type=Path, help="folder of a trained model")
    add("--size", default="base", help="random weights of configs/model/SIZE.yaml (default: base)")
    add("--vocab", type=int, default=8000, help="vocabulary of random weights (default: 8000)")
    add("--text", default="multi30k", choices=TEXTS, help="text to translate (default: multi30k)")
    add("--data", type=Path, default=SHARED_DATA, help="text folder (default: ../shared/data)")
    add("--lines", type=int, default=200, help="lines per round (default: 200)")
    add("--rounds", type=int, default=5, help="rounds (default: 5)")
    add("--beams", default="4,1", help="beam sizes (default: 4,1)")
    add("--batches", default="best,32,1", help="lines per batch (default: best,32,1)")
    add("--engines", default=",".join(ENGINES), help="separated by commas (default: all)")
    add("--device", default="cpu", help="cpu or cuda (default: cpu)")
    add("--threads", type=int, help="threads (default: torch's)")
    add("--parity", type=int, default=100, help="lines compared with Hugging Face (default: 100)")
    add("--no-processes", action="store_true", help="do not measure start-up time and memory")
    add("--json", type=Path, help="write all measurements to this file")
    add("--child", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    options.engines = options.engines.split(",")
    options.beams = [int(beam) for beam in options.beams.split(",")]
    options.batches = options.batches.split(",")
    for name in options.engines:
        if name not in ENGINES:
            raise InputError(f"no engine {name!r}; there are: {', '.join(ENGINES)}")
    for batch in options.batches:
        if batch != "best" and not batch.isdecimal():
            raise InputError(f"--batches: {batch!r} is neither a number nor best")
    return options


def read_text(options: argparse.Namespace) -> tuple[list[str], list[str]]:
    """As many lines as all rounds need; the text is repeated if it is shorter."""
    sides = []
    for name in TEXTS[options.text]:
        path = options.data / name
        if not path.is_file():
            raise InputError(f"no file {path}: set --data FOLDER")
        sides.append(list(read_lines(path)))
    number = options.lines * options.rounds
    sources, references = ((side * (number // len(side) + 1))[:number] for side in sides)
    return sources, references


def load(
    options: argparse.Namespace, references: Lines, scratch: Path, device: torch.device
) -> Model:
    """The model of a folder, or random weights with a vocabulary learned from the text."""
    if options.model is not None:
        model, tokenizer, job = model_folder.load_model(options.model.expanduser())
        return Model(options.model, model.to(device), tokenizer, Normalizer.of(job.data), None)
    path = scratch / run_layout.TOKENIZER
    files = (options.data / f"multi30k/train.{side}.gz" for side in ("en", "de"))
    text = [line for file in files for line in read_lines(file)]
    path.write_bytes(train_tokenizer(text, TokenizerConfig(vocab_size=options.vocab)))
    tokenizer = Tokenizer(path)
    torch.manual_seed(1)
    model = Transformer(model_config(options.size), tokenizer.vocab_size).eval()
    length = round(statistics.mean(map(len, tokenizer.encode(list(references)))))
    return Model(None, model.to(device), tokenizer, Normalizer("none", "en", "de"), length)


# The engines.


def reason_to_skip(name: str, model: Model) -> str | None:
    """Why an engine cannot run this model here; None if it can."""
    if name.startswith("hf"):
        if find_spec("transformers") is None:
            return "pip install transformers"
        if model.model.config.norm != "post":
            return "MarianMT has no pre-norm models"
    if "ct2" in name and model.device.type != "cpu":
        return "measured on CPUs only"
    if "ct2" in name and find_spec("ctranslate2") is None:
        return "pip install ctranslate2"
    if (name.startswith("ours-ct2") or name in CHOSEN) and model.length is not None:
        return "CTranslate2's engine does not support forced lengths"
    return None


def build(name: str, model: Model, beam_size: int, batch: str, scratch: Path) -> Run:
    """Loads an engine for batches of ``batch`` lines."""
    if name.startswith("hf"):
        return _hf(model, beam_size, batch)
    if name.startswith("ct2"):
        return _direct_ct2(name.removeprefix("ct2-"), model, beam_size, batch, scratch)
    config = model.settings(beam_size)
    engine = _engine(name, model, config, scratch)
    translator = Translator(engine, model.tokenizer, model.normalizer, config, token_scores=False)

    def run(lines: Lines) -> tuple[list[str], int]:
        found = [best[0] for best in translator.translate_nbest(lines, 1)]
        return [t.text for t in found], sum(t.tokens for t in found)

    return partial(in_batches, run, batch)


def _engine(name: str, model: Model, config: DecodeConfig, scratch: Path) -> Engine:
    """One of ours: PyTorch, CTranslate2, or the one that mt-translate chooses."""
    if name in CHOSEN:
        assert model.folder is not None
        request = EngineRequest.open(
            model.folder,
            search={
                "beam_size": config.beam_size,
                "length_penalty": config.length_penalty,
                "max_extra_tokens": config.max_extra_tokens,
            },
            device=str(model.device),
            compute_type=CHOSEN[name],
        )
        return open_engine("auto", request)
    dtype = torch.bfloat16 if "bf16" in name else torch.float32
    torch_engine = TorchEngine([model.model], config, dtype)
    if not name.startswith("ours-ct2"):
        return torch_engine
    from transformer_mt.decode.engines.ctranslate2_engine import CTranslate2Engine

    compute_type = name.removeprefix("ours-ct2-")
    converted = _converted(model, compute_type, scratch)
    return CTranslate2Engine(
        converted,
        model.tokenizer,
        model.model.config,
        config,
        lambda: torch_engine,
        compute_type=compute_type,
    )


def _converted(model: Model, compute_type: str, scratch: Path) -> Path:
    if model.folder is not None:
        return find_or_convert(EngineRequest.open(model.folder, device="cpu"), compute_type)
    from transformer_mt.decode.engines.ctranslate2_conversion import save

    folder = scratch / compute_type
    if not folder.exists():
        folder.mkdir()
        vocabulary = scratch / run_layout.TOKENIZER
        save(folder, model.model, model.tokenizer, vocabulary, compute_type)
    return folder


def _direct_ct2(compute_type: str, model: Model, beam_size: int, batch: str, scratch: Path) -> Run:
    """CTranslate2 as its manual advises: one worker per core, or all cores for one line."""
    import ctranslate2

    cores, one = torch.get_num_threads(), batch == "1"
    engine = ctranslate2.Translator(
        str(_converted(model, compute_type, scratch)),
        compute_type=compute_type,
        inter_threads=1 if one else cores,
        intra_threads=cores if one else 1,
    )
    torch.set_num_threads(cores)  # CTranslate2 sets those of the whole process
    names = model.tokenizer.vocabulary
    ids = {piece: i for i, piece in enumerate(names)}
    lengths: dict[str, Any] = {"max_decoding_length": 256}
    if model.length is not None:  # the end symbol counts
        lengths = {"min_decoding_length": model.length, "max_decoding_length": model.length}

    def run(lines: Lines) -> tuple[list[str], int]:
        encoded = model.tokenizer.encode([model.normalizer.src(line) for line in lines])
        found = engine.translate_batch(
            [[names[i] for i in line] for line in encoded],
            beam_size=beam_size,
            length_penalty=0.6,
            max_batch_size=BEST_BATCH["ct2"] if batch == "best" else int(batch),
            **lengths,
        )
        generated = [[ids[piece] for piece in each.hypotheses[0]] for each in found]
        return model.tokenizer.decode(generated), sum(map(len, generated))

    return run if batch == "best" else partial(in_batches, run, batch)


def _hf(model: Model, beam_size: int, batch: str, **more: Any) -> Run:
    """``generate`` of MarianMT, in batches sorted by length."""
    from peers import MarianPeer
    from torch.nn.utils.rnn import pad_sequence

    peer: Any = MarianPeer(model.model).eval().to(model.device).model
    config = DecodeConfig()
    arguments = {
        "num_beams": beam_size, "do_sample": False, "length_penalty": config.length_penalty,
        "early_stopping": True, "suppress_tokens": [PAD, UNK, BOS], "bad_words_ids": None, **more,
    }  # fmt: skip

    @torch.inference_mode()
    def run(lines: Lines) -> tuple[list[str], int]:
        encoded = model.tokenizer.encode([model.normalizer.src(line) for line in lines])
        rows = [torch.tensor([*line, EOS]) for line in encoded]
        src = pad_sequence(rows, batch_first=True, padding_value=PAD).to(model.device)
        limit = model.length or src.shape[1] - 1 + config.max_extra_tokens
        out = peer.generate(
            input_ids=src,
            attention_mask=(src != PAD).long(),
            max_new_tokens=limit + 1,
            min_new_tokens=None if model.length is None else limit + 1,
            **arguments,
        )
        special = {PAD, BOS, EOS}
        generated = [[token for token in row if token not in special] for row in out.tolist()]
        return model.tokenizer.decode(generated), sum(map(len, generated))

    return partial(in_batches, run, str(BEST_BATCH["hf"]) if batch == "best" else batch)


def in_batches(run: Run, batch: str, lines: Lines) -> tuple[list[str], int]:
    """Runs batches of ``batch`` lines, or all lines at once with ``best``."""
    size = len(lines) if batch == "best" else int(batch)
    texts, tokens = [], 0
    for start in range(0, len(lines), size):
        found, number = run(lines[start : start + size])
        texts += found
        tokens += number
    return texts, tokens


# Timing.


def measure(
    engines: list[str],
    model: Model,
    beam_size: int,
    batch: str,
    sources: Lines,
    options: argparse.Namespace,
    scratch: Path,
) -> dict[str, Result]:
    """Times all engines on the lines of each round."""
    runs = {name: build(name, model, beam_size, batch, scratch) for name in engines}
    results = {name: Result() for name in engines}
    for run in runs.values():
        run(sources[: min(8, options.lines)])
    for number in range(options.rounds):
        lines = sources[number * options.lines : (number + 1) * options.lines]
        order = sorted(range(len(lines)), key=lambda i: -len(lines[i]))
        if batch == "1":
            order = order[:: max(1, len(order) // 50)]  # 50 lines of all lengths
        ordered = [lines[i] for i in order]
        turn = number % len(engines)
        for name in engines[turn:] + engines[:turn]:
            result, tokens, texts = results[name], 0, []
            started = time.perf_counter()
            for part in [[line] for line in ordered] if batch == "1" else [ordered]:
                before = time.perf_counter()
                found, count = runs[name](part)
                texts += found
                tokens += count
                if batch == "1":
                    result.latencies.append(time.perf_counter() - before)
            result.speeds.append(tokens / (time.perf_counter() - started))
            if batch != "1":
                placed = dict(zip(order, texts, strict=True))
                result.texts += [placed[i] for i in range(len(lines))]
        print(f"beam {beam_size}, batch {batch}: round {number + 1}", file=sys.stderr)
    return results


def report(
    results: dict[str, Result], beam_size: int, batch: str, model: Model, references: Lines
) -> str:
    """A table of the engines with the speed of ours relative to each."""
    ours = [name for name in results if name.startswith("ours") and not name.endswith("again")]
    head = [f"beam {beam_size}, batch {batch}", "tokens/s", *(f"{name} ÷ it" for name in ours)]
    if batch == "1":
        head += ["p50 ms", "p95 ms"]
    elif model.length is None:
        head += ["BLEU", "lines equal to the first"]
    rows = []
    for name, result in results.items():
        row = [name, f"{statistics.median(result.speeds):,.0f}"]
        row += ["–" if mine == name else ratio(results[mine], result) for mine in ours]
        if batch == "1":
            ordered = sorted(result.latencies)
            row += [f"{1e3 * ordered[int(q * (len(ordered) - 1))]:.0f}" for q in (0.5, 0.95)]
        elif model.length is None:
            import sacrebleu

            row.append(f"{sacrebleu.corpus_bleu(result.texts, [list(references)]).score:.2f}")
            pairs = zip(result.texts, next(iter(results.values())).texts, strict=True)
            row.append(f"{sum(own == first for own, first in pairs):,} of {len(references):,}")
        rows.append(row)
    return table(head, rows)


def ratio(mine: Result, other: Result) -> str:
    """Speed-up of ``mine`` over ``other``: median and extremes over the rounds."""
    ratios = [a / b for a, b in zip(mine.speeds, other.speeds, strict=True)]
    return spread(ratios)


def parity(model: Model, sources: Lines) -> str:
    """How many lines are equal with search settings that both libraries implement alike.

    These are greedy search, and beam search without a length penalty.
    """
    lines = sorted(sources, key=len)
    shares = []
    for beam_size in (1, 4):
        theirs, _ = _hf(model, beam_size, "32", length_penalty=0.0)(lines)
        config = replace(model.settings(beam_size), length_penalty=0.0)
        engine = TorchEngine([model.model], config)
        ours = Translator(engine, model.tokenizer, model.normalizer, config).translate(lines)
        same = sum(a.strip() == b.strip() for a, b in zip(ours, theirs, strict=True))
        shares.append(f"{same} of {len(lines)} lines at beam {beam_size}")
    return f"ours-fp32 and hf-fp32 agree without a length penalty: {', '.join(shares)}"


# Separate processes.


CT2_ALONE = """
import json, sys, time
import ctranslate2, sentencepiece

folder, vocabulary, compute_type, threads = sys.argv[1:]
engine = ctranslate2.Translator(folder, compute_type=compute_type, inter_threads=int(threads),
                                intra_threads=1)
pieces = sentencepiece.SentencePieceProcessor(model_file=vocabulary)
lines = [pieces.encode(line, out_type=str) for line in json.load(sys.stdin)]
first = engine.translate_batch(lines[:1], beam_size=4)
print(pieces.decode(first[0].hypotheses[0]), file=sys.stderr)
done = time.time()
engine.translate_batch(lines, beam_size=4, max_batch_size=32)
status = open("/proc/self/status").read()
print(json.dumps({"first": done, "peak": int(status.split("VmHWM:")[1].split()[0]) / 1024}))
"""
"""CTranslate2 called directly, in a process without PyTorch."""


def in_new_process(
    name: str, model: Model, sources: Lines, options: argparse.Namespace
) -> dict[str, float]:
    """Seconds from the start of a process to its first translation, and its peak memory in MiB."""
    if name.startswith("ct2"):
        compute_type = name.removeprefix("ct2-")
        place = _converted(model, compute_type, Path())
        vocabulary = options.model.expanduser() / run_layout.TOKENIZER
        command = [sys.executable, "-c", CT2_ALONE, str(place), str(vocabulary), compute_type]
        command.append(str(torch.get_num_threads()))
    else:
        command = [sys.executable, __file__, "--child", name, "--model", str(options.model)]
        command += ["--threads", str(torch.get_num_threads()), "--device", options.device]
    started = time.time()
    text = json.dumps(list(sources[:100]))
    done = subprocess.run(command, input=text, check=True, stdout=subprocess.PIPE, text=True)
    found = json.loads(done.stdout.splitlines()[-1])
    return {"start": found["first"] - started, "peak": found["peak"]}


def child(name: str, model: Model) -> None:
    """Body of such a process: translates one line, then a hundred."""
    sources = json.load(sys.stdin)
    run = build(name, model, 4, "best", Path())
    run(sources[:1])
    first = time.time()
    run(sources)
    # Not getrusage, whose peak includes the memory of the parent process.
    status = Path("/proc/self/status").read_text()
    print(json.dumps({"first": first, "peak": int(status.split("VmHWM:")[1].split()[0]) / 1024}))


def describe(options: argparse.Namespace, model: Model, sources: Lines) -> str:
    """One line on the model and the text."""
    config = model.model.config
    what = f"{model.folder}" if model.folder else f"random weights, {options.size}"
    ends = "" if model.length is None else f"; every translation has {model.length} tokens"
    return (
        f"{what}: d_model {config.d_model}, {config.num_decoder_layers} decoder layers, "
        f"{model.tokenizer.vocab_size:,} pieces; {options.rounds} rounds of {options.lines} lines "
        f"of {options.text}{ends}; {os.cpu_count()} cores"
    )


if __name__ == "__main__":
    run_main(main)
