"""A peer on the text of ``corpus_sizes.py``: MarianMT in Hugging Face's Seq2SeqTrainer.

    python scripts/bench/corpus_sizes_peer.py 320k --steps 9000

It reads the training text, the vocabulary and the settings of that run, which must have been
started: the model (post-norm, which MarianMT needs), the tokens of an update, the learning rate and
its linear schedule, and the precision are the same. It validates on newstest2013 ten times, keeps
the best of these models, and scores newstest2014 with beam 4. Choose --steps so that it takes as
long as the run that it is compared with. It does not resume.
"""

import gzip
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import sacrebleu
import torch
from corpus_sizes import SETTINGS, sample
from real_run_peers import GENERATED, Recipe, marian_batch, train_marian
from real_run_text import pairs_of_text
from reporting import SHARED_DATA, argument_parser, heading, run_main

from transformer_mt.config import ModelConfig, SourceConfig
from transformer_mt.data.subwords.tokenizer import BOS, EOS, PAD
from transformer_mt.files import write_text
from transformer_mt.model.transformer import Transformer
from transformer_mt.model_folder import read_config

BATCH = 64
"""Sentences of similar length that are translated at once."""


@dataclass(frozen=True, kw_only=True)
class RunRecipe(Recipe):
    """The recipe of a run of ``corpus_sizes.py``."""

    config: ModelConfig

    def initial_model(self) -> Transformer:
        torch.manual_seed(self.seed)
        return Transformer(self.config, self.tokenizer.vocab_size)


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("setting", choices=SETTINGS)
    parser.add_argument("--steps", type=int, required=True, help="number of updates")
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="bf16")
    parser.add_argument("--folder", type=Path, default=Path("runs/corpus_sizes"))
    parser.add_argument("--data", type=Path, default=SHARED_DATA, help="default: ../shared/data")
    options = parser.parse_args()
    folder = options.folder.resolve() / f"{options.setting}-marian"
    run = options.folder / options.setting
    job = read_config(run)
    assert job.schedule.peak_lr  # all of these experiments set it
    folder.mkdir(parents=True, exist_ok=True)
    text = {
        "train": SourceConfig(tsv=str(sample(SETTINGS[options.setting][0], options))),
        "valid": SourceConfig(
            **{
                key: str(options.data / f"mix/newstest2013.{language}.gz")
                for key, language in (("src", "en"), ("tgt", "de"))
            }
        ),
    }
    for split, source in text.items():
        pairs = list(pairs_of_text([source]))
        for i, side in enumerate(("src", "tgt")):
            write_text(folder / f"{split}.{side}", "".join(f"{pair[i]}\n" for pair in pairs))
    (folder / "tokenizer.model").write_bytes((run / "tokenizer.model").read_bytes())
    recipe = RunRecipe(
        data=str(folder),
        config=replace(job.model, norm="post"),
        batch_tokens=job.train.batch_tokens,
        precision=options.precision,
        peak_lr=job.schedule.peak_lr,
        warmup_steps=job.schedule.warmup_steps,
        validate_every=options.steps // 10,
        log_every=20,
        max_steps=options.steps,
    )
    start = time.time()
    best = {"load_best_model_at_end": True, "metric_for_best_model": "eval_bleu"}
    model = train_marian(recipe, folder, lr_scheduler_type="linear", **best)
    print(heading(f"torch {torch.__version__}, {torch.get_num_threads()} thread(s)"))
    print(f"{(time.time() - start) / 3600:.2f} hours of training and validations")
    sources, references = (
        gzip.decompress((options.data / f"mix/newstest2014.{language}.gz").read_bytes())
        .decode().removesuffix("\n").split("\n")
        for language in ("en", "de")
    )  # fmt: skip
    ids = [[*line, EOS] for line in recipe.tokenizer.encode(sources)]
    hypotheses = recipe.tokenizer.decode(list(translate(model, ids)))
    write_text(folder / "newstest2014.de", "".join(f"{line}\n" for line in hypotheses))
    for metric in (sacrebleu.BLEU(), sacrebleu.CHRF()):
        score = metric.corpus_score(hypotheses, [references], n_bootstrap=1000)
        print(json.dumps({"score": str(score), "signature": str(metric.get_signature())}))


@torch.inference_mode()
def translate(model: Any, sources: list[list[int]]) -> Iterator[list[int]]:
    """Translations by beam search with 4 hypotheses, in order."""
    model.eval()
    order = sorted(range(len(sources)), key=lambda i: len(sources[i]))
    translations: dict[int, list[int]] = {}
    for first in range(0, len(order), BATCH):
        numbers = order[first : first + BATCH]
        batch = marian_batch([{"input_ids": sources[i], "labels": [EOS]} for i in numbers])
        found = model.generate(
            input_ids=batch["input_ids"], attention_mask=batch["attention_mask"],
            num_beams=4, max_length=GENERATED,
        )  # fmt: skip
        for i, line in zip(numbers, found.tolist(), strict=True):
            translations[i] = [piece for piece in line if piece not in (BOS, EOS, PAD)]
    return (translations[i] for i in range(len(sources)))


if __name__ == "__main__":
    run_main(main)
