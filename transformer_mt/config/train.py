"""Settings of training: ``optimizer``, ``schedule``, ``train``, ``distributed``; and the job."""

import re
from dataclasses import dataclass, field

from transformer_mt.config.checks import Checked, number, one_of, require
from transformer_mt.config.data import DataConfig, TokenizerConfig
from transformer_mt.config.model import ModelConfig
from transformer_mt.config.translate import SearchConfig
from transformer_mt.registries import SCHEDULES, TRACKERS, VALIDATION_METRICS


@dataclass(kw_only=True, frozen=True)
class OptimizerConfig(Checked):
    """Adam with β₁ 0.9, β₂ 0.98 and ε 10⁻⁹ (§5.3); the schedule sets the learning rate."""

    _prefix = "optimizer."
    weight_decay: float = number(0.0, at_least=0)
    """Decoupled weight decay of the weight matrices (none in the paper). Each update multiplies
    them by 1 − learning rate × weight decay. With the high learning rates of short runs, 2 to 5
    divided by `peak_lr` × updates made `multi30k`, `everyday` and `pairs_100k` 1 to 3 BLEU
    better."""


@dataclass(kw_only=True, frozen=True)
class ScheduleConfig(Checked):
    """Learning rate as a function of the step (§5.3)."""

    _prefix = "schedule."
    name: str = one_of(SCHEDULES)
    """Follow the paper's formula (noam), its shape with a peak of your choice (inverse_sqrt), or
    decay linearly to zero (linear). The peak of ``noam`` follows from ``model.d_model`` and
    ``warmup_steps``. ``linear`` reaches zero at the limit of updates or hours that ends the run."""
    warmup_steps: int = number(4000, at_least=1)
    """Updates of linear warm-up (§5.3)."""
    peak_lr: float | None = number(None, above=0)
    """Learning rate at the end of the warm-up; not for ``noam``."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.name == "noam":
            message = (
                "schedule=noam sets the peak by its formula: set schedule.peak_lr=null, or "
                "schedule=inverse_sqrt, which has the same shape with a peak of your choice"
            )
            require(self.peak_lr is None, message)
        else:
            message = f"schedule={self.name} needs schedule.peak_lr > 0"
            require(self.peak_lr is not None, message)


@dataclass(kw_only=True, frozen=True)
class TrainConfig(Checked):
    """Training (§5)."""

    _prefix = "train."
    seed: int = number(1, at_least=0, below=2**63)
    """Seed of initial weights, data order and dropout."""
    init_from: str | None = None
    """Fine-tune this model: a model folder, a MarianMT folder, or ``hf://ORG/NAME[@REVISION]``.
    Weights, architecture, vocabulary and ``data.normalization`` come from it; dropout, optimizer
    and schedule do not. With fewer layers, such as ``model.num_decoder_layers=1``, evenly spaced
    layers are copied; 6, the default, keeps all of a model with more."""
    initial_embeddings: str = one_of("random", "cooccurrence")
    """Initial embeddings: random, as in the paper, or computed from the training pairs in seconds
    (``cooccurrence``): pieces of the same pairs, such as translations, begin near each other. Short
    runs gain from it: ``everyday`` 1 to 2 BLEU. ``init_from`` has embeddings of its own."""
    batch_tokens: int = number(25000, at_least=1, at_most=100_000_000)
    """Maximum target tokens per update, over all devices (§5.1). The paper's 25,000 suits millions
    of pairs. The experiments for small corpora and CPUs take 1,000 to 4,096: more updates of the
    same text, which cost little more time. Accumulation steps are included. A longer pair is an
    update of its own."""
    max_tokens_per_device: int | None = number(None, at_least=1, at_most=10_000_000)
    """Maximum tokens per forward pass and device, of either side, to limit memory. null: 8192 on a
    CPU; on a GPU, as many as its memory holds. Updates have the same pairs, but other dropout
    masks, as with another number of devices."""
    max_steps: int = number(100000, at_least=1)
    """Stop after this many updates (§5.2)."""
    max_hours: float | None = number(None, above=0)
    """Stop after this many hours of training and validation. null: no limit. The time before an
    interruption counts; the last validations and the test set do not. ``schedule=linear`` reaches
    zero by then."""
    patience: int | None = number(None, at_least=1)
    """Stop after this many validations without improvement of ``best_by``. null: no limit."""
    best_by: str = one_of(VALIDATION_METRICS, "nll")
    """Compare validations by BLEU, chrF2 or perplexity (nll). Perplexity decides while BLEU is
    below 1, or chrF2 below 10."""
    final: str = one_of("average", "best")
    """Make the final model the average of the last checkpoints (§6.1), or the best one by
    validation."""
    label_smoothing: float = number(0.1, at_least=0, below=1)
    """Label smoothing ε_ls (§5.4)."""
    compile: bool | None = None
    """Compile the training step, which then has batches of one fixed shape. null: on GPUs with
    bf16, if d_k = d_v, a multiple of 8 up to 192 (not in rows A_heads_1, B of Table 3)."""
    precision: str = one_of("auto", "fp32", "bf16", "fp16")
    """Compute in 32 bits or in mixed precision; auto takes bf16 where the hardware is fast at it.
    That is a GPU with bf16, a CPU with AMX, and an AMD CPU with AVX-512-BF16. On older GPUs with
    matrix units for fp16 (V100, T4), auto takes fp16, which is slow on CPUs. 16-bit types use
    autocast, and fp16 loss scaling."""
    clip_norm: float | None = number(None, above=0)
    """Scale gradients with a larger norm down to this norm. null: no clipping."""
    device: str = one_of("auto", "cpu", "cuda")
    """Train on this kind of device; auto takes the GPU if there is one."""
    log_every: int = number(100, at_least=1)
    """Write a log line every this many updates, after the first, and before
    each validation."""
    validate_every: int = number(1500, at_least=1)
    """Validate every this many updates. Each validation computes loss,
    perplexity, BLEU and chrF2 of the whole set, and saves a checkpoint."""
    checkpoint_every: int | None = number(None, at_least=1)
    """Save a checkpoint every this many updates. null: 1.5% of the run, which is 1500 of 100000,
    as the paper's 10 minutes of 12 hours (§6.1)."""
    average_checkpoints: int = number(5, at_least=1)
    """Average this many checkpoints for the final model (§6.1), none of them from the warm-up. This
    many, but at least two, are kept on disk, plus the best one."""


