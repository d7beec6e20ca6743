"""The configuration schema: one dataclass per config group, its meaning and its checks.

YAML files under ``configs/`` give the values, Hydra composes them, and these dataclasses give
types. The library itself never sees OmegaConf objects: the CLI converts once.
"""

import math
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from omegaconf import MISSING, DictConfig, OmegaConf

from transformer_mt.errors import InputError


def config_dir() -> Path:
    """Absolute path of the Hydra config tree: the packaged copy if present, else the checkout's."""
    package = Path(__file__).resolve().parent
    for candidate in (package / "configs", package.parent / "configs"):
        if candidate.is_dir():
            return candidate
    raise InputError(f"no configs/ folder beside {package}: reinstall transformer-mt")


def _require(ok: bool, message: str) -> None:
    if not ok:
        raise InputError(message)


def _choice(key: str, value: str, *allowed: str) -> None:
    _require(value in allowed, f"{key}={value!r} is not one of: {', '.join(allowed)}")


@dataclass(kw_only=True, frozen=True)
class SourceConfig:
    """Where sentence pairs come from: exactly one of ``src``+``tgt``, ``tsv``, ``jsonl``,
    ``parquet``, ``hub``, ``testset`` or ``sample``.
    """

    src: str | None = None
    """Text file of source sentences, one a line; ``.gz`` and ``.zst`` are read as they are."""
    tgt: str | None = None
    """Text file of target sentences, line-aligned with ``src``."""
    tsv: str | None = None
    """Tab-separated file, no header: source, tab, target."""
    jsonl: str | None = None
    """JSON lines: ``{"translation": {"en": …, "de": …}}`` or two named columns."""
    parquet: str | None = None
    """Parquet file with the same columns as ``jsonl``."""
    hub: str | None = None
    """Dataset id on the Hugging Face hub, or a local folder in the same form."""
    testset: str | None = None
    """Test set that sacreBLEU downloads, e.g. ``wmt19``; of several references, the first."""
    langs: str | None = None
    """Testset only: its language pair, source first, e.g. ``en-de``."""
    sample: str | None = None
    """A split of the built-in sample: ``train``, ``valid`` or ``test``."""
    config: str | None = None
    """Hub only: configuration name, e.g. ``de-en``."""
    split: str | None = None
    """Hub only: split name, e.g. ``train``."""
    revision: str | None = None
    """Hub only: the commit, tag or branch to pin."""
    src_column: str | None = None
    """Column of the source side (TSV: a 1-based number); by default the source language's name."""
    tgt_column: str | None = None
    """Column of the target side (TSV: a 1-based number); by default the target language's name."""

    def __post_init__(self) -> None:
        names = ("tsv", "jsonl", "parquet", "hub", "testset", "sample")
        kinds = [name for name in names if getattr(self, name)]
        if self.src or self.tgt:
            kinds.append("src+tgt")
        _require(
            len(kinds) == 1,
            "a data source needs exactly one of {src, tgt}, {tsv}, {jsonl}, {parquet}, {hub}, "
            f"{{testset}} or {{sample}}; this one has: {', '.join(kinds) or 'none'}",
        )
        _require(
            (self.src is None) == (self.tgt is None),
            f"the data source {self.src or self.tgt} needs both src and tgt",
        )
        _require(
            self.hub is None or bool(self.split),
            f"the data source hub: {self.hub} needs a split, e.g. split: train",
        )
        for key in ("config", "split", "revision"):
            _require(
                self.hub is not None or getattr(self, key) is None,
                f"{key} belongs to a hub source; this one is {kinds[0]}",
            )
        _require(
            (self.testset is None) == (self.langs is None),
            f"testset and langs go together, as {{testset: wmt19, langs: en-de}}; this is {self}",
        )
        if self.sample is not None:
            _choice("sample", self.sample, "train", "valid", "test")
        for key in ("src_column", "tgt_column"):
            _require(
                getattr(self, key) is None or kinds[0] not in ("src+tgt", "testset", "sample"),
                f"{key} belongs to a source with columns; this one is {kinds[0]}",
            )
        if self.tsv is not None:
            for key in ("src_column", "tgt_column"):
                value = getattr(self, key)
                _require(
                    value is None or (value.isdecimal() and int(value) >= 1),
                    f"{key}={value!r}: a TSV column is a number, starting at 1",
                )

    def __str__(self) -> str:
        parts = [f"{k}: {v}" for k, v in asdict(self).items() if v is not None]
        return "{" + ", ".join(parts) + "}"


