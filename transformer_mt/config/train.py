"""Settings of training: ``optimizer``, ``schedule``, ``train``, ``distributed``; and the job."""

import re
from dataclasses import dataclass, field
from typing import ClassVar

from transformer_mt.config.checks import Checked, number, one_of, require
from transformer_mt.config.data import DataConfig, TokenizerConfig
from transformer_mt.config.decode import SearchConfig
from transformer_mt.config.model import ModelConfig
from transformer_mt.registries import (
    SCHEDULES,
    TRACKERS,
    VALIDATION_METRICS,
)


@dataclass(kw_only=True, frozen=True)
class OptimizerConfig(Checked, prefix="optimizer."):
    """Adam (§5.3); the schedule sets the learning rate."""

    beta1: float = number(0.9, at_least=0, below=1)
    """Adam's decay rate of the first moment (§5.3)."""
    beta2: float = number(0.98, at_least=0, below=1)
    """Adam's decay rate of the second moment (§5.3)."""
    eps: float = number(1e-9, above=0)
    """Adam's ε, added to the denominator (§5.3)."""
    weight_decay: float = number(0.0, at_least=0)
    """Decoupled weight decay of the weight matrices. Each update multiplies them by
    1 − learning rate × weight decay."""


@dataclass(kw_only=True, frozen=True)
class ScheduleConfig(Checked, prefix="schedule."):
    """Learning rate as a function of the step (§5.3)."""

    name: str = one_of(SCHEDULES)
    """Schedule. ``noam`` is the paper's formula, whose peak follows from ``model.d_model`` and
    ``warmup_steps``; ``inverse_sqrt`` has the same shape and a given peak; ``linear`` falls
    linearly to zero at the end of the run: at the limit of updates, epochs or hours that is reached
    first."""
    warmup_steps: int = number(4000, at_least=1)
    """Updates of linear warm-up (§5.3)."""
    peak_lr: float | None = number(None, above=0)
    """Learning rate at the end of the warm-up; not for ``noam``."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.name == "noam":
            message = "schedule=noam sets the peak by its formula: remove schedule.peak_lr"
            require(self.peak_lr is None, message)
        else:
            message = f"schedule={self.name} needs schedule.peak_lr > 0"
            require(self.peak_lr is not None, message)


@dataclass(kw_only=True, frozen=True)
class TrainConfig(Checked, prefix="train."):
    """Training (§5)."""

    seed: int = number(1, at_least=0, below=2**63)
    """Seed of initial weights, data order and dropout."""
    init_from: str | None = None
    """Model to fine-tune: a model folder, a MarianMT folder, or ``hf://ORG/NAME[@REVISION]``.
    Weights, architecture, vocabulary and ``data.normalization`` come from it; dropout, optimizer
    and schedule do not. Smaller numbers of layers, as ``model.num_decoder_layers=1``, take evenly
    spaced ones of its layers."""
    batch_tokens: int = number(25000, at_least=1, at_most=100_000_000)
    """Maximum target tokens per update (§5.1). Counted over all devices and accumulation steps. A
    longer pair is an update of its own."""
    max_tokens_per_device: int | None = number(None, at_least=1, at_most=10_000_000)
    """Maximum tokens, of either side, per forward pass. null: 8192 on a CPU; on a GPU, as many as
    its memory holds. Limits memory and changes no batch; dropout masks differ, as they do on
    another number of devices."""
    max_steps: int = number(100000, at_least=1)
    """Maximum number of updates (§5.2)."""
    max_epochs: int | None = number(None, at_least=1)
    """Maximum number of epochs. null: no limit. Training stops at this or at ``max_steps``,
    whichever is first."""
    max_hours: float | None = number(None, above=0)
    """Maximum hours of training and validation. null: no limit. Includes the time before an
    interruption, but not the last validations and the test set. ``schedule=linear`` reaches its
    end by then."""
    patience: int | None = number(None, at_least=1)
    """Validations without improvement after which training stops. null: no limit. ``best_by``
    defines improvement."""
    best_by: str = one_of(VALIDATION_METRICS, "nll")
    """Metric of the best validation. ``chrf`` is chrF2; ``nll`` is equivalent to perplexity, and
    decides while BLEU is below 1, or chrF2 below 10. With ``data.normalization=moses_lowercase``,
    ``bleu`` is computed on lower-case tokens, and recorded as ``lowercase_tokens``."""
    final: str = one_of("average", "best")
    """Final model. ``average``: of the last checkpoints (§6.1); ``best``: the checkpoint with the
    best validation."""
    label_smoothing: float = number(0.1, at_least=0, below=1)
    """Label smoothing ε_ls (§5.4)."""
    compile: bool | None = None
    """Whether to compile the training step. null: on GPUs with bf16. Batches then have one fixed
    shape."""
    precision: str = one_of("auto", "fp32", "bf16", "fp16")
    """Data type of the computation. ``auto`` is bf16 on a GPU that has it, and on a CPU with
    AMX or of AMD with AVX-512-BF16; fp16 on older GPUs with matrix units for it (V100, T4);
    otherwise fp32. A resumed run keeps it. 16-bit types are used by autocast, fp16 with loss
    scaling."""
    kernels: str = one_of("auto", "torch", "onednn")
    """Library of the matrix products on a CPU. ``onednn`` is for fp32, as PyTorch uses it for bf16
    anyway. ``auto`` is ``onednn`` on AMD with AVX-512, and ``torch``, which has MKL, elsewhere; a
    resumed run keeps it."""
    attention_kernel: str = one_of("auto", "flash", "short")
    """Kernel of attention in a compiled step on a GPU. ``flash`` is FlashAttention; ``short`` is
    made for sentences of up to 64 tokens, but no GPU has run it yet. ``auto`` is ``flash``."""
    clip_norm: float | None = number(None, above=0)
    """Maximum gradient norm. null: no clipping. A gradient with a larger norm is scaled down to
    it."""
    device: str = one_of("auto", "cpu", "cuda")
    """Device. ``auto`` is CUDA if there is a GPU."""
    log_every: int = number(100, at_least=1)
    """Updates between two log lines."""
    interval: str = one_of("step", "epoch")
    """Unit of ``validate_every`` and ``checkpoint_every``."""
    validate_every: int | None = number(None, at_least=1)
    """Interval between validations. null: 1500 steps or 1 epoch. Each computes loss,
    perplexity, BLEU and chrF2, and saves a checkpoint. While BLEU on 100 evenly spaced sentences is
    below 1, the model cannot translate yet, and their BLEU is the score."""
    checkpoint_every: int | None = number(None, at_least=1)
    """Interval between checkpoints. null: 1.5% of the run, 1500 steps of 100000, as the paper's 10
    minutes of 12 hours (§6.1)."""
    average_checkpoints: int = number(5, at_least=1)
    """Number of checkpoints in the final average (§6.1), none of them from the warm-up. As many,
    but at least two, are kept on disk, and the best."""


@dataclass(kw_only=True, frozen=True)
class DistributedConfig(Checked, prefix="distributed."):
    """Data-parallel training."""

    processes: int | None = number(None, at_least=1, at_most=4096)
    """Worker processes on this machine. null: one per visible GPU, or one on the CPU. Under
    torchrun, its options decide."""
    timeout_minutes: float = number(10.0, above=0, below=1_000_000)
    """Minutes to wait for a worker before it counts as hung. A checkpoint, and the main worker's
    own part of a validation, must take less."""


@dataclass(kw_only=True, frozen=True)
class CardConfig:
    """Model card: ``README.md`` of the run folder, for publishing it."""

    name: str | None = None
    """Name of the model: ``ORG/NAME``, as on the Hugging Face Hub. null: ``run_dir``'s name."""
    license: str | None = None
    """Licence of the model, as the Hub names it, e.g. ``cc-by-4.0``. null: none is stated."""

    def __post_init__(self) -> None:
        require(
            self.name is None or bool(re.fullmatch(r"([\w.-]+/)?[\w.-]+", self.name)),
            f"card.name={self.name!r} must be NAME or ORG/NAME, of letters, digits, and any of -_.",
        )
        require(
            self.license is None or bool(re.fullmatch(r"[a-z0-9][a-z0-9.-]*", self.license)),
            f"card.license={self.license!r} is not the name of a licence, such as apache-2.0",
        )


