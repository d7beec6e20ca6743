"""The peers of ``real_run.py``: complete training programs with the libraries' own loops.

    python scripts/bench/real_run_peers.py PEER FOLDER

They read ``FOLDER/../recipe.json`` and the text and vocabulary that it names, encode the text, and
train until they are stopped, with validations and checkpoints. ``FOLDER/run/metrics.jsonl`` has
the form of mt-train's. Models and initial weights are those of ``train.py``; see ``peers.py``.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import torch
from peers import MarianPeer, PaddedPairs, TorchPeer
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Sampler
from train import model_config

from transformer_mt.data.store.token_store import Side, TokenStore
from transformer_mt.data.subwords.tokenizer import BOS, EOS, PAD, Tokenizer
from transformer_mt.distributed.world import pick_device
from transformer_mt.model.transformer import Transformer
from transformer_mt.training.metrics_log import MetricsLog
from transformer_mt.training.step import autocast

ADAM: Any = {"betas": (0.9, 0.98), "eps": 1e-9}
POOL = 100
"""Number of batches whose pairs are sorted by length together."""
GENERATED = 128
"""Maximum length of a translation in the validations of Hugging Face's trainer."""
IGNORED = -100
"""Label of padding in Hugging Face's library."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What all runs of a comparison have in common, mt-train's included."""

    data: str
    """Folder with train.src, train.tgt, valid.src, valid.tgt and tokenizer.model."""
    model: str = "small"
    """Name in ``configs/model``; always post-norm, which MarianMT needs."""
    batch_tokens: int = 2048
    """Target tokens of an update, on average."""
    precision: str = "fp32"
    label_smoothing: float = 0.1
    peak_lr: float = 1e-3
    warmup_steps: int = 400
    """Updates of linear warm-up; then the rate falls with the inverse square root."""
    validate_every: int = 250
    """Updates between validations, each with a checkpoint."""
    log_every: int = 10
    max_tokens: int = 256
    """Longer training pairs are dropped."""
    max_steps: int = 10**6
    seed: int = 1

    def read(self, split: str) -> TokenStore:
        """Encodes ``train`` or ``valid``; only training pairs are dropped."""
        tokenizer = self.tokenizer
        sides = []
        for side in ("src", "tgt"):
            text = Path(self.data, f"{split}.{side}").read_text(encoding="utf-8")
            ids = tokenizer.encode(text.removesuffix("\n").split("\n"))
            sides.append([[*line, EOS] for line in ids])
        limit = self.max_tokens if split == "train" else sys.maxsize
        pairs = zip(*sides, strict=True)
        kept = [pair for pair in pairs if all(1 < len(side) <= limit for side in pair)]
        src, tgt = (Side.from_lists(side) for side in zip(*kept, strict=True))
        return TokenStore(src, tgt)

    @property
    def tokenizer(self) -> Tokenizer:
        return Tokenizer(Path(self.data, "tokenizer.model"))

    def initial_model(self) -> Transformer:
        """Our model, whose weights the peers start with."""
        torch.manual_seed(self.seed)
        return Transformer(model_config(self.model), self.tokenizer.vocab_size)

    def pairs_per_update(self, train: TokenStore) -> int:
        """Number of pairs that have ``batch_tokens`` target tokens on average."""
        return max(1, round(self.batch_tokens * len(train) / len(train.tgt.tokens)))


