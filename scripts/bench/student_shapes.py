"""Speed of possible students: CTranslate2 int8 on one thread, with random weights.

    python scripts/bench/student_shapes.py
    python scripts/bench/student_shapes.py --vocab 8000 --shapes base,12+1x256

A shape is base, or ENCODER+DECODERxD_MODEL, with d_ff = 4 d_model, heads of 64 and pre-norm
layers. Lines of about 25 random tokens are translated in batches of 32 into as many tokens. In each
round the shapes take turns; speeds are medians over the rounds. --shortlist also measures with a
vocabulary shortlist of 20 random pieces for each source piece: a batch has more of them than of
real ones.
"""

import random
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from reporting import argument_parser, heading, run_main, table

from transformer_mt.config import ModelConfig
from transformer_mt.decode.engines.ctranslate2_conversion import specification
from transformer_mt.model.transformer import Transformer

SHAPES = "base,6+2x512,12+1x512,6+1x384,6+2x384,12+1x384,6+1x256,6+2x256,12+1x256"
BATCH = 32


def main() -> None:
    parser = argument_parser(__doc__)
    add = parser.add_argument
    add("--shapes", default=SHAPES, help=f"separated by commas (default: {SHAPES})")
    add("--vocab", type=int, default=32000, help="vocabulary (default: 32000)")
    add("--lines", type=int, default=192, help="lines (default: 192)")
    add("--rounds", type=int, default=3, help="rounds (default: 3)")
    add("--shortlist", action="store_true", help="measure with a vocabulary shortlist, too")
    options = parser.parse_args()
    vocabulary = ["<pad>", "<unk>", "<s>", "</s>", *(f"▁{i}" for i in range(options.vocab - 4))]
    rng = random.Random(1)
    lengths = sorted(max(4, min(60, int(rng.gauss(25, 10)))) for _ in range(options.lines))
    lines = [rng.choices(vocabulary[4:], k=length) for length in lengths]
    settings = [(b, s) for b in (1, 4) for s in ([False, True] if options.shortlist else [False])]
    with tempfile.TemporaryDirectory() as scratch:
        shapes = options.shapes.split(",")
        models = [
            save(shape, vocabulary, Path(scratch) / str(i), shortlist=options.shortlist)
            for i, shape in enumerate(shapes)
        ]
        speeds = [{setting: list[float]() for setting in settings} for _ in models]
        for model, *_ in models:
            measure(model, lines, 1, shortlist=False)  # warm up
        for _ in range(options.rounds):
            for (model, *_), of_model in zip(models, speeds, strict=True):
                for beam, shortlist in settings:
                    found = measure(model, lines, beam, shortlist=shortlist)
                    of_model[beam, shortlist].append(found)
    print(heading("one thread"), "", sep="\n")
    rows = [
        [shape, f"{size:.1f} M", f"{megabytes:.1f}", *map(lines_per_second, found.values())]
        for shape, (_, size, megabytes), found in zip(shapes, models, speeds, strict=True)
    ]
    columns = [f"lines/s, beam {b}{', shortlist' if s else ''}" for b, s in settings]
    print(table(["layers, d_model", "parameters", "MB", *columns], rows))


def save(
    shape: str, vocabulary: Sequence[str], folder: Path, *, shortlist: bool
) -> tuple[Any, float, float]:
    """A CTranslate2 model with random weights, its millions of parameters and its megabytes."""
    import ctranslate2

    config = ModelConfig()
    if shape != "base":
        layers, _, size = shape.partition("x")
        encoder, _, decoder = layers.partition("+")
        config = ModelConfig(
            d_model=int(size),
            d_ff=4 * int(size),
            num_heads=int(size) // 64,
            num_encoder_layers=int(encoder),
            num_decoder_layers=int(decoder),
            norm="pre",
        )
    torch.manual_seed(1)
    model = Transformer(config, len(vocabulary)).eval()
    tokenizer: Any = SimpleNamespace(vocabulary=vocabulary)
    tokenizer.tgt = tokenizer
    spec = specification(model, tokenizer)
    spec.validate()
    spec.optimize(quantization="int8")
    folder.mkdir()
    if shortlist:
        rng, text = random.Random(2), [f"\t{' '.join(vocabulary[:100])}"]
        text += [f"{piece}\t{' '.join(rng.sample(vocabulary[4:], 20))}" for piece in vocabulary[4:]]
        (folder / "all.txt").write_text("\n".join(text) + "\n", encoding="utf-8")
        spec.register_vocabulary_mapping(str(folder / "all.txt"))
    spec.save(str(folder))
    millions = sum(p.numel() for p in model.parameters()) / 1e6
    megabytes = (folder / "model.bin").stat().st_size / 1e6
    translator = ctranslate2.Translator(str(folder), inter_threads=1, intra_threads=1)
    return translator, millions, megabytes


def measure(translator: Any, lines: Sequence[list[str]], beam: int, *, shortlist: bool) -> float:
    """Lines per second."""
    start = time.perf_counter()
    for i in range(0, len(lines), BATCH):
        batch = lines[i : i + BATCH]
        length = sum(map(len, batch)) // len(batch)
        translator.translate_batch(
            batch,
            beam_size=beam,
            min_decoding_length=length,
            max_decoding_length=length,
            use_vmap=shortlist,
        )
    return len(lines) / (time.perf_counter() - start)


def lines_per_second(speeds: Sequence[float]) -> str:
    """Median and extremes."""
    return f"{statistics.median(speeds):.0f} ({min(speeds):.0f}–{max(speeds):.0f})"


if __name__ == "__main__":
    run_main(main)
