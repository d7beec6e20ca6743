"""Settings of mt-translate, and of search: those that a model folder records, and all others."""

from dataclasses import asdict, dataclass, field, fields

from transformer_mt.config.checks import Checked, number, one_of, require
from transformer_mt.errors import UsageError
from transformer_mt.files import ending
from transformer_mt.registries import DOCUMENT_ENDINGS, DOCUMENT_FORMATS, ENGINES

COMPUTE_TYPES = ("auto", "fast", "float32", "bfloat16", "int8", "float16")
"""Values of ``compute_type``; few devices support all types."""


@dataclass(kw_only=True, frozen=True)
class SearchConfig(Checked):
    """Beam search (§6.1): what a training run decides, and its model folder records."""

    _prefix = "decode."
    beam_size: int = number(4, at_least=1, at_most=1000)
    """Number of beams; 1 is greedy search. The paper uses 4 (§6.1)."""
    length_penalty: float = number(0.6, at_least=0, at_most=10)  # larger values overflow
    """Exponent α of the length penalty; larger values favour longer translations. Scores are
    divided by ((5 + |Y|) / 6)^α (GNMT, Wu et al. 2016, eq. 14); the paper uses 0.6 (§6.1)."""
    max_extra_tokens: int = number(50, at_least=0, at_most=10_000)
    """Maximum output length in tokens beyond the length of the source. The paper uses 50 (§6.1)."""
    max_source_tokens: int = number(256, at_least=1, at_most=100_000)
    """Translate sentences with more tokens in parts. ``mt-train`` sets it to
    ``data.cleaning.max_tokens``, the longest that training sees. Such lines are counted."""
    split: str = one_of("sentences", "none")
    """Translate the sentences of a line one by one, as models trained on single sentences need it;
    or whole lines (none), for models trained on longer texts, unless they are too long."""

    @property
    def in_words(self) -> str:
        """The search in words, for a reader of its translations' scores."""
        if self.beam_size == 1:
            return "greedy search"
        return f"beam search with {self.beam_size} beams, length penalty {self.length_penalty:g}"

    def for_job(self, job: object = None) -> "DecodeConfig":
        """The settings of a translation: these, overridden by those of a job that are not None."""
        given = {f.name: getattr(job, f.name, None) for f in fields(DecodeConfig)}
        return DecodeConfig(**asdict(self) | {k: v for k, v in given.items() if v is not None})