class Log:
    """Writes ``metrics.jsonl`` as mt-train does; target tokens are counted without padding."""

    def __init__(self, folder: Path):
        folder.mkdir(parents=True, exist_ok=True)
        self._metrics = MetricsLog(folder, 0)
        self._start, self._tokens = time.perf_counter(), 0

    def count(self, targets: Tensor | int) -> None:
        """Adds the target tokens of a batch."""
        self._tokens += int(targets)

    def train(self, step: int, loss: float) -> None:
        """Records the updates since the last call."""
        now = time.perf_counter()
        rate = self._tokens / (now - self._start)
        values = {"loss": loss, "tokens_per_second": rate, "target_tokens": self._tokens}
        self._metrics.append("train", step, values)
        self._start, self._tokens = now, 0

    def valid(self, step: int, values: dict[str, float]) -> None:
        """Records a validation."""
        self._metrics.append("valid", step, values)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Excludes the time spent in this context from tokens/s."""
        start = time.perf_counter()
        yield
        self._start += time.perf_counter() - start


# torch.nn.Transformer in a loop as in PyTorch's tutorials.


def train_torch(recipe: Recipe, folder: Path, *, sort: bool = False) -> None:
    """A plain loop over a DataLoader, which pads random pairs or, sorted, pairs of one length."""
    device = pick_device("auto")
    train, valid = recipe.read("train"), recipe.read("valid")
    # The encoder's kernel for inference fails under a CPU's autocast, in the first validation.
    torch.backends.mha.set_fastpath_enabled(False)
    model = TorchPeer(recipe.initial_model()).to(device).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=recipe.peak_lr, **ADAM, fused=True)
    warmup = recipe.warmup_steps
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda done: min((done + 1) / warmup, (warmup / (done + 1)) ** 0.5)
    )
    how: Any = {"batch_size": recipe.pairs_per_update(train), "shuffle": True}
    if sort:
        how = {"batch_sampler": SortedBatches(train, recipe.batch_tokens)}
    numbers: Any = range(len(train))  # a dataset of pair numbers
    loader = DataLoader(numbers, **how, collate_fn=partial(PaddedPairs.collate, train))
    log, losses = Log(folder), torch.zeros((), device=device)
    for step, batch in enumerate(chain.from_iterable(repeat(loader)), 1):
        log.count((batch.tgt_out != PAD).sum())
        loss = torch_loss(model, batch.to(device), recipe, recipe.label_smoothing)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        losses += loss.detach()
        if step % recipe.log_every == 0:
            log.train(step, losses.item() / recipe.log_every)
            losses.zero_()
        if step % recipe.validate_every == 0 or step == recipe.max_steps:
            with log.paused():
                state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
                torch.save({**state, "step": step}, folder / "checkpoint.pt")
                log.valid(step, {"nll": torch_nll(model, valid, recipe, device)})
        if step == recipe.max_steps:
            return


def torch_loss(
    model: nn.Module, batch: PaddedPairs, recipe: Recipe, smoothing: float, reduction: str = "mean"
) -> Tensor:
    """Cross entropy of a batch, over its target tokens."""
    with autocast(batch.src.device, recipe.precision):
        return F.cross_entropy(
            model(batch).flatten(0, 1),
            batch.tgt_out.flatten(),
            ignore_index=PAD,
            reduction=reduction,
            label_smoothing=smoothing,
        )


@torch.no_grad()
def torch_nll(model: nn.Module, valid: TokenStore, recipe: Recipe, device: torch.device) -> float:
    """Negative log-likelihood per target token of the validation set."""
    numbers: Any = range(len(valid))
    loader = DataLoader(
        numbers,
        batch_size=recipe.pairs_per_update(valid),
        collate_fn=partial(PaddedPairs.collate, valid),
    )
    model.eval()
    total = sum(
        torch_loss(model, batch.to(device), recipe, 0.0, "sum").double().item() for batch in loader
    )
    model.train()
    return total / len(valid.tgt.tokens)


class SortedBatches(Sampler[list[int]]):
    """Shuffled batches of pairs of similar length, with about ``tokens`` target tokens each."""

    def __init__(self, store: TokenStore, tokens: int):
        self._lengths = torch.from_numpy(store.tgt.lengths)
        self._tokens = tokens

    def __iter__(self) -> Iterator[list[int]]:
        order = torch.randperm(len(self._lengths))
        pairs_per_pool = int(POOL * self._tokens / self._lengths.double().mean())
        batches = []
        for pool in order.split(max(1, pairs_per_pool)):
            pool = pool[self._lengths[pool].argsort(stable=True)]
            ends = self._lengths[pool].cumsum(0)
            numbers = ((ends - 1) // self._tokens).unique_consecutive(return_counts=True)[1]
            batches += [batch.tolist() for batch in pool.split(numbers.tolist())]
        return (batches[i] for i in torch.randperm(len(batches)).tolist())


# Hugging Face's Seq2SeqTrainer with MarianMT.


def train_marian(recipe: Recipe, folder: Path, **settings: Any) -> Any:
    """``Seq2SeqTrainer`` with batches grouped by length, and translations in its validations.

    Its learning rate is one update late: the first has none. ``settings`` of the trainer replace
    those of the recipe. Returns the model, should the training end.
    """
    import datasets
    import sacrebleu
    from transformers import Seq2SeqTrainer, Seq2SeqTrainingArguments

    train, valid = recipe.read("train"), recipe.read("valid")
    progress, tokenizer = Log(folder), recipe.tokenizer

    def rows(store: TokenStore) -> Any:
        columns = {
            "input_ids": [store.src[i] for i in range(len(store))],
            "labels": [store.tgt[i] for i in range(len(store))],
            "length": store.src.lengths,
        }
        return datasets.Dataset.from_dict(columns)

    def bleu(prediction: Any) -> dict[str, float]:
        texts = []
        for ids in (prediction.predictions, prediction.label_ids):
            lines = [[int(i) for i in line if i > EOS] for line in ids]  # neither special nor −100
            texts.append(tokenizer.decode(lines))
        return {"bleu": sacrebleu.corpus_bleu(texts[0], [texts[1]]).score}

    class Trainer(Seq2SeqTrainer):  # type: ignore[misc]
        """Counts tokens, and records what the trainer logs."""

        label_smoother: Any

        def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            progress.count((inputs["labels"] != IGNORED).sum())
            return super().compute_loss(model, inputs, *args, **kwargs)

        def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
            if "loss" in logs:
                progress.train(self.state.global_step, logs["loss"])
            super().log(logs, *args, **kwargs)

        def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
            self.nll = 0.0
            smoother, self.label_smoother = self.label_smoother, None
            with progress.paused():
                metrics: dict[str, float] = super().evaluate(*args, **kwargs)
            self.label_smoother = smoother
            nll = self.nll / len(valid.tgt.tokens)
            progress.valid(self.state.global_step, {"nll": nll, "bleu": metrics["eval_bleu"]})
            return metrics

        def prediction_step(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            targets = int((inputs["labels"] != IGNORED).sum())  # the labels returned are padded
            result = super().prediction_step(model, inputs, *args, **kwargs)
            self.nll += float(result[0]) * targets
            return result

        def _save_checkpoint(self, *args: Any, **kwargs: Any) -> None:
            with progress.paused():
                super()._save_checkpoint(*args, **kwargs)

    size = recipe.pairs_per_update(train)
    arguments = {
        "output_dir": str(folder / "checkpoints"),
        "max_steps": recipe.max_steps,
        "per_device_train_batch_size": size,
        "per_device_eval_batch_size": size,
        "train_sampling_strategy": "group_by_length",
        "learning_rate": recipe.peak_lr,
        "lr_scheduler_type": "inverse_sqrt",
        "warmup_steps": recipe.warmup_steps,
        "optim": "adamw_torch_fused",
        "adam_beta1": ADAM["betas"][0],
        "adam_beta2": ADAM["betas"][1],
        "adam_epsilon": ADAM["eps"],
        "max_grad_norm": 0.0,
        "label_smoothing_factor": recipe.label_smoothing,
        "use_cpu": pick_device("auto").type == "cpu",  # required for bf16 on a CPU
        "bf16": recipe.precision == "bf16",
        "fp16": recipe.precision == "fp16",
        "logging_steps": recipe.log_every,
        "eval_strategy": "steps",
        "eval_steps": recipe.validate_every,
        "predict_with_generate": True,
        "generation_max_length": GENERATED,
        "save_steps": recipe.validate_every,
        "save_total_limit": 2,
        "disable_tqdm": True,
        "report_to": "none",
        "seed": recipe.seed,
    }
    trainer = Trainer(
        model=MarianPeer(recipe.initial_model()).model,
        args=Seq2SeqTrainingArguments(**arguments | settings),
        train_dataset=rows(train),
        eval_dataset=rows(valid),
        data_collator=marian_batch,
        compute_metrics=bleu,
    )
    trainer.train()
    return trainer.model


def marian_batch(rows: list[dict[str, list[int]]]) -> dict[str, Tensor]:
    """Pads pairs; the decoder reads the target shifted right."""

    def pad(sequences: list[list[int]], value: int) -> Tensor:
        return pad_sequence([torch.tensor(s) for s in sequences], True, value)

    src, tgt = ([row[key] for row in rows] for key in ("input_ids", "labels"))
    return {
        "input_ids": pad(src, PAD),
        "attention_mask": pad([[1] * len(s) for s in src], 0),
        "decoder_input_ids": pad([[BOS, *t[:-1]] for t in tgt], PAD),
        "labels": pad(tgt, IGNORED),
    }


PEERS: dict[str, Callable[[Recipe, Path], Any]] = {
    "torch": train_torch,
    "torch-sorted": partial(train_torch, sort=True),
    "marian": train_marian,
}
"""Peers by name: ``nn.Transformer`` in a plain loop, the same with batches sorted by length, and
MarianMT in Hugging Face's trainer."""
REQUIRED = {"marian": ("transformers", "accelerate")}
"""Packages that a peer needs in addition to those of this project, all that pip has to be told."""


def main() -> None:
    name, place = sys.argv[1:]
    folder = Path(place)
    recipe = Recipe(**json.loads((folder.parent / "recipe.json").read_text()))
    PEERS[name](recipe, folder / "run")


if __name__ == "__main__":
    main()
