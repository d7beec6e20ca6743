"""Schema of ``mt-eval``."""

from dataclasses import dataclass, field

from transformer_mt.config.checks import at_least, choice, require, require_language

METRICS = ("bleu", "chrf", "chrf++", "ter", "comet", "ppl")
PROTOCOLS = ("paper", "lowercase_tokens")


@dataclass(kw_only=True, frozen=True)
class EvaluateJob:
    """Settings of ``mt-eval``: either a model folder, or hypotheses with references."""

    model: str | None = None
    """Model folder, or ``hf://ORG/NAME[@REVISION]``; its own test set is translated and scored,
    unless ``testset``, ``subset`` or ``references`` select another."""
    subset: str | None = None
    """Which of the model's own sets: ``test`` (null), or ``valid`` for choosing settings."""
    step: int | None = None
    """Step of the checkpoint to load; null: the final model."""
    beam_size: int | None = None
    length_penalty: float | None = None
    hypotheses: list[str] = field(default_factory=list)
    """Files of translations, one for each system; the first is the baseline of the comparison."""
    references: list[str] = field(default_factory=list)
    """Files of reference translations; several files give each line several references."""
    source: str | None = None
    """File of source sentences; with it, untranslated lines are reported."""
    testset: str | None = None
    """sacreBLEU test set, such as ``wmt14/full``, instead of ``source`` and ``references``."""
    langs: str | None = None
    """Language pair of ``testset``, such as ``en-de``; null: that of the model."""
    tgt_lang: str | None = None
    """Language of the hypotheses, such as ``de``; adds BLEU by the paper's protocol."""
    metrics: list[str] | None = None
    """Any of ``bleu``, ``chrf``, ``chrf++``, ``ter``, ``comet`` and, for a model, ``ppl``
    (perplexity of the references per subword); null: bleu, chrf and ter."""
    protocols: list[str] | None = None
    """BLEU on other scales: ``paper`` (tokenised, compounds split; Table 2) or
    ``lowercase_tokens`` (published Multi30k scores); null: what suits the system."""
    bootstrap: int | None = None
    """Resamples for 95% intervals and the paired bootstrap test; null: 1000 when systems are
    compared or a report is written, otherwise 0."""
    randomization: int | None = None
    """Trials of the paired randomisation test; null: 10000 when systems are compared, else 0."""
    workers: int | None = None
    """Processes that compute metrics and resamples. null: one per core, or none if there is little
    to compute; 0: none besides the main process."""
    comet_model: str = "Unbabel/wmt22-comet-da"
    """COMET model: its name, or a checkpoint file."""
    report: str | None = None
    """HTML report to write: scores, charts, training curves and every sentence."""
    attention: str | None = None
    """Sentence to translate, whose attention weights are shown."""
    attention_html: str | None = None
    """HTML page of attention weights to write."""
    attention_png: str | None = None
    """Image of attention weights to write."""
    format: str = "text"
    """Output format: ``text`` or ``json``."""
    device: str = "auto"
    """``cpu``, ``cuda``, or ``auto``: CUDA if there is a GPU."""

    def __post_init__(self) -> None:
        choice("format", self.format, "text", "json")
        choice("device", self.device, "auto", "cpu", "cuda")
        if self.tgt_lang is not None:
            require_language("tgt_lang", self.tgt_lang)
        require(self.metrics != [], "metrics is empty: set at least one, e.g. metrics=[bleu]")
        for name in self.metrics or []:
            choice("metrics", name, *METRICS)
        for name in self.protocols or []:
            choice("protocols", name, *PROTOCOLS)
        at_least(0, self, "bootstrap", "randomization", "workers")
        require(
            bool(self.model) != bool(self.hypotheses),
            "set either model=FOLDER, or 'hypotheses=[FILE]' with 'references=[FILE]'",
        )
        if self.subset is not None:
            choice("subset", self.subset, "test", "valid")
        self._check_test_set()
        self._check_attention()

    def _check_test_set(self) -> None:
        require(
            bool(self.model) or "ppl" not in (self.metrics or []),
            "metrics: ppl is the perplexity of a model: set model=FOLDER",
        )
        for key in () if self.model else ("subset", "step", "beam_size", "length_penalty"):
            require(getattr(self, key) is None, f"{key} needs model=FOLDER")
        require(
            self.subset is None or not (self.testset or self.references),
            f"subset={self.subset} is one of the model's own sets: remove testset and references",
        )
        require(
            not (self.testset and (self.references or self.source)),
            "testset includes source and references: set either testset or these",
        )
        require(self.langs is None or bool(self.testset), "langs needs testset=NAME")
        if self.model:
            require(
                bool(self.source) == bool(self.references),
                "a model's test set needs both source=FILE and 'references=[FILE]', or neither",
            )
            return
        require(
            bool(self.references) or bool(self.testset),
            "hypotheses need references: set 'references=[FILE]' or testset=NAME",
        )
        require(
            len(set(self.hypotheses)) == len(self.hypotheses),
            "hypotheses lists a file twice: each system needs its own file",
        )
        require(
            not self.testset or self.langs is not None,
            f"testset={self.testset} exists for several language pairs: set langs=SRC-TGT",
        )
        require(
            not self.protocols or bool(self.tgt_lang) or bool(self.langs),
            "protocols depend on the language of the hypotheses: set it, e.g. tgt_lang=de",
        )
        require(
            "comet" not in (self.metrics or []) or bool(self.source) or bool(self.testset),
            "metrics: comet also reads the source: set source=FILE",
        )

    def _check_attention(self) -> None:
        pages = bool(self.attention_html or self.attention_png)
        if self.attention is None:
            message = 'attention_html and attention_png need a sentence: set attention="…"'
            require(not pages, message)
            return
        require(bool(self.model), "attention needs a model: set model=FOLDER")
        require(bool(self.attention.strip()), "attention is an empty sentence")
        require(
            pages or bool(self.report),
            "attention needs an output: set attention_html=FILE, attention_png=FILE or report=FILE",
        )
