"""The peers of ``real_run.py``: complete training programs with the libraries' own loops.

    python scripts/bench/real_run_peers.py PEER OVERRIDES

OVERRIDES are those of mt-train. They prepare the data as mt-train does and train with its settings
until they are stopped, with validations and checkpoints; ``metrics.jsonl`` in the run folder has
the form of mt-train's. The models are those of ``peers.py``.
"""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import torch
from peers import MarianPeer, PaddedPairs, TorchPeer, peer_adam, peer_loss
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Sampler

from transformer_mt import compose
from transformer_mt.config import TrainJob
from transformer_mt.data.prepare import prepare
from transformer_mt.data.store.token_store import TokenStore
from transformer_mt.data.subwords.tokenizer import BOS, PAD, Tokenizer
from transformer_mt.distributed.world import pick_device
from transformer_mt.model.transformer import Transformer
from transformer_mt.training.metrics_log import MetricsLog
from transformer_mt.training.progress import TrainingState

POOL = 100
"""Number of batches whose pairs are sorted by length together."""
IGNORED = -100
"""Label of padding in Hugging Face's library."""


class Data:
    """Training and validation data of a peer, and the model whose initial weights it copies."""

    def __init__(self, job: TrainJob):
        prepared = prepare(job)
        self.train, self.valid = prepared.train.sample, prepared.valid_store
        torch.manual_seed(job.train.seed)
        self.model = Transformer(job.model, Tokenizer(prepared.tokenizer_model).vocab_size)


def pairs_per_update(store: TokenStore, job: TrainJob) -> int:
    """Number of pairs that have ``train.batch_tokens`` target tokens on average."""
    return max(1, round(job.train.batch_tokens * len(store) / len(store.tgt.tokens)))


