"""Settings of mt-eval."""

from dataclasses import dataclass, field

from transformer_mt.config.checks import Checked, number, one_of, require, require_language
from transformer_mt.config.translate import COMPUTE_TYPES
from transformer_mt.errors import UsageError
from transformer_mt.registries import ENGINES, METRICS, SOURCE_METRICS

OWN_SETS = ("test", "valid")
"""Names of the model's own sets, for ``testset``."""


@dataclass(kw_only=True, frozen=True)
class EvaluateJob(Checked):
    """Settings of ``mt-eval``: either a model folder, or hypotheses with references."""

    model: str | None = None
    """Model folder, or ``hf://ORG/NAME[@REVISION]``, whose own test set is translated and scored.
    ``testset`` or ``references`` select another set."""
    step: int | None = None
    """Score the checkpoint of this update; null: the final model."""
    beam_size: int | None = None
    length_penalty: float | None = None
    engine: str = one_of("auto", ENGINES)
    """Translate with CTranslate2, which is faster on a CPU, or with PyTorch; auto chooses. As in
    ``mt-translate``."""
    compute_type: str = one_of(*COMPUTE_TYPES)
    """Compute in float32, or faster and less precisely, as in ``mt-translate``."""
    hypotheses: list[str] = field(default_factory=list)
    """Files of translations to score, one for each system; the first is the baseline. Of JSON lines
    (``.jsonl``) that ``mt-translate`` wrote, the best translations."""
    references: list[str] = field(default_factory=list)
    """Files of reference translations; several files give each line several references."""
    source: str | None = None
    """File of source sentences; needed to detect untranslated lines."""
    testset: str | None = None
    """Score on this test set of sacreBLEU, such as ``wmt14/full``, instead of ``source`` and
    ``references``; or the model on its own ``valid`` set, to choose settings. null: its ``test``
    set."""
    langs: str | None = None
    """Language pair of ``testset``, such as ``en-de``; null: that of ``tag``, or of the model."""
    tag: str | None = None
    """Tag of the lines of ``source`` or ``testset``; the model's own sets have their own."""
    tgt_lang: str | None = None
    """Language of the hypotheses, such as ``de``; adds the metric ``paper``."""
    metrics: list[str] | None = one_of(METRICS, SOURCE_METRICS, default=None)
    """Compute these metrics. null: bleu, chrf and ter, and paper for a known language with spaces
    between words. ``paper`` is BLEU on tokens with compounds split, as in the paper's Table 2.
    ``ppl`` is the perplexity of the references under the model, per subword; if nothing else is
    asked for, nothing is translated."""
    bootstrap: int | None = number(None, at_least=0, at_most=10_000_000)
    """Resamples for 95% intervals and the paired bootstrap test; null: 1000 when systems are
    compared or a report is written, otherwise 0."""
    by_length: bool = False
    """Also score lines of 1–3, 4–9, 10–19, 20–39 and 40 or more source words apart. Without
    ``source``, words of the first references are counted."""
    report: str | None = None
    """Write an HTML report here: scores, charts, training curves and every sentence."""
    format: str = one_of("text", "json")
    """Print tables, or JSON."""
    device: str = one_of("auto", "cpu", "cuda")
    """Translate on this kind of device; auto takes the GPU if there is one."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.tgt_lang is not None:
            require_language("tgt_lang", self.tgt_lang)
        require(self.metrics != [], "metrics is empty: set at least one, e.g. metrics=[bleu]")
        require(
            bool(self.model) != bool(self.hypotheses),
            "set either model=FOLDER, or 'hypotheses=[FILE]' with 'references=[FILE]'",
            UsageError,
        )
        message = f"bootstrap={self.bootstrap}: 95% intervals need at least 40 resamples (0: none)"
        require(not 0 < (self.bootstrap or 0) < 40, message)
        for key, names in {"hypotheses": self.hypotheses, "references": self.references}.items():
            require(len(set(names)) == len(names), f"{key} names a file twice: {names}")
        systems = len(self.hypotheses)
        message = f"report: its charts show at most 5 systems, not {systems}"
        require(self.report is None or systems <= 5, message)
        self._check_test_set()

    def _check_test_set(self) -> None:
        """Checks that the settings name texts to score, and all that their metrics need."""
        require(
            bool(self.model) or "ppl" not in (self.metrics or []),
            "metrics: ppl is the perplexity of a model: set model=FOLDER",
        )
        if self.metrics and SOURCE_METRICS.keys() >= set(self.metrics):
            reason = "needs another metric, such as bleu: ppl and comet are of the whole set"
            self.require_defaults("by_length", "bootstrap", reason=reason)
        if not self.model:
            of_model = ("step", "beam_size", "length_penalty", "tag", "engine", "compute_type")
            self.require_defaults(*of_model, reason="needs model=FOLDER")
        own = self.testset in OWN_SETS
        require(bool(self.model) or not own, f"testset={self.testset} needs model=FOLDER")
        require(
            not (self.testset and (self.references or self.source)),
            "testset includes source and references: set either testset or these",
        )
        require(
            self.langs is None or (bool(self.testset) and not own),
            "langs needs testset=NAME, of sacreBLEU",
        )
        if self.model:
            require(
                bool(self.source) == bool(self.references),
                "a model's test set needs both source=FILE and 'references=[FILE]', or neither",
            )
            return
        require(
            bool(self.references) or bool(self.testset),
            "hypotheses need references: set 'references=[FILE]' or testset=NAME",
            UsageError,
        )
        require(
            not self.testset or self.langs is not None,
            f"testset={self.testset} exists for several language pairs: set langs=SRC-TGT",
        )
        require(
            "paper" not in (self.metrics or []) or bool(self.tgt_lang) or bool(self.langs),
            "metrics: paper depends on the language of the hypotheses: set it, e.g. tgt_lang=de",
        )
        require(
            "comet" not in (self.metrics or []) or bool(self.source) or bool(self.testset),
            "metrics: comet also reads the source: set source=FILE",
        )
