"""Schemas of training: ``optimizer/``, ``schedule/``, ``train/``, ``distributed``, the job."""

import math
from dataclasses import dataclass, field

from transformer_mt.config.checks import choice, require
from transformer_mt.config.data import DataConfig, TokenizerConfig
from transformer_mt.config.decode import DecodeConfig
from transformer_mt.config.model import ModelConfig


@dataclass(kw_only=True, frozen=True)
class OptimizerConfig:
    """Adam (§5.3), alone or beside Muon; the learning rate is the schedule's."""

    name: str = "adam"
    """``adam``: the paper's, for every weight; ``muon``: Muon for the matrices of the layers,
    Adam for embeddings, biases and norms."""
    beta1: float = 0.9
    beta2: float = 0.98
    eps: float = 1e-9
    momentum: float | None = None
    """Weight of the past in Muon's running mean of gradients (``muon`` only)."""
    weight_decay: float = 0.0
    """Share of a matrix, times the learning rate, that each update takes off it (decoupled)."""

    def __post_init__(self) -> None:
        choice("optimizer.name", self.name, "adam", "muon")
        for key in ("beta1", "beta2"):
            require(0 <= getattr(self, key) < 1, f"optimizer.{key} must be in [0, 1)")
        require(self.eps > 0, "optimizer.eps must be > 0")
        require(
            self.weight_decay >= 0 and math.isfinite(self.weight_decay),
            f"optimizer.weight_decay={self.weight_decay} must be ≥ 0",
        )
        if self.name == "muon":
            require(
                self.momentum is not None and 0 <= self.momentum < 1,
                f"optimizer=muon needs optimizer.momentum in [0, 1), not {self.momentum}",
            )
        else:
            require(
                self.momentum is None,
                f"optimizer.momentum={self.momentum} is Muon's, unknown to optimizer={self.name}",
            )


@dataclass(kw_only=True, frozen=True)
class ScheduleConfig:
    """The learning rate as a function of the step (§5.3)."""

    name: str = "noam"
    """``noam``: the paper's formula, its peak set by d_model and warmup_steps;
    ``inverse_sqrt``: the same shape with a given peak; ``linear``: straight down to zero at
    train.max_steps or max_epochs."""
    warmup_steps: int = 4000
    peak_lr: float | None = None
    """Learning rate at the end of the warm-up (``inverse_sqrt`` and ``linear`` only)."""

    def __post_init__(self) -> None:
        choice("schedule.name", self.name, "noam", "inverse_sqrt", "linear")
        require(self.warmup_steps >= 1, "schedule.warmup_steps must be ≥ 1")
        if self.name == "noam":
            require(self.peak_lr is None, "schedule.peak_lr is set by the formula of schedule=noam")
        else:
            require(
                self.peak_lr is not None and self.peak_lr > 0 and math.isfinite(self.peak_lr),
                f"schedule={self.name} needs schedule.peak_lr > 0",
            )