class Log:
    """Writes ``metrics.jsonl`` as mt-train does; target tokens are counted without padding."""

    def __init__(self, folder: Path):
        folder.mkdir(parents=True, exist_ok=True)
        self._metrics = MetricsLog(folder, TrainingState())
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

    def valid(self, step: int, nll: float) -> None:
        """Records a validation: negative log-likelihood per target token."""
        self._metrics.append("valid", step, {"nll": nll})

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Excludes the time spent in this context from tokens/s."""
        start = time.perf_counter()
        yield
        self._start += time.perf_counter() - start


@torch.no_grad()
def validation_nll(peer: nn.Module, valid: TokenStore, job: TrainJob) -> float:
    """Negative log-likelihood per target token of the validation set."""
    device = next(peer.parameters()).device
    peer.eval()
    total = 0.0
    for pairs in torch.arange(len(valid)).split(pairs_per_update(valid, job)):
        batch = PaddedPairs.collate(valid, pairs.numpy()).to(device)
        total += peer_loss(peer, batch, 0.0, job.train.precision, "sum").item()
    peer.train()
    return total / len(valid.tgt.tokens)


# torch.nn.Transformer.


def train_torch(job: TrainJob) -> None:
    """A plain loop over a DataLoader, which pads pairs of similar length."""
    data, settings, device = Data(job), job.train, pick_device("auto")
    # The encoder's kernel for inference fails under a CPU's autocast, in the first validation.
    torch.backends.mha.set_fastpath_enabled(False)
    model = TorchPeer(data.model).to(device).train()
    peak_lr, warmup = job.schedule.peak_lr, job.schedule.warmup_steps
    assert peak_lr
    optimizer = peer_adam(model, peak_lr)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda done: min((done + 1) / warmup, (warmup / (done + 1)) ** 0.5)
    )
    numbers: Any = range(len(data.train))  # a dataset of pair numbers
    loader = DataLoader(
        numbers,
        batch_sampler=SortedBatches(data.train, settings.batch_tokens),
        collate_fn=partial(PaddedPairs.collate, data.train),
    )
    log, losses = Log(Path(job.run_dir)), torch.zeros((), device=device)
    for step, batch in enumerate(chain.from_iterable(repeat(loader)), 1):
        log.count((batch.tgt_out != PAD).sum())
        pairs, smoothing = batch.to(device), settings.label_smoothing
        loss = peer_loss(model, pairs, smoothing, settings.precision, "mean")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        losses += loss.detach()
        if step % settings.log_every == 0:
            log.train(step, losses.item() / settings.log_every)
            losses.zero_()
        if step % settings.validate_every == 0 or step == settings.max_steps:
            with log.paused():
                state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
                torch.save({**state, "step": step}, Path(job.run_dir, "checkpoint.pt"))
                log.valid(step, validation_nll(model, data.valid, job))
        if step == settings.max_steps:
            return


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


def train_marian(job: TrainJob) -> None:
    """``Seq2SeqTrainer`` with batches grouped by length.

    Its learning rate is one update late: the first has none.
    """
    import datasets

    data, progress = Data(job), Log(Path(job.run_dir))
    peer = MarianPeer(data.model)

    def rows(store: TokenStore) -> Any:
        columns = {
            "input_ids": [store.src[i] for i in range(len(store))],
            "labels": [store.tgt[i] for i in range(len(store))],
            "length": store.src.lengths,
        }
        return datasets.Dataset.from_dict(columns)

    class Trainer(trainer_class(progress)):  # type: ignore[misc]
        """Validates, and leaves out that time and that of checkpoints."""

        def evaluate(self, *_: Any, **__: Any) -> dict[str, float]:
            with progress.paused():
                progress.valid(self.state.global_step, validation_nll(peer, data.valid, job))
            self.control.should_evaluate = False
            return {}

        def _save_checkpoint(self, *args: Any, **kwargs: Any) -> None:
            with progress.paused():
                super()._save_checkpoint(*args, **kwargs)

    arguments = trainer_arguments(
        job,
        per_device_train_batch_size=pairs_per_update(data.train, job),
        eval_strategy="steps",
        eval_steps=job.train.validate_every,
        save_steps=job.train.validate_every,
        save_total_limit=2,
    )
    Trainer(
        model=peer.model,
        args=arguments,
        train_dataset=rows(data.train),
        eval_dataset=rows(data.valid),
        data_collator=marian_batch,
    ).train()


def trainer_class(progress: Log) -> Any:
    """``Seq2SeqTrainer`` that counts target tokens, and records what it logs."""
    from transformers import Seq2SeqTrainer

    class Trainer(Seq2SeqTrainer):  # type: ignore[misc]
        def training_step(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            progress.count((inputs["labels"] != IGNORED).sum())
            return super().training_step(model, inputs, *args, **kwargs)

        def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
            if "loss" in logs:
                progress.train(self.state.global_step, logs["loss"])
            super().log(logs, *args, **kwargs)

    return Trainer


def trainer_arguments(job: TrainJob, **more: Any) -> Any:
    """The settings of a job for ``Seq2SeqTrainer``."""
    from transformers import Seq2SeqTrainingArguments

    return Seq2SeqTrainingArguments(
        output_dir=str(Path(job.run_dir, "checkpoints")),
        max_steps=job.train.max_steps,
        train_sampling_strategy="group_by_length",
        learning_rate=job.schedule.peak_lr,
        lr_scheduler_type=job.schedule.name,
        warmup_steps=job.schedule.warmup_steps,
        optim="adamw_torch_fused",
        adam_beta1=0.9,
        adam_beta2=0.98,
        adam_epsilon=1e-9,
        max_grad_norm=0.0,
        label_smoothing_factor=job.train.label_smoothing,
        use_cpu=pick_device("auto").type == "cpu",  # required for bf16 on a CPU
        bf16=job.train.precision == "bf16",
        logging_steps=job.train.log_every,
        disable_tqdm=True,
        report_to="none",
        seed=job.train.seed,
        **more,
    )


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


PEERS = {"torch": train_torch, "marian": train_marian}
"""The peers by name."""


def main() -> None:
    name, *overrides = sys.argv[1:]
    PEERS[name](compose(overrides))


if __name__ == "__main__":
    main()