@dataclass(kw_only=True, frozen=True)
class CleaningConfig:
    """Filters of the training data (never of validation or test data)."""

    max_tokens: int = 256
    """Longest side in subwords, end symbol included; longer pairs are dropped and counted."""
    max_ratio: float | None = None
    """Largest ratio of the two sides' lengths in subwords; null keeps every ratio."""
    ratio_slack: int = 0
    """Subwords that the longer side may have beyond ``max_ratio``, for the sake of short pairs."""
    drop_garbled: bool = False
    """Drop control, replacement and private characters, and text in a wrong encoding."""
    drop_markup: bool = False
    """Drop HTML tags and entities."""
    drop_identical: bool = False
    """Drop pairs whose sides are the same up to case, spaces and punctuation."""
    max_character_repeats: int | None = None
    """Most times that a character may stand in a row."""
    max_word_repeats: int | None = None
    """Most times that a word, or a phrase of up to four words, may stand in a row."""
    min_word_length: float | None = None
    """Least mean length of a side's words, in characters (languages with spaces only)."""
    max_word_length: float | None = None
    """Greatest mean length of a side's words, in characters (languages with spaces only)."""
    min_script_share: float | None = None
    """Least share of a side's letters that are of its language's script."""
    min_language_probability: float | None = None
    """Least probability that a side is in its language (needs the ``langid`` extra)."""
    drop_held_out: bool = False
    """Drop pairs with a side that is in the validation or test set, up to case, spaces and
    punctuation."""
    deduplicate: bool = False
    """Drop exact repetitions of a pair."""
    deduplicate_sources: bool = False
    """Keep one pair for each source sentence, the first."""
    deduplicate_targets: bool = False
    """Keep one pair for each target sentence, the first."""

    def __post_init__(self) -> None:
        bounds: dict[str, float] = {
            "max_tokens": 2,
            "max_ratio": 1,
            "ratio_slack": 0,
            "max_character_repeats": 1,
            "max_word_repeats": 1,
            "min_word_length": 0,
            "max_word_length": 0,
            "min_script_share": 0,
            "min_language_probability": 0,
        }
        for key, least in bounds.items():
            value = getattr(self, key)
            null = "" if key in ("max_tokens", "ratio_slack") else " (or null)"
            _require(
                value is None or value >= least,
                f"data.cleaning.{key}={value} must be ≥ {least}{null}",
            )
        for key in ("min_script_share", "min_language_probability"):
            value = getattr(self, key)
            _require(value is None or value <= 1, f"data.cleaning.{key}={value} must be ≤ 1")


