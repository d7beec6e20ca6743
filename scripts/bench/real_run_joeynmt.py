"""JoeyNMT as a peer of ``real_run.py``: its own trainer, with its records in the common form."""

from pathlib import Path
from typing import Any

import torch
from real_run_peers import ADAM, GENERATED, Log, Recipe
from sentencepiece import SentencePieceProcessor
from torch.nn import functional as F
from train import model_config


def train_joeynmt(recipe: Recipe, folder: Path) -> None:
    """``joeynmt.training.train``, with batches of random sentences and greedy translations."""
    from joeynmt import training

    log = Log(folder)
    # It restricts the pieces to the vocabulary, which is all of them here; new versions of
    # SentencePiece have no such method.
    processor: Any = SentencePieceProcessor
    processor.SetVocabulary = lambda *_: None

    class Trainer(training.TrainManager):  # type: ignore[misc]
        """Records what the trainer logs."""

        def _train_step(self, batch: Any) -> Any:
            log.count(batch.ntokens)
            return super()._train_step(batch)

        def _log_scores(self, *args: Any) -> None:
            super()._log_scores(*args)
            log.train(self.stats.steps, args[-1])

        def _validate(self, valid_data: Any) -> None:
            sums, padding = torch.zeros(2, dtype=torch.float64), self.model.pad_index

            def add_nll(_: Any, inputs: Any, named: Any, __: Any) -> None:
                scores, targets = inputs[0].flatten(0, 1), named["trg"].flatten()
                nll = F.nll_loss(scores, targets, ignore_index=padding, reduction="sum")
                sums.add_(torch.stack([nll, (targets != padding).sum()]).cpu())

            hook = self.model.loss_function.register_forward_hook(add_nll, with_kwargs=True)
            with log.paused():
                super()._validate(valid_data)
            hook.remove()
            log.valid(self.stats.steps, {"nll": (sums[0] / sums[1]).item()})

    training.TrainManager = Trainer
    vocabulary = folder / "vocabulary.txt"
    vocabulary.write_text("".join(f"{piece}\n" for piece in recipe.tokenizer.vocabulary))
    training.train(0, 1, configuration(recipe, folder, vocabulary), skip_test=True)


def configuration(recipe: Recipe, folder: Path, vocabulary: Path) -> dict[str, Any]:
    """The configuration file, as a dictionary."""
    model_dir = folder / "checkpoints"
    model_dir.mkdir()
    config = model_config(recipe.model)
    text = {
        "level": "bpe",
        "max_length": recipe.max_tokens - 1,  # without the end symbol
        "voc_file": str(vocabulary),
        "tokenizer_type": "sentencepiece",
        "tokenizer_cfg": {"model_file": f"{recipe.data}/tokenizer.model"},
    }
    stack = {
        "type": "transformer",
        "num_heads": config.num_heads,
        "hidden_size": config.d_model,
        "ff_size": config.d_ff,
        "dropout": config.dropout,
        "layer_norm": "post",
        "embeddings": {"embedding_dim": config.d_model, "scale": True},
    }
    size = recipe.pairs_per_update(recipe.read("train"))
    return {
        "name": "real_run",
        "model_dir": str(model_dir),
        "use_cuda": torch.cuda.is_available(),
        "random_seed": recipe.seed,
        "data": {
            "train": f"{recipe.data}/train",
            "dev": f"{recipe.data}/valid",
            "dataset_type": "plain",
            "src": {"lang": "src", **text},
            "trg": {"lang": "tgt", **text},
        },
        "training": {
            "optimizer": "adam",
            "adam_betas": list(ADAM["betas"]),
            "learning_rate": recipe.peak_lr,
            "learning_rate_min": 1e-12,
            "learning_rate_warmup": recipe.warmup_steps,
            "scheduling": "warmupinversesquareroot",
            "normalization": "tokens",
            "label_smoothing": recipe.label_smoothing,
            "batch_size": size,
            "batch_type": "sentence",
            "epochs": 10**6,
            "updates": recipe.max_steps,
            "logging_freq": recipe.log_every,
            "validation_freq": recipe.validate_every,
            "early_stopping_metric": "bleu",
        },
        "testing": {
            "batch_size": size,
            "batch_type": "sentence",
            "max_output_length": GENERATED,
            "eval_metrics": ["bleu"],
        },
        "model": {
            "initializer": "xavier_uniform",
            "embed_initializer": "xavier_uniform",
            "tied_embeddings": True,
            "tied_softmax": True,
            "encoder": {**stack, "num_layers": config.num_encoder_layers},
            "decoder": {**stack, "num_layers": config.num_decoder_layers},
        },
    }
