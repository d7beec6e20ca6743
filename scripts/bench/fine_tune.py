"""Fine-tuning of a MarianMT model: mt-train against Hugging Face's Seq2SeqTrainer.

    python scripts/bench/fine_tune.py MODEL --train a.en a.de --valid dev.en dev.de \\
       --test test.en test.de --updates 300

MODEL is a folder of transformers' MarianMT. Both start from its weights and vocabulary and make as
many updates of as many target tokens on average, with the same rate, schedule, label smoothing,
dropout and optimizer, in fp32, each in a process of its own. Seq2SeqTrainer groups sentences of
similar length, as mt-train does; neither validates. The test set is translated by the same engine
(beam 4) with the model as it was and with both results, and scored by sacreBLEU.
"""

import shutil
import tempfile
import time
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

import sacrebleu
import shared
from real_run_peers import Log, trainer_arguments, trainer_class

from transformer_mt import Translator, compose, train
from transformer_mt.cli.compose import override
from transformer_mt.config import SourceConfig, TrainJob
from transformer_mt.data.text.lines import read_lines
from transformer_mt.data.text.sources import read_pairs
from transformer_mt.training.metrics_log import read_records


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    folder = options.folder or Path(tempfile.mkdtemp(prefix="fine_tune"))
    folder.mkdir(parents=True, exist_ok=True)
    rows = [["before", *scores(options.model, options)]]
    for name in RUNS:
        figures = measure(name, folder / name, options)
        rows.append([name, *scores(folder / name, options), *figures])
    head = ["run", "BLEU", "chrF2", "first update s", "target tokens/s", "peak MiB", "minutes"]
    print(shared.heading(), "", shared.table(head, rows), sep="\n")


def scores(model: Path, options: Namespace) -> list[str]:
    """BLEU and chrF2 of the test set."""
    sources, references = (list(read_lines(Path(name))) for name in options.test)
    found = Translator.load(model, device="cpu").translate(sources)
    metrics = sacrebleu.BLEU(), sacrebleu.CHRF()
    return [f"{metric.corpus_score(found, [references]).score:.2f}" for metric in metrics]


def parse(arguments: Sequence[str] | None) -> Namespace:
    parser = shared.argument_parser(__doc__)
    add = parser.add_argument
    add("model", type=Path, help="folder of transformers' MarianMT")
    for split in ("train", "valid", "test"):
        add(f"--{split}", nargs=2, required=True, metavar=("SOURCE", "TARGET"))
    add("--updates", type=int, default=300, help="default: 300")
    add("--batch-tokens", type=int, default=4000, help="target tokens an update (default: 4000)")
    add("--peak-lr", type=float, default=1e-4, help="after a tenth of the updates (default: 1e-4)")
    add("--folder", type=Path, help="where to write (default: a temporary folder)")
    options = parser.parse_args(arguments)
    shared.check_positive(options, "updates", "batch_tokens", "peak_lr")
    options.warmup_steps = max(1, options.updates // 10)
    return options


def measure(name: str, target: Path, options: Namespace) -> list[str]:
    """Runs one fine-tuning; seconds to the first update, tokens/s after it, memory, minutes."""
    job = compose(mt_train_settings(target, options))
    start = time.time()
    _, peak = shared.in_new_process(RUNS[name], options.model, job)
    seconds = time.time() - start
    records = [record for record in read_records(target) if record["split"] == "train"]
    times = [record["time"] for record in records]
    tokens = sum(
        record["tokens_per_second"] * (record["time"] - before)
        for before, record in zip(times, records[1:], strict=False)
    )
    rate = tokens / (times[-1] - times[0])
    first = f"{times[0] - start:.1f}"
    return [first, f"{rate:,.0f}", f"{peak / 2**20:,.0f}", f"{seconds / 60:.1f}"]


def mt_train_settings(run_dir: Path, options: Namespace) -> list[str]:
    train, valid = (
        [SourceConfig(src=str(Path(src).resolve()), tgt=str(Path(tgt).resolve()))]
        for src, tgt in (options.train, options.valid)
    )
    return [
        *shared.data_settings(train, valid), "data.test=[]", "cleaning=none",
        override("run_dir", run_dir), override("train.init_from", options.model.resolve()),
        "schedule=linear", f"schedule.peak_lr={options.peak_lr}",
        f"schedule.warmup_steps={options.warmup_steps}", f"train.max_steps={options.updates}",
        f"train.batch_tokens={options.batch_tokens}", "train.precision=fp32", "train.log_every=1",
        f"train.validate_every={options.updates}", f"train.checkpoint_every={options.updates}",
    ]  # fmt: skip


def train_with_ours(_: Path, job: TrainJob) -> None:
    train(job)


def train_with_transformers(model_folder: Path, job: TrainJob) -> None:
    """The same with ``Seq2SeqTrainer``; writes a MarianMT folder and ``metrics.jsonl``."""
    import datasets
    from transformers import AutoTokenizer, DataCollatorForSeq2Seq, MarianMTModel

    tokenizer = AutoTokenizer.from_pretrained(model_folder)
    model = MarianMTModel.from_pretrained(model_folder)
    pairs = read_pairs(job.data.train, src_lang="en", tgt_lang="de")
    src, tgt = map(list, zip(*pairs, strict=True))
    rows = datasets.Dataset.from_dict(dict(tokenizer(src, text_target=tgt)))
    lengths = [len(labels) for labels in rows["labels"]]
    size = max(1, round(job.train.batch_tokens * len(src) / sum(lengths)))
    trainer = trainer_class(Log(Path(job.run_dir)))(
        model=model,
        args=trainer_arguments(job, per_device_train_batch_size=size, save_strategy="no"),
        train_dataset=rows.add_column("length", lengths),
        data_collator=DataCollatorForSeq2Seq(tokenizer, model),
    )
    trainer.train()
    model.save_pretrained(job.run_dir)
    tokenizer.save_pretrained(job.run_dir)
    if (model_folder / "tokenizer.model").exists():  # not among the files that it saves
        shutil.copy(model_folder / "tokenizer.model", job.run_dir)


RUNS = {"mt-train": train_with_ours, "transformers": train_with_transformers}


if __name__ == "__main__":
    shared.run_main(main)