@dataclass(kw_only=True, frozen=True)
class DecodeConfig(SearchConfig):
    """Settings of a translation, of which a model folder records those of ``SearchConfig``."""

    _prefix = ""
    batch_tokens: int | None = number(None, at_least=1, at_most=10_000_000)
    """Maximum number of tokens in a batch, padding and beams included. null: 8192 on a CPU, 131072
    on a GPU, and less where its memory is too small."""
    sampling: bool = False
    """Sample tokens at random instead of searching, for example for back-translation. A sample
    depends on its line and the seed, not on the other lines."""
    temperature: float = number(1.0, above=0)
    """With sampling: raise probabilities to the power 1 / temperature."""
    top_k: int = number(0, at_least=0)
    """With sampling: draw from this many of the most probable tokens; 0: from all."""
    seed: int = 1
    """With sampling: random seed."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.sampling:
            reason = "applies to sampling only: set sampling=true too"
            self.require_defaults("temperature", "top_k", "seed", reason=reason)

    def check_nbest(self, nbest: int) -> None:
        """Raises ``InputError`` if a search with these settings has no ``nbest`` translations."""
        require(
            self.sampling or nbest <= self.beam_size,
            f"nbest={nbest} needs a beam_size of at least {nbest}",
        )


@dataclass(kw_only=True, frozen=True)
class TranslateJob(Checked):
    """Settings of ``mt-translate``. Search settings that are null are the model folder's."""

    model: str = ""
    """Model folder, or ``hf://ORG/NAME[@REVISION]`` on the Hugging Face Hub; required."""
    input: str | None = None
    """File to translate; null: standard input."""
    output: str | None = None
    """File to write; null: standard output."""
    format: str = one_of("auto", "text", "jsonl", DOCUMENT_FORMATS)
    """Write plain lines, JSON lines with scores, or a document; auto follows the ending of
    ``input``. ``text`` and ``jsonl`` write one line for each input line."""
    nbest: int = number(1, at_least=1, at_most=10_000)
    """Number of translations of each line, best first. More than 1 needs ``format=jsonl``; with
    ``sampling`` they are in random order."""
    engine: str = one_of("auto", ENGINES)
    """Translate with CTranslate2, which is faster on a CPU, or with PyTorch; auto chooses. ``auto``
    chooses CTranslate2 on a CPU where it is installed and supports the model and the settings, and
    otherwise torch; their translations are the same, apart from ties, rounding, and lines that
    reach their maximum length."""
    compute_type: str = one_of(*COMPUTE_TYPES)
    """Compute in float32, or faster and less precisely; auto takes bfloat16 on GPUs that have it,
    else float32. ``fast`` uses int8 where CTranslate2 supports the job, otherwise bfloat16 where
    the hardware is fast at it, otherwise float32; unless it is float32, some translations and all
    scores change slightly. int8 needs CTranslate2, float16 a GPU."""
    fuzzy: bool = True
    """Mark new translations of a PO file as fuzzy. gettext leaves fuzzy ones out until somebody
    has reviewed them; ``false`` releases them unreviewed."""
    markup: str = one_of("text", "keep")
    """Translate markup like any other text, or keep tags, placeholders and addresses as they
    are."""
    tag: str | None = None
    """Tag of the lines, such as ``<2fr>`` or ``>>fra<<``, for a model trained with tags. A line
    that starts with a tag keeps its own."""
    device: str = one_of("auto", "cpu", "cuda")
    """Translate on this kind of device; auto takes the GPU if there is one."""
    step: int | None = None
    """Use the checkpoint of this update. null: the final, averaged weights."""
    ensemble: list[str] = field(default_factory=list)
    """More models with the same vocabulary, whose probabilities are averaged with those of
    ``model``. The settings of ``model`` are used."""
    prefix: str | None = None
    """File with forced beginnings of the translations, one per input line."""
    score: str | None = None
    """Score the translations in this file, one per input line, instead of translating. Lines are
    scored whole, and in their own case."""
    alignment: bool = False
    """Add word alignments to the output. Needs ``format=jsonl``."""
    # Every field of DecodeConfig; written out, because type checkers cannot see generated fields.
    beam_size: int | None = None
    length_penalty: float | None = None
    max_extra_tokens: int | None = None
    max_source_tokens: int | None = None
    split: str | None = None
    batch_tokens: int | None = DecodeConfig.batch_tokens
    sampling: bool = DecodeConfig.sampling
    temperature: float = DecodeConfig.temperature
    top_k: int = DecodeConfig.top_k
    seed: int = DecodeConfig.seed

    def __post_init__(self) -> None:
        require(bool(self.model), "no model given: set model=FOLDER (see --help)", UsageError)
        super().__post_init__()
        for key in ("input", "output", "prefix", "score"):
            require(getattr(self, key) != "", f"{key}= is empty: set {key}=FILE, or leave it out")
        for key in ("input", "output"):
            message = f"{key}=-: leave {key} out for standard {key}; a file of that name is ./-"
            require(getattr(self, key) != "-", message)
        require(
            self.nbest == 1 or self.format == "jsonl",
            f"nbest={self.nbest} needs format=jsonl: text is one line out for each line in",
        )
        require(
            not self.alignment or self.format == "jsonl",
            "alignment=true needs format=jsonl: text cannot hold alignments",
        )
        message = "beam_size applies to beam search: it cannot be used with sampling=true"
        require(not self.sampling or self.beam_size is None, message)
        if self.score is not None:
            reason = "cannot be used with score, which does not translate"
            self.require_defaults("prefix", "alignment", "nbest", "sampling", reason=reason)
        for setting, used in (
            (f"markup={self.markup}", self.markup != "text"),
            (f"format={self.document_format}", self.document_format is not None),
        ):
            if used:
                reason = f"applies to whole lines: it cannot be used with {setting}"
                self.require_defaults("prefix", "score", "alignment", reason=reason)
        message = "fuzzy=false applies to PO files: set format=po, or leave it out"
        require(self.fuzzy or self.document_format == "po", message)

    @property
    def document_format(self) -> str | None:
        """Format of the document (``DOCUMENT_FORMATS``); None if lines are translated."""
        if self.format == "auto":
            return DOCUMENT_ENDINGS.get(ending(self.input or ""))
        return self.format if self.format in DOCUMENT_FORMATS else None