@dataclass(kw_only=True, frozen=True)
class DataConfig:
    """The corpora: which pairs to learn from, to validate on, and to score once at the end."""

    src_lang: str = MISSING
    """Language code of the source side; also its default column name."""
    tgt_lang: str = MISSING
    """Language code of the target side; also its default column name."""
    mirror: str | None = None
    """Folder of downloaded datasets, for machines that cannot reach the hub: ``hub: wmt/wmt14`` is
    then read from its subfolder ``wmt/wmt14``."""
    train: list[SourceConfig] = field(default_factory=list)
    """Training sources, read one after the other."""
    weights: list[float] = field(default_factory=list)
    """How often a pair of each training source comes in an epoch, as ``[1, 0.5]``; empty: once."""
    temperature: float = 1.0
    """T > 1 lets small sources come more often: a pair of a source of n pairs (N / n)^(1 − 1/T)
    times an epoch, where N is the size of the largest."""
    valid: list[SourceConfig] = field(default_factory=list)
    """Validation sources: loss, perplexity and BLEU during training."""
    test: list[SourceConfig] = field(default_factory=list)
    """Test sources, scored once at the end; may be empty."""
    cleaning: CleaningConfig = field(default_factory=CleaningConfig)
    normalization: str = "none"
    """``nfc``: accents composed; ``standard``: also HTML entities, quotes, dashes and spaces in
    plain ASCII, no control characters. Of all that is trained on, and of what is translated."""
    workers: int | None = None
    """Processes that clean and encode; null is one for each core, 0 none but this one."""

    def __post_init__(self) -> None:
        _require(
            all(weight > 0 and math.isfinite(weight) for weight in self.weights),
            f"data.weights={list(self.weights)} must all be > 0",
        )
        _require(
            not self.weights or len(self.weights) == len(self.train),
            f"data.weights has {len(self.weights)} numbers for {len(self.train)} training sources",
        )
        _require(
            self.temperature >= 1 and math.isfinite(self.temperature),
            f"data.temperature={self.temperature} must be ≥ 1",
        )
        _choice("data.normalization", self.normalization, "none", "nfc", "standard")
        _require(
            self.workers is None or self.workers >= 0, f"data.workers={self.workers} must be ≥ 0"
        )
        # A job cannot do without the languages and these sources; a schema, still empty, can.
        if self.src_lang == MISSING and self.tgt_lang == MISSING:
            return
        if self.mirror is not None:
            self._read_mirror(Path(self.mirror).expanduser().resolve())
        for part in ("train", "valid"):
            _require(
                bool(getattr(self, part)),
                f"data.{part} names no source; mt-train --help shows examples",
            )
        _require(
            self.src_lang != self.tgt_lang,
            f"data.src_lang and data.tgt_lang are both {self.src_lang!r}",
        )

    def _read_mirror(self, mirror: Path) -> None:
        """Points the hub's sources into the mirror, for good: a run folder says what was read.

        A folder is no commit of the hub, so the ``revision`` goes.
        """

        def local(source: SourceConfig) -> SourceConfig:
            if source.hub is None or Path(source.hub).expanduser().is_dir():
                return source
            return replace(source, hub=str(mirror / source.hub), revision=None)

        for part in ("train", "valid", "test"):
            object.__setattr__(self, part, [local(source) for source in getattr(self, part)])
        object.__setattr__(self, "mirror", None)


@dataclass(kw_only=True, frozen=True)
class TokenizerConfig:
    """SentencePiece, one vocabulary for both languages (§5.1)."""

    type: str = "bpe"
    """``bpe`` (the paper's byte-pair encoding) or ``unigram``."""
    vocab_size: int = 37000
    """Number of pieces, special symbols and byte pieces included."""
    character_coverage: float = 1.0
    """Share of the characters seen that become pieces; the rest falls back to bytes."""
    byte_fallback: bool = True
    """Spell unknown characters as UTF-8 bytes instead of ``<unk>``."""
    normalization: str = "identity"
    """SentencePiece's normalisation rule: ``identity`` leaves every character as it is
    (runs of spaces become one);
    ``nmt_nfkc`` (SentencePiece's own default), ``nfkc`` and ``nfkc_cf`` rewrite some."""
    max_sentences: int = 2_000_000
    """Most sentences (of either language) the vocabulary is learned from, drawn at random."""
    path: str | None = None
    """An existing SentencePiece model to use instead of training one."""

    def __post_init__(self) -> None:
        _choice("tokenizer.type", self.type, "bpe", "unigram")
        _choice(
            "tokenizer.normalization", self.normalization, "identity", "nmt_nfkc", "nfkc", "nfkc_cf"
        )
        _require(self.vocab_size >= 8, f"tokenizer.vocab_size={self.vocab_size} is too small")
        _require(
            0.98 <= self.character_coverage <= 1,  # SentencePiece takes no less
            f"tokenizer.character_coverage={self.character_coverage} must be in [0.98, 1]",
        )
        _require(self.max_sentences >= 1, "tokenizer.max_sentences must be ≥ 1")


