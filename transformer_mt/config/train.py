"""Settings of training: ``optimizer``, ``schedule``, ``train``, ``distributed``; and the job."""

import math
import re
from dataclasses import dataclass, field

from transformer_mt.config.checks import at_least, choice, require
from transformer_mt.config.data import DataConfig, TokenizerConfig
from transformer_mt.config.decode import DecodeConfig
from transformer_mt.config.model import ModelConfig

TRACKERS = ("tensorboard", "trackio", "wandb", "mlflow")
"""Names of ``trackers``."""


@dataclass(kw_only=True, frozen=True)
class OptimizerConfig:
    """Adam (§5.3), or Muon and Adam; the schedule sets the learning rate."""

    name: str = "adam"
    """Optimizer: ``adam`` or ``muon``. ``adam`` is the paper's, for every weight; ``muon`` is Muon
    for the weight matrices of the layers and Adam for embeddings, biases and norms."""
    beta1: float = 0.9
    """Adam's decay rate of the first moment (§5.3)."""
    beta2: float = 0.98
    """Adam's decay rate of the second moment (§5.3)."""
    eps: float = 1e-9
    """Adam's ε, added to the denominator (§5.3)."""
    momentum: float | None = None
    """Muon's momentum, in [0, 1); ``muon`` only."""
    weight_decay: float = 0.0
    """Decoupled weight decay of the weight matrices. Each update multiplies them by
    1 − learning rate × weight decay."""

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
            message = f"optimizer=muon needs optimizer.momentum in [0, 1), not {self.momentum}"
            require(self.momentum is not None and 0 <= self.momentum < 1, message)
        else:
            message = f"optimizer.momentum={self.momentum} requires optimizer=muon, not {self.name}"
            require(self.momentum is None, message)


@dataclass(kw_only=True, frozen=True)
class ScheduleConfig:
    """Learning rate as a function of the step (§5.3)."""

    name: str = "noam"
    """Schedule: ``noam``, ``inverse_sqrt`` or ``linear``. ``noam`` is the paper's formula, whose
    peak follows from ``model.d_model`` and ``warmup_steps``; ``inverse_sqrt`` has the same shape
    and a given peak; ``linear`` falls linearly to zero at the last update."""
    warmup_steps: int = 4000
    """Updates of linear warm-up (§5.3)."""
    peak_lr: float | None = None
    """Learning rate at the end of the warm-up; not for ``noam``."""

    def __post_init__(self) -> None:
        choice("schedule.name", self.name, "noam", "inverse_sqrt", "linear")
        at_least(1, self, "warmup_steps", prefix="schedule.")
        if self.name == "noam":
            message = "schedule=noam sets the peak by its formula: remove schedule.peak_lr"
            require(self.peak_lr is None, message)
        else:
            require(
                self.peak_lr is not None and self.peak_lr > 0 and math.isfinite(self.peak_lr),
                f"schedule={self.name} needs schedule.peak_lr > 0",
            )