@dataclass(kw_only=True, frozen=True)
class DistributedConfig(Checked):
    """Data-parallel training."""

    _prefix = "distributed."
    processes: int | None = number(None, at_least=1, at_most=4096)
    """Train in this many processes on this machine, which torchrun starts. null: one per visible
    GPU, or one on the CPU. If you start torchrun yourself, its options decide."""


CARD_NAME = re.compile(r"([\w.-]+/)?[\w.-]+")
"""``card.name``: ``NAME`` or ``ORG/NAME``."""


@dataclass(kw_only=True, frozen=True)
class CardConfig:
    """Model card: ``README.md`` of the run folder, for publishing it."""

    name: str | None = None
    """Name of the model in its card: ``ORG/NAME``, as on the Hugging Face Hub. null: the name of
    ``run_dir``."""
    license: str | None = None
    """Licence of the model, as the Hub names it, e.g. ``cc-by-4.0``. null: none is stated."""

    def __post_init__(self) -> None:
        require(
            self.name is None or bool(CARD_NAME.fullmatch(self.name)),
            f"card.name={self.name!r} must be NAME or ORG/NAME, of letters, digits, and any of -_.",
        )


@dataclass(kw_only=True, frozen=True)
class TrainJob(Checked):
    """Configuration of ``mt-train``; the resolved copy is saved as ``config.yaml``."""

    run_dir: str = "runs/wmt14_en_de"
    """Folder of the run and of the resulting model."""
    cache_dir: str = "~/.cache/transformer_mt"
    """Folder for vocabularies and encoded corpora, shared by all runs."""
    stage: str = one_of("train", "prepare")
    """Stop after the preparation of the data, or train as well. ``prepare`` only learns the
    vocabulary and encodes the corpus."""
    trackers: list[str] = one_of(TRACKERS, default=["tensorboard"])
    """Record the run with these experiment trackers as well. Each but ``tensorboard`` needs the
    package of its name: ``pip install wandb``. They record everything in ``metrics.jsonl``, plus
    hyper-parameters and translations; a tracker that fails never stops training."""
    data: DataConfig = field(default_factory=DataConfig)
    """Training, validation and test data, and its cleaning."""
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    """How text is split into subwords (§5.1)."""
    model: ModelConfig = field(default_factory=ModelConfig)
    """Sizes and variants of the Transformer (§3)."""
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    """Adam settings (§5.3)."""
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    """Learning rate over the run (§5.3)."""
    train: TrainConfig = field(default_factory=TrainConfig)
    """Batches, limits, precision, validation and checkpoints."""
    decode: SearchConfig = field(default_factory=SearchConfig)
    """Search settings of validations and of the test set (§6.1)."""
    distributed: DistributedConfig = field(default_factory=DistributedConfig)
    """Worker processes, one per GPU."""
    card: CardConfig = field(default_factory=CardConfig)
    """Name and licence in the model card."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.tokenizer.joint or self.model.tied_embeddings != "all",
            "tokenizer.joint=false gives each language a vocabulary of its own: set "
            "model.tied_embeddings=decoder or none",
        )
        for key in ("run_dir", "cache_dir"):
            require(bool(getattr(self, key)), f"{key} is empty: set it to a folder")
        limits = {"train.max_tokens_per_device": self.train.max_tokens_per_device}
        if self.model.positions == "learned":
            limits["model.max_positions"] = self.model.max_positions
        longest = self.data.cleaning.max_tokens
        for key, limit in limits.items():
            require(
                limit is None or limit >= longest,
                f"{key}={limit} is less than the maximum length of a pair, "
                f"data.cleaning.max_tokens={longest}: raise the former, or lower the latter",
            )
