"""Fine-tuning of a MarianMT model: mt-train against Hugging Face's Seq2SeqTrainer.

    python scripts/bench/fine_tune.py MODEL --train a.en a.de --valid dev.en dev.de \\
       --test test.en test.de --updates 300

MODEL is a folder of transformers' MarianMT. Both start from its weights and vocabulary and make as
many updates of as many target tokens on average, with the same rate, schedule, label smoothing,
dropout and optimizer, in fp32, each in a process of its own. Seq2SeqTrainer groups sentences of
similar length, as mt-train does; neither validates. The test set is translated by the same engine
(beam 4) with the model as it was and with both results, and scored by sacreBLEU.
"""

import json
import shutil
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from process_tree import usage
from reporting import argument_parser, heading, run_main, table

from transformer_mt.cli.compose import override
from transformer_mt.config import SourceConfig

ADAM = {"adam_beta1": 0.9, "adam_beta2": 0.98, "adam_epsilon": 1e-9}
COMMANDS = [sys.executable, "-m", "transformer_mt.cli"]


def main() -> None:
    options = parse()
    if options.child:
        fine_tune_with_transformers(options)
        return
    folder = options.folder or Path(tempfile.mkdtemp(prefix="fine_tune"))
    folder.mkdir(parents=True, exist_ok=True)
    results = {name: measure(name, folder, options) for name in options.runs}
    models = {"before": options.model} | {name: folder / name for name in options.runs}
    for name, model in models.items():
        arguments = [override("model", model), override("input", options.test[0])]
        arguments.append(override("output", f"{folder / name}.out"))
        subprocess.run([*COMMANDS, "translate", *arguments], check=True, stderr=subprocess.DEVNULL)
    print(heading(f"torch {torch.__version__}, {torch.get_num_threads()} thread(s)"))
    head = ("run", "first update s", "target tokens/s", "peak MiB", "minutes")
    print(f"\n{table(head, [(name, *row) for name, row in results.items()])}\n", flush=True)
    score = [override("hypotheses", [f"{folder / name}.out" for name in models])]
    score += [override("references", [options.test[1]]), override("source", options.test[0])]
    subprocess.run([*COMMANDS, "evaluate", *score], check=True)


def parse() -> Namespace:
    parser = argument_parser(__doc__)
    parser.add_argument("model", type=Path, help="folder of transformers' MarianMT")
    for split in ("train", "valid", "test"):
        parser.add_argument(f"--{split}", nargs=2, required=True, metavar=("SOURCE", "TARGET"))
    parser.add_argument("--updates", type=int, default=300)
    parser.add_argument("--batch-tokens", type=int, default=4000, help="target tokens an update")
    parser.add_argument("--peak-lr", type=float, default=1e-4)
    parser.add_argument("--warmup", type=int, default=30, help="updates of warm-up")
    parser.add_argument("--runs", nargs="+", default=["mt-train", "transformers"])
    parser.add_argument("--folder", type=Path, help="where to write (default: a temporary folder)")
    parser.add_argument("--child", type=Path, help="internal: train with transformers, here")
    return parser.parse_args()