@dataclass(kw_only=True, frozen=True)
class TrainConfig:
    """Training (§5)."""

    seed: int = 1
    """Seed of initial weights, data order and dropout."""
    init_from: str | None = None
    """Model folder to fine-tune, or ``hf://ORG/NAME[@REVISION]``. Training starts from its weights
    and vocabulary, with a new optimizer state and schedule."""
    batch_tokens: int = 25000
    """Target tokens per update (§5.1). Counted over all devices and accumulation steps."""
    max_tokens_per_device: int | None = None
    """Maximum tokens, of either side, per forward pass. null: 8192 on a CPU; on a GPU, as many as
    its memory holds. Limits memory and never changes the updates."""
    max_steps: int = 100000
    """Maximum number of updates (§5.2)."""
    max_epochs: int | None = None
    """Maximum number of epochs. null: no limit. Training stops at this or at ``max_steps``,
    whichever is first."""
    max_hours: float | None = None
    """Maximum hours of training and validation. null: no limit. Includes the time before an
    interruption, but not the last validation and the test set."""
    patience: int | None = None
    """Stop after this many validations without improvement. null: never. ``best_by`` defines
    improvement."""
    best_by: str = "bleu"
    """Metric of the best validation: ``bleu``, ``chrf`` (chrF2) or ``nll``. ``nll`` is equivalent
    to perplexity; while BLEU or chrF is 0, it decides as well."""
    final: str = "average"
    """Final model: ``average``, ``best`` or ``ema``. The average of the last checkpoints (§6.1),
    the checkpoint with the best validation, or the exponential moving average of the weights."""
    ema_decay: float | None = None
    """Decay of the moving average, e.g. 0.999; ``ema`` only."""
    label_smoothing: float = 0.1
    """Label smoothing ε_ls (§5.4)."""
    compile: bool | None = None
    """Compile the training step. null: on GPUs with bf16. Batches then have one fixed shape."""
    precision: str = "auto"
    """``fp32``, ``bf16``, ``fp16`` or ``auto``. 16-bit types by autocast, fp16 with loss scaling;
    ``auto`` is bf16 on a GPU that has it and fp32 on other hardware; on a CPU with bf16
    instructions a measurement decides when a run starts."""
    kernels: str = "auto"
    """Library of the matrix products on a CPU: ``torch``, ``onednn`` (fp32 products only) or
    ``auto``. ``auto`` measures which is fastest when a run starts, and keeps the choice for the
    run, also when it resumes."""
    clip_norm: float | None = None
    """Maximum gradient norm. null: no clipping. A gradient with a larger norm is scaled down to
    it."""
    max_skipped: int = 10
    """Stop after this many skipped updates in a row. An update is skipped if its gradient is not
    finite."""
    device: str = "auto"
    """``cpu``, ``cuda`` or ``auto``. ``auto`` is CUDA if a GPU is available."""
    log_every: int = 100
    """Updates between two log lines."""
    interval: str = "step"
    """Unit of the two intervals below: ``step`` or ``epoch``."""
    validate_every: int | None = None
    """Interval between validations. null: 1500 steps or 1 epoch. Each computes loss,
    perplexity, BLEU and chrF2, and saves a checkpoint."""
    full_validation_bleu: float = 1.0
    """BLEU from which on all validation sentences are translated. While BLEU on 100 evenly spaced
    ones is below it, the model cannot translate yet, and their BLEU is the score. 0: always all."""
    checkpoint_every: int | None = None
    """Interval between checkpoints. null: 1500 steps or 1 epoch. 1500 steps are 10 minutes at the
    paper's 0.4 s per step (§6.1)."""
    average_checkpoints: int = 5
    """Number of checkpoints in the final average (§6.1). As many, but at least two, are kept on
    disk, and the best."""

    def __post_init__(self) -> None:
        sizes = ("batch_tokens", "max_steps", "log_every", "average_checkpoints", "max_skipped")
        limits = ("max_tokens_per_device", "max_epochs", "patience")
        intervals = ("validate_every", "checkpoint_every")
        at_least(1, self, *sizes, *limits, *intervals, prefix="train.")
        for key in ("max_hours", "clip_norm"):
            value = getattr(self, key)
            require(
                value is None or (value > 0 and math.isfinite(value)),
                f"train.{key}={value} must be > 0 (or null)",
            )
        choice("train.kernels", self.kernels, "auto", "torch", "onednn")
        require(
            0 <= self.full_validation_bleu <= 100,
            f"train.full_validation_bleu={self.full_validation_bleu} must be 0 to 100",
        )
        choice("train.interval", self.interval, "step", "epoch")
        choice("train.best_by", self.best_by, "bleu", "chrf", "nll")
        choice("train.final", self.final, "average", "best", "ema")
        if self.final == "ema":
            message = f"train.final=ema needs train.ema_decay in [0, 1), not {self.ema_decay}"
            require(self.ema_decay is not None and 0 <= self.ema_decay < 1, message)
        else:
            message = f"train.ema_decay={self.ema_decay} requires train.final=ema, not {self.final}"
            require(self.ema_decay is None, message)
        require(0 <= self.label_smoothing < 1, "train.label_smoothing must be in [0, 1)")
        require(0 <= self.seed < 2**63, f"train.seed={self.seed} must be in [0, 2⁶³)")
        choice("train.precision", self.precision, "auto", "fp32", "bf16", "fp16")
        choice("train.device", self.device, "auto", "cpu", "cuda")


@dataclass(kw_only=True, frozen=True)
class DistributedConfig:
    """Data-parallel training."""

    processes: int | None = None
    """Worker processes on this machine. null: one per visible GPU, or one on the CPU. Under
    torchrun and srun, their environment decides."""
    restarts: int = 3
    """Restarts in a row without a new checkpoint. All workers are restarted after one was killed,
    hung or lost its GPU. Under torchrun, its --max-restarts counts instead."""
    timeout_minutes: float = 10.0
    """Minutes to wait for a worker before it counts as hung. A checkpoint, and the main worker's
    own part of a validation, must take less."""
    compression: str = "none"
    """Gradient compression between workers: ``none`` or ``bf16``. ``bf16`` halves the traffic and
    rounds gradients to 8 bits of precision before they are summed."""

    def __post_init__(self) -> None:
        at_least(1, self, "processes", prefix="distributed.")
        at_least(0, self, "restarts", prefix="distributed.")
        require(
            0 < self.timeout_minutes < 10**6,
            f"distributed.timeout_minutes={self.timeout_minutes} must be > 0 and below a million",
        )
        choice("distributed.compression", self.compression, "none", "bf16")


@dataclass(kw_only=True, frozen=True)
class CardConfig:
    """Model card: ``README.md`` of the run folder, for publishing it."""

    name: str | None = None
    """Name of the model: ``ORG/NAME``, as on the Hugging Face Hub. null: that of ``run_dir``."""
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
class TrainJob:
    """Configuration of ``mt-train``; the resolved copy is saved as ``config.yaml``."""

    run_dir: str = "runs/wmt14_en_de"
    """Folder of the run and of the resulting model."""
    cache_dir: str = "~/.cache/transformer_mt"
    """Folder of vocabularies and encoded corpora, shared by runs."""
    stage: str = "train"
    """``train``, or ``prepare`` to only learn the vocabulary and encode the corpus."""
    trackers: list[str] = field(default_factory=lambda: ["tensorboard"])
    """Experiment trackers, any of ``tensorboard``, ``trackio``, ``wandb`` and ``mlflow``. Each but
    the first is an extra: ``pip install 'transformer-mt[wandb]'``. They record what
    ``metrics.jsonl`` does, and more; a tracker that fails never stops training."""
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
    decode: DecodeConfig = field(default_factory=DecodeConfig)
    """Search settings of validations and of the test set."""
    distributed: DistributedConfig = field(default_factory=DistributedConfig)
    """Data-parallel training."""
    card: CardConfig = field(default_factory=CardConfig)
    """Model card."""

    def __post_init__(self) -> None:
        choice("stage", self.stage, "train", "prepare")
        for key in ("run_dir", "cache_dir"):
            require(bool(getattr(self, key)), f"{key} is empty: set it to a folder")
        for name in self.trackers:
            choice("trackers", name, *TRACKERS)
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