@dataclass(kw_only=True, frozen=True)
class TrainConfig:
    """The training run (§5)."""

    seed: int = 1
    """Seed of the initial weights, the order of the data and dropout."""
    init_from: str | None = None
    """Model folder whose weights and vocabulary training begins with: fine-tuning. The optimizer
    and the schedule begin anew."""
    batch_tokens: int = 25000
    """Target tokens of one update, over all ranks and accumulation steps (§5.1)."""
    max_tokens_per_device: int | None = None
    """Most tokens (of either side) in one forward pass; caps memory, never changes the recipe.
    Null is 8192 on a CPU, and as many as the memory of the GPU holds on a GPU."""
    max_steps: int = 100000
    """Updates in all (§5.2)."""
    max_epochs: int | None = None
    """Most times that the training data is gone through; the run ends at this or ``max_steps``."""
    max_hours: float | None = None
    """Most hours of training and its validations, those before an interruption included. The last
    validation and the test set come after."""
    patience: int | None = None
    """End after this many validations in a row without a better one, by ``best_by``."""
    best_by: str = "bleu"
    """What makes a validation the best: ``bleu``, or ``nll``, the perplexity."""
    final: str = "average"
    """The final model: ``average`` of the last checkpoints (§6.1), ``best`` checkpoint, or ``ema``,
    the running mean of the weights."""
    ema_decay: float | None = None
    """Weight of the past in the running mean of the weights, e.g. 0.999 (``final: ema`` only)."""
    label_smoothing: float = 0.1
    """ε_ls (§5.4)."""
    compile: bool | None = None
    """Compile the training step for batches of one fixed shape; null does so on GPUs, in bf16."""
    precision: str = "auto"
    """``fp32``, ``bf16`` or ``fp16`` (autocast, fp16 with a scaled loss), or ``auto``: bf16 where
    the hardware has fast bf16."""
    clip_norm: float | None = None
    """Longest gradient; a longer one is scaled down to this."""
    max_skipped: int = 10
    """Updates in a row that may be skipped as their gradient is not finite; then the run stops."""
    device: str = "auto"
    """``cpu``, ``cuda``, or ``auto``: CUDA where there is a GPU."""
    log_every: int = 100
    """Steps between two lines of the log."""
    interval: str = "step"
    """What ``validate_every`` and ``checkpoint_every`` count: ``step`` or ``epoch``."""
    validate_every: int | None = None
    """From one validation to the next: loss, perplexity and BLEU, and a checkpoint. Null is 1500
    steps, or 1 epoch."""
    checkpoint_every: int | None = None
    """From one checkpoint to the next. Null is 1500 steps, 10 minutes of the paper's 0.4 s steps
    (§6.1), or 1 epoch."""
    average_checkpoints: int = 5
    """How many of the last checkpoints are averaged into the final model (§6.1); as many, and at
    least two, are kept, and the best."""

    def __post_init__(self) -> None:
        for key in (
            "batch_tokens",
            "max_steps",
            "log_every",
            "average_checkpoints",
            "max_skipped",
        ):
            require(getattr(self, key) >= 1, f"train.{key}={getattr(self, key)} must be ≥ 1")
        for key in ("max_epochs", "patience", "validate_every", "checkpoint_every"):
            value = getattr(self, key)
            require(value is None or value >= 1, f"train.{key}={value} must be ≥ 1 (or null)")
        for key in ("max_hours", "clip_norm"):
            value = getattr(self, key)
            require(
                value is None or (value > 0 and math.isfinite(value)),
                f"train.{key}={value} must be > 0 (or null)",
            )
        choice("train.interval", self.interval, "step", "epoch")
        choice("train.best_by", self.best_by, "bleu", "nll")
        choice("train.final", self.final, "average", "best", "ema")
        if self.final == "ema":
            require(
                self.ema_decay is not None and 0 <= self.ema_decay < 1,
                f"train.final=ema needs train.ema_decay in [0, 1), not {self.ema_decay}",
            )
        else:
            require(
                self.ema_decay is None,
                f"train.ema_decay={self.ema_decay} belongs to train.final=ema, not {self.final}",
            )
        limit = self.max_tokens_per_device
        require(limit is None or limit >= 1, f"train.max_tokens_per_device={limit} must be ≥ 1")
        require(0 <= self.label_smoothing < 1, "train.label_smoothing must be in [0, 1)")
        require(0 <= self.seed < 2**63, f"train.seed={self.seed} must be in [0, 2⁶³)")
        choice("train.precision", self.precision, "auto", "fp32", "bf16", "fp16")
        choice("train.device", self.device, "auto", "cpu", "cuda")


@dataclass(kw_only=True, frozen=True)
class DistributedConfig:
    """Data-parallel training."""

    processes: int | None = None
    """Workers on this machine; null is one for each visible GPU, or one on the CPU. Under torchrun
    and srun their environment decides instead."""
    restarts: int = 3
    """How often in a row, without a new checkpoint in between, all workers are started anew after
    one was killed, hung or lost its GPU. Under torchrun its --max-restarts counts instead."""
    timeout_minutes: float = 10.0
    """How long a worker waits for another one before it takes it for hung. A checkpoint, or what
    the main worker alone does in a validation, must take less."""
    compression: str = "none"
    """Of gradients on their way to other workers: ``none``, or ``bf16``: half the bytes, rounded to
    8 bits of precision before they are summed."""

    def __post_init__(self) -> None:
        require(
            self.processes is None or self.processes >= 1,
            f"distributed.processes={self.processes} must be ≥ 1",
        )
        require(self.restarts >= 0, f"distributed.restarts={self.restarts} must be ≥ 0")
        require(
            0 < self.timeout_minutes < 10**6,
            f"distributed.timeout_minutes={self.timeout_minutes} must be > 0 and below a million",
        )
        choice("distributed.compression", self.compression, "none", "bf16")


@dataclass(kw_only=True, frozen=True)
class TrainJob:
    """Everything ``mt-train`` is told; the resolved copy is saved as ``config.yaml``."""

    run_dir: str = "runs/wmt14_en_de"
    """Folder of the run, and the model that comes out of it."""
    cache_dir: str = "~/.cache/transformer_mt"
    """Where vocabularies and encoded corpora are kept, to be shared by runs."""
    stage: str = "train"
    """``train``, or ``prepare``: learn the vocabulary, encode the corpus, and stop there."""
    data: DataConfig = field(default_factory=DataConfig)
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    decode: DecodeConfig = field(default_factory=DecodeConfig)
    distributed: DistributedConfig = field(default_factory=DistributedConfig)

    def __post_init__(self) -> None:
        choice("stage", self.stage, "train", "prepare")
        for key in ("run_dir", "cache_dir"):
            require(bool(getattr(self, key)), f"{key} is empty: name a folder")
        limit = self.train.max_tokens_per_device
        require(
            limit is None or limit >= self.data.cleaning.max_tokens,
            f"train.max_tokens_per_device={limit} is below the longest "
            f"pair allowed, data.cleaning.max_tokens={self.data.cleaning.max_tokens}",
        )
        if self.model.positions == "learned":
            require(
                self.model.max_positions >= self.data.cleaning.max_tokens,
                f"model.max_positions={self.model.max_positions} is below the longest pair "
                f"allowed, data.cleaning.max_tokens={self.data.cleaning.max_tokens}",
            )