@dataclass(kw_only=True, frozen=True)
class ModelConfig:
    """The Transformer (§3); the defaults are the paper's base model."""

    d_model: int = 512
    d_ff: int = 2048
    num_heads: int = 8
    num_encoder_layers: int = 6
    num_decoder_layers: int = 6
    d_k: int | None = None
    """Size of a head's queries and keys; null is d_model / num_heads."""
    d_v: int | None = None
    """Size of a head's values; null is d_model / num_heads."""
    dropout: float = 0.1
    """P_drop (§5.4): on every sub-layer's output and on the sums of embeddings and positions."""
    norm: str = "post"
    """``post``: LayerNorm(x + Sublayer(x)), the paper's; ``pre``: x + Sublayer(LayerNorm(x))."""
    positions: str = "sinusoidal"
    """``sinusoidal`` (§3.5) or ``learned`` (Table 3, row E)."""
    max_positions: int = 1024
    """Number of learned positions; sinusoids have no limit."""

    def __post_init__(self) -> None:
        for key in ("d_model", "d_ff", "num_heads", "num_encoder_layers", "num_decoder_layers"):
            _require(getattr(self, key) >= 1, f"model.{key}={getattr(self, key)} must be ≥ 1")
        _require(
            self.d_model % 2 == 0, f"model.d_model={self.d_model} must be even (sines and cosines)"
        )
        for key in ("d_k", "d_v"):
            value = getattr(self, key)
            _require(
                value is not None or self.d_model % self.num_heads == 0,
                f"model.d_model={self.d_model} is no multiple of model.num_heads={self.num_heads}; "
                f"change one, or set model.{key}",
            )
            _require(value is None or value >= 1, f"model.{key}={value} must be ≥ 1")
        _require(0 <= self.dropout < 1, f"model.dropout={self.dropout} must be in [0, 1)")
        _choice("model.norm", self.norm, "post", "pre")
        _choice("model.positions", self.positions, "sinusoidal", "learned")
        _require(self.max_positions >= 1, "model.max_positions must be ≥ 1")

    @property
    def key_size(self) -> int:
        """Size of a head's queries and keys, d_k."""
        return self.d_k or self.d_model // self.num_heads

    @property
    def value_size(self) -> int:
        """Size of a head's values, d_v."""
        return self.d_v or self.d_model // self.num_heads


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

    def __post_init__(self) -> None:
        _choice("optimizer.name", self.name, "adam", "muon")
        for key in ("beta1", "beta2"):
            _require(0 <= getattr(self, key) < 1, f"optimizer.{key} must be in [0, 1)")
        _require(self.eps > 0, "optimizer.eps must be > 0")
        if self.name == "muon":
            _require(
                self.momentum is not None and 0 <= self.momentum < 1,
                f"optimizer=muon needs optimizer.momentum in [0, 1), not {self.momentum}",
            )
        else:
            _require(
                self.momentum is None,
                f"optimizer.momentum={self.momentum} is Muon's, unknown to optimizer={self.name}",
            )


@dataclass(kw_only=True, frozen=True)
class ScheduleConfig:
    """The learning rate as a function of the step (§5.3)."""

    name: str = "noam"
    """``noam``: the paper's formula, its peak set by d_model and warmup_steps;
    ``inverse_sqrt``: the same shape with a given peak; ``linear``: straight down to zero at
    train.max_steps."""
    warmup_steps: int = 4000
    peak_lr: float | None = None
    """Learning rate at the end of the warm-up (``inverse_sqrt`` and ``linear`` only)."""

    def __post_init__(self) -> None:
        _choice("schedule.name", self.name, "noam", "inverse_sqrt", "linear")
        _require(self.warmup_steps >= 1, "schedule.warmup_steps must be ≥ 1")
        if self.name == "noam":
            _require(
                self.peak_lr is None, "schedule.peak_lr is set by the formula of schedule=noam"
            )
        else:
            _require(
                self.peak_lr is not None and self.peak_lr > 0 and math.isfinite(self.peak_lr),
                f"schedule={self.name} needs schedule.peak_lr > 0",
            )


