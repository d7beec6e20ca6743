"""Schema of the job of ``mt-eval``."""

from dataclasses import dataclass, field

from transformer_mt.config.checks import choice, require, require_language


@dataclass(kw_only=True, frozen=True)
class EvaluateJob:
    """Everything ``mt-eval`` is told: a model folder, or hypotheses and references."""

    model: str | None = None
    """Model folder: its own test set is translated and scored, or the one that is named."""
    subset: str | None = None
    """Which of the model's own sets: ``test`` or, to choose settings by, ``valid``."""
    step: int | None = None
    """Take the weights of this checkpoint; null takes the average that training left."""
    beam_size: int | None = None
    """Width of the beam; null is the model folder's own setting."""
    length_penalty: float | None = None
    """α of the length penalty; null is the model folder's own setting."""
    hypotheses: list[str] = field(default_factory=list)
    """Files of translations, one for each system; the first is the baseline of the others."""
    references: list[str] = field(default_factory=list)
    """Files of reference translations; with several, each line has several references."""
    source: str | None = None
    """File of the source sentences; with it, untranslated lines are noticed."""
    testset: str | None = None
    """A test set of sacreBLEU, such as ``wmt14/full``, in place of source and references."""
    langs: str | None = None
    """The test set's languages, such as ``en-de``; by default those of the model."""
    tgt_lang: str | None = None
    """Language of the hypotheses; with it, the paper's protocol is scored too."""
    metrics: list[str] | None = None
    """Some of ``bleu``, ``chrf``, ``chrf++``, ``ter``, ``comet`` and, for a model, ``ppl``, the
    perplexity of the references; null is bleu, chrf and ter."""
    protocols: list[str] | None = None
    """BLEU on other scales, ``paper`` or ``lowercase_tokens``; null is what suits the system."""
    bootstrap: int | None = None
    """Resamples of the 95% intervals and of the paired bootstrap test; 0 is none, null is 1000
    where systems are compared or a report is written."""
    randomization: int | None = None
    """Trials of the paired randomisation test; 0 is none, null is 10000 where systems are
    compared."""
    comet_model: str = "Unbabel/wmt22-comet-da"
    """Name of a COMET model, or its checkpoint file."""
    report: str | None = None
    """HTML page to write: scores, curves, and every sentence."""
    attention: str | None = None
    """A sentence: where the model looks as it translates it."""
    attention_html: str | None = None
    """HTML page to write of the attention; a report has it too."""
    attention_png: str | None = None
    """Image to write of the attention."""
    format: str = "text"
    """``text`` or ``json``."""
    device: str = "auto"
    """``cpu``, ``cuda`` or ``auto``."""

    def __post_init__(self) -> None:
        choice("format", self.format, "text", "json")
        choice("device", self.device, "auto", "cpu", "cuda")
        if self.tgt_lang is not None:
            require_language("tgt_lang", self.tgt_lang)
        require(self.metrics != [], "metrics is empty: name at least one, e.g. metrics=[bleu]")
        for name in self.metrics or []:
            choice("metrics", name, "bleu", "chrf", "chrf++", "ter", "comet", "ppl")
        for name in self.protocols or []:
            choice("protocols", name, "paper", "lowercase_tokens")
        for key in ("bootstrap", "randomization"):
            value = getattr(self, key)
            require(value is None or value >= 0, f"{key}={value} must be ≥ 0 (or null)")
        require(
            bool(self.model) != bool(self.hypotheses),
            "say either model=FOLDER, or 'hypotheses=[FILE]' with 'references=[FILE]'",
        )
        if self.subset is not None:
            choice("subset", self.subset, "test", "valid")
        self._check_test_set()
        self._check_attention()

    def _check_test_set(self) -> None:
        require(
            bool(self.model) or "ppl" not in (self.metrics or []),
            "metrics: ppl is the perplexity of a model: say model=FOLDER",
        )
        for key in () if self.model else ("subset", "step", "beam_size", "length_penalty"):
            require(getattr(self, key) is None, f"{key} needs model=FOLDER")
        require(
            self.subset is None or not (self.testset or self.references),
            f"subset={self.subset} is one of the model's own sets: name no other beside it",
        )
        require(
            not (self.testset and (self.references or self.source)),
            "testset has a source and references of its own: say either testset or these",
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
            "hypotheses and references go together: 'hypotheses=[sys.de]' 'references=[ref.de]'",
        )
        require(
            len(set(self.hypotheses)) == len(self.hypotheses),
            "hypotheses names a file twice: each system needs one of its own",
        )
        require(
            not self.testset or self.langs is not None,
            f"testset={self.testset} is of many languages: say which, e.g. langs=en-de",
        )
        require(
            not self.protocols or bool(self.tgt_lang) or bool(self.langs),
            "protocols go by the language of the hypotheses: say it, e.g. tgt_lang=de",
        )
        require(
            "comet" not in (self.metrics or []) or bool(self.source) or bool(self.testset),
            "metrics: comet reads the source as well: say source=FILE",
        )

    def _check_attention(self) -> None:
        pages = bool(self.attention_html or self.attention_png)
        if self.attention is None:
            require(not pages, "attention_html and attention_png are of a sentence: attention=…")
            return
        require(bool(self.model), "attention is that of a model: say model=FOLDER")
        require(bool(self.attention.strip()), "attention is an empty sentence")
        require(
            pages or bool(self.report),
            "attention needs a place: attention_html=FILE, attention_png=FILE or report=FILE",
        )
