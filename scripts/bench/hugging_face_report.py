"""Speed and scores of exports to transformers, as a report for speed_picture.py.

    mt-export model=runs/mine format=transformers output=exported
    OMP_NUM_THREADS=1 python scripts/bench/hugging_face_report.py report.json \\
        --run runs/fast/student --model "teacher, Hugging Face" exported

``generate`` translates the test set of RUN in float32 with one thread, in batches of 32 lines
sorted by length, as CTranslate2 does. The export decides all other settings of the search. Speeds
are measured on the first lines, in several rounds.
"""

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from reporting import argument_parser, run_main

from transformer_mt import files, model_folder
from transformer_mt.data.prepare import read_all
from transformer_mt.evaluation.metrics import make_metric
from transformer_mt.kernels.hardware import exact_cpu

BATCH = 32


def main() -> None:
    parser = argument_parser(__doc__)
    add = parser.add_argument
    add("output", type=Path, metavar="OUTPUT", help="JSON file to write")
    add("--run", type=Path, required=True, help="run folder, whose test set is used")
    add("--model", nargs=2, action="append", required=True, metavar=("NAME", "EXPORTED"),
        help="name, and the folder that mt-export format=transformers wrote; repeated")  # fmt: skip
    add("--lines", type=int, default=500, help="lines of which speeds are measured (default: 500)")
    add("--rounds", type=int, default=3, help="rounds (default: 3)")
    options = parser.parse_args()
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    torch.set_num_threads(1)
    job = model_folder.read_config(options.run)
    pairs = read_all(job.data.test or job.data.valid, job.data, files.cache_path(job.cache_dir))
    sources, references = [pair.src for pair in pairs], [[pair.tgt for pair in pairs]]
    metrics = {name: make_metric(name, job.data.tgt_lang) for name in ("bleu", "chrf")}
    rows = []
    for name, folder in options.model:
        model = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
        generate = partial(translate, model, AutoTokenizer.from_pretrained(folder))
        megabytes = sum(path.stat().st_size for path in Path(folder).iterdir()) / 1e6
        row: dict[str, Any] = {"model": name, "megabytes": megabytes}
        row |= {"label": Path(folder).name, "exported": folder}
        lines = sources[: options.lines]
        words = sum(len(line.split()) for line in lines)
        for beam in (1, 4):
            speeds = row[f"words_per_second 1 {beam}"] = []
            for _ in range(options.rounds):
                began = time.perf_counter()
                generate(lines, beam)
                speeds.append(words / (time.perf_counter() - began))
            texts = generate(sources, beam)
            for key, metric in metrics.items():
                row[f"{key} {beam}"] = metric.corpus_score(texts, references).score
        rows.append(row)
        print(row)
    files.write_json(options.output, {"cpu": exact_cpu(), "models": rows})


def translate(model: Any, tokenizer: Any, lines: Sequence[str], beam: int) -> list[str]:
    """Translations of some lines, in their order."""
    order = sorted(range(len(lines)), key=lambda i: len(lines[i]))
    texts = [""] * len(lines)
    for start in range(0, len(order), BATCH):
        batch = order[start : start + BATCH]
        inputs = tokenizer([lines[i] for i in batch], return_tensors="pt", padding=True)
        with torch.inference_mode():
            output = model.generate(**inputs, num_beams=beam)
        decoded = tokenizer.batch_decode(output, skip_special_tokens=True)
        for i, text in zip(batch, decoded, strict=True):
            texts[i] = text
    return texts


if __name__ == "__main__":
    run_main(main)