@dataclass(kw_only=True, frozen=True)
class TrainConfig:
    """The training run (§5)."""

    seed: int = 1
    """Seed of the initial weights, the order of the data and dropout."""
    batch_tokens: int = 25000
    """Target tokens of one update, over all ranks and accumulation steps (§5.1)."""
    max_tokens_per_device: int | None = None
    """Most tokens (of either side) in one forward pass; caps memory, never changes the recipe.
    Null is 8192 on a CPU, and as many as the memory of the GPU holds on a GPU."""
    max_steps: int = 100000
    """Updates in all (§5.2)."""
    label_smoothing: float = 0.1
    """ε_ls (§5.4)."""
    compile: bool | None = None
    """Compile the training step for batches of one fixed shape; null does so on GPUs, in bf16."""
    precision: str = "auto"
    """``fp32``, ``bf16`` (autocast), or ``auto``: bf16 where the hardware has fast bf16."""
    device: str = "auto"
    """``cpu``, ``cuda``, or ``auto``: CUDA where there is a GPU."""
    log_every: int = 100
    """Steps between two lines of the log."""
    validate_every: int = 1500
    """Steps between two validations: loss, perplexity and BLEU."""
    checkpoint_every: int = 1500
    """Steps between two checkpoints: 10 minutes of the paper's 0.4 s steps (§6.1)."""
    average_checkpoints: int = 5
    """How many of the last checkpoints are averaged into the final model (§6.1); as many, and at
    least two, are kept."""

    def __post_init__(self) -> None:
        for key in (
            "batch_tokens",
            "max_steps",
            "log_every",
            "validate_every",
            "checkpoint_every",
            "average_checkpoints",
        ):
            _require(getattr(self, key) >= 1, f"train.{key}={getattr(self, key)} must be ≥ 1")
        limit = self.max_tokens_per_device
        _require(limit is None or limit >= 1, f"train.max_tokens_per_device={limit} must be ≥ 1")
        _require(0 <= self.label_smoothing < 1, "train.label_smoothing must be in [0, 1)")
        _require(0 <= self.seed < 2**63, f"train.seed={self.seed} must be in [0, 2⁶³)")
        _choice("train.precision", self.precision, "auto", "fp32", "bf16")
        _choice("train.device", self.device, "auto", "cpu", "cuda")


@dataclass(kw_only=True, frozen=True)
class DecodeConfig:
    """Beam search (§6.1)."""

    beam_size: int = 4
    length_penalty: float = 0.6
    """α of GNMT's ((5 + |Y|) / 6)^α."""
    max_extra_tokens: int = 50
    """Longest output: the source's length plus this many tokens."""
    max_source_tokens: int = 1024
    """Longer lines are cut into parts of at most this many tokens, and counted."""
    batch_tokens: int = 8192
    """Most tokens, padding and beams included, decoded at a time."""

    def __post_init__(self) -> None:
        for key in ("beam_size", "max_source_tokens", "batch_tokens"):
            _require(getattr(self, key) >= 1, f"decode.{key}={getattr(self, key)} must be ≥ 1")
        _require(
            math.isfinite(self.length_penalty) and self.length_penalty >= 0,
            f"decode.length_penalty={self.length_penalty} must be ≥ 0",
        )
        _require(self.max_extra_tokens >= 0, "decode.max_extra_tokens must be ≥ 0")