def measure(name: str, folder: Path, options: Namespace) -> tuple[str, ...]:
    """Runs one fine-tuning; seconds to the first update, tokens/s after it, memory, minutes."""
    target = folder / name
    if name == "mt-train":
        command = [*COMMANDS, "train", *mt_train_settings(target, options)]
    else:
        command = [sys.executable, *sys.argv, "--child", str(target)]
    peak = 0
    start = time.time()
    with Path(f"{target}.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        while process.poll() is None:
            peak = max(peak, usage(process.pid).pss)
            time.sleep(2)  # reading the memory of a large process takes a tenth of a second
    if process.returncode:
        sys.exit(f"{name} failed: see {target}.log")
    minutes = (time.time() - start) / 60
    lines = (target / "metrics.jsonl").read_text().splitlines()
    records = [r for r in map(json.loads, lines) if r["split"] == "train"]
    times = [r["time"] for r in records]
    tokens = sum(
        record["tokens_per_second"] * (record["time"] - before)
        for before, record in zip(times, records[1:], strict=False)
    )
    rate = tokens / (times[-1] - times[0])
    return f"{times[0] - start:.1f}", f"{rate:,.0f}", f"{peak >> 20:,}", f"{minutes:.1f}"


def mt_train_settings(run_dir: Path, options: Namespace) -> list[str]:
    def source(split: str) -> str:
        src, tgt = (Path(name).resolve() for name in getattr(options, split))
        return override(f"data.{split}", [SourceConfig(src=str(src), tgt=str(tgt))])

    return [
        override("run_dir", run_dir), override("train.init_from", options.model.resolve()),
        "data=files", "data.src_lang=en", "data.tgt_lang=de", "cleaning=none",
        source("train"), source("valid"), "data.test=[]",
        "schedule=linear", f"schedule.peak_lr={options.peak_lr}",
        f"schedule.warmup_steps={options.warmup}", f"train.max_steps={options.updates}",
        f"train.batch_tokens={options.batch_tokens}", "train.precision=fp32", "train.log_every=1",
        f"train.validate_every={options.updates}", f"train.checkpoint_every={options.updates}",
    ]  # fmt: skip


def fine_tune_with_transformers(options: Namespace) -> None:
    """The same with ``Seq2SeqTrainer``; writes a MarianMT folder and ``metrics.jsonl``."""
    import datasets
    from transformers import (
        AutoTokenizer,
        DataCollatorForSeq2Seq,
        MarianMTModel,
        Seq2SeqTrainer,
        Seq2SeqTrainingArguments,
    )

    tokenizer = AutoTokenizer.from_pretrained(options.model)
    model = MarianMTModel.from_pretrained(options.model)
    src, tgt = (Path(name).read_text().removesuffix("\n").split("\n") for name in options.train)
    rows = datasets.Dataset.from_dict(dict(tokenizer(src, text_target=tgt)))
    lengths = [len(labels) for labels in rows["labels"]]
    rows = rows.add_column("length", lengths)
    records: list[dict[str, float]] = []

    class Trainer(Seq2SeqTrainer):  # type: ignore[misc]
        """Counts target tokens without padding."""

        def training_step(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            targets = int((inputs["labels"] != -100).sum())
            loss = super().training_step(model, inputs, *args, **kwargs)
            records.append({"targets": targets, "time": time.time()})
            return loss

    arguments = Seq2SeqTrainingArguments(
        output_dir=str(options.child / "checkpoints"),
        max_steps=options.updates,
        per_device_train_batch_size=max(1, round(options.batch_tokens * len(src) / sum(lengths))),
        train_sampling_strategy="group_by_length",
        learning_rate=options.peak_lr,
        lr_scheduler_type="linear",
        warmup_steps=options.warmup,
        optim="adamw_torch_fused",
        **ADAM,
        max_grad_norm=0.0,
        label_smoothing_factor=0.1,
        save_strategy="no",
        disable_tqdm=True,
        report_to="none",
    )
    Trainer(
        model=model,
        args=arguments,
        train_dataset=rows,
        data_collator=DataCollatorForSeq2Seq(tokenizer, model),
    ).train()
    model.save_pretrained(options.child)
    tokenizer.save_pretrained(options.child)
    if Path(options.model, "tokenizer.model").exists():  # not among the files that it saves
        shutil.copy(options.model / "tokenizer.model", options.child)
    write_metrics(options.child / "metrics.jsonl", records)


def write_metrics(path: Path, records: Sequence[dict[str, float]]) -> None:
    """The records of mt-train's log that ``measure`` reads."""
    with path.open("w") as file:
        before = {"time": records[0]["time"] - 1.0}
        for earlier, record in pairwise([before, *records]):
            rate = record["targets"] / (record["time"] - earlier["time"])
            values = {"split": "train", "time": record["time"], "tokens_per_second": rate}
            file.write(json.dumps(values) + "\n")


if __name__ == "__main__":
    run_main(main)