@dataclass(kw_only=True, frozen=True)
class TrainJob(Checked):
    """Configuration of ``mt-train``; the resolved copy is saved as ``config.yaml``."""

    program: ClassVar = "mt-train"

    run_dir: str = "runs/wmt14_en_de"
    """Folder of the run and of the resulting model."""
    cache_dir: str = "~/.cache/transformer_mt"
    """Folder of downloads of ``mtdata``, vocabularies and encoded corpora, shared by runs."""
    stage: str = one_of("train", "prepare")
    """Last stage of the run. ``prepare`` only learns the vocabulary and encodes the corpus."""
    trackers: list[str] = one_of(TRACKERS, default=["tensorboard"])
    """Experiment trackers. Each but ``tensorboard`` needs the package of its name: ``pip install
    wandb``. They record what ``metrics.jsonl`` does, and more; a tracker that fails never stops
    training."""
    data: DataConfig = field(default_factory=DataConfig)
    """Training, validation and test data, and cleaning."""
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    """Subword vocabulary."""
    model: ModelConfig = field(default_factory=ModelConfig)
    """Architecture of the model."""
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    """Optimizer."""
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    """Learning-rate schedule."""
    train: TrainConfig = field(default_factory=TrainConfig)
    """Batches, limits, precision, validation and checkpoints."""
    decode: SearchConfig = field(default_factory=SearchConfig)
    """Search settings of validations and of the test set."""
    distributed: DistributedConfig = field(default_factory=DistributedConfig)
    """Data-parallel training."""
    card: CardConfig = field(default_factory=CardConfig)
    """Model card."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.tokenizer.joint or self.model.tied_embeddings != "all",
            "tokenizer.joint=false gives each language a vocabulary of its own: set "
            "model.tied_embeddings=decoder or none",
        )
        for key in ("run_dir", "cache_dir"):
            require(bool(getattr(self, key)), f"{key} is empty: set it to a folder")
        message = f"trackers=[{','.join(self.trackers)}] has a name twice"
        require(len(set(self.trackers)) == len(self.trackers), message)
        limits = {"train.max_tokens_per_device": self.train.max_tokens_per_device}
        if self.model.positions == "learned":
            limits["model.max_positions"] = self.model.max_positions
        longest = self.data.cleaning.max_tokens
        for key, limit in limits.items():
            require(
                limit is None or limit >= longest,
                f"{key}={limit} is less than the maximum length of a pair, "
                f"data.cleaning.max_tokens={longest}",
            )