@dataclass(kw_only=True, frozen=True)
class DistributedConfig:
    """Data-parallel training; under torchrun its environment decides instead."""

    processes: int | None = None
    """Workers on this machine; null is one for each visible GPU, or one on the CPU."""

    def __post_init__(self) -> None:
        _require(
            self.processes is None or self.processes >= 1,
            f"distributed.processes={self.processes} must be ≥ 1",
        )


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
        _choice("stage", self.stage, "train", "prepare")
        limit = self.train.max_tokens_per_device
        _require(
            limit is None or limit >= self.data.cleaning.max_tokens,
            f"train.max_tokens_per_device={limit} is below the longest "
            f"pair allowed, data.cleaning.max_tokens={self.data.cleaning.max_tokens}",
        )
        if self.model.positions == "learned":
            _require(
                self.model.max_positions >= self.data.cleaning.max_tokens,
                f"model.max_positions={self.model.max_positions} is below the longest pair "
                f"allowed, data.cleaning.max_tokens={self.data.cleaning.max_tokens}",
            )


@dataclass(kw_only=True, frozen=True)
class TranslateJob:
    """Everything ``mt-translate`` is told. A null decoding setting is the model folder's own."""

    model: str = ""
    """Model folder."""
    input: str | None = None
    """File to translate; null reads standard input."""
    output: str | None = None
    """File to write; null writes to standard output."""
    format: str = "text"
    """``text``, or ``jsonl`` with scores and all n best."""
    nbest: int = 1
    """Translations for each line, best first."""
    engine: str = "auto"
    """``torch``; ``auto`` takes the fastest engine there is, today ``torch``."""
    device: str = "auto"
    """``cpu``, ``cuda`` or ``auto``."""
    beam_size: int | None = None
    length_penalty: float | None = None
    max_extra_tokens: int | None = None
    max_source_tokens: int | None = None
    batch_tokens: int | None = None

    def __post_init__(self) -> None:
        _require(bool(self.model), "no model given: say model=FOLDER (see --help)")
        _choice("format", self.format, "text", "jsonl")
        _choice("engine", self.engine, "auto", "torch")
        _choice("device", self.device, "auto", "cpu", "cuda")
        _require(self.nbest >= 1, f"nbest={self.nbest} must be ≥ 1")
        _require(
            self.nbest == 1 or self.format == "jsonl",
            f"nbest={self.nbest} needs format=jsonl: text is one line out for each line in",
        )


@dataclass(kw_only=True, frozen=True)
class EvaluateJob:
    """Everything ``mt-eval`` is told: a model folder, or hypotheses and references."""

    model: str | None = None
    """Model folder: its own test set is translated and scored."""
    hypotheses: list[str] = field(default_factory=list)
    """Files of translations, one for each system."""
    references: list[str] = field(default_factory=list)
    """Files of reference translations; with several, each line has several references."""
    source: str | None = None
    """File of the source sentences; with it, untranslated lines are noticed."""
    tgt_lang: str | None = None
    """Language of the hypotheses; with it, the paper's protocol is scored too."""
    format: str = "text"
    """``text`` or ``json``."""
    device: str = "auto"
    """``cpu``, ``cuda`` or ``auto``."""

    def __post_init__(self) -> None:
        _choice("format", self.format, "text", "json")
        _choice("device", self.device, "auto", "cpu", "cuda")
        _require(
            bool(self.model) != bool(self.hypotheses),
            "say either model=FOLDER, or 'hypotheses=[FILE]' with 'references=[FILE]'",
        )
        _require(
            bool(self.hypotheses) == bool(self.references),
            "hypotheses and references go together: 'hypotheses=[sys.de]' 'references=[ref.de]'",
        )


def schema(job: type) -> DictConfig:
    """Types and defaults of a job as an OmegaConf node, for YAML and overrides to merge into."""
    return _writable(OmegaConf.structured(job))


def _writable(node: DictConfig) -> DictConfig:
    # OmegaConf write-protects the nodes of frozen dataclasses, against merging too.
    OmegaConf.set_readonly(node, False)
    for key in node:
        if not OmegaConf.is_missing(node, key) and isinstance(node[key], DictConfig):
            _writable(node[key])
    return node
