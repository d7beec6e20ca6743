"""Schema of the job of ``mt-eval``."""

from dataclasses import dataclass, field

from transformer_mt.config.checks import choice, require


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
        choice("format", self.format, "text", "json")
        choice("device", self.device, "auto", "cpu", "cuda")
        require(
            bool(self.model) != bool(self.hypotheses),
            "say either model=FOLDER, or 'hypotheses=[FILE]' with 'references=[FILE]'",
        )
        require(
            bool(self.hypotheses) == bool(self.references),
            "hypotheses and references go together: 'hypotheses=[sys.de]' 'references=[ref.de]'",
        )
