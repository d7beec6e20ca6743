"""Configurations of the commands that use a model: mt-translate, mt-eval and mt-export."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from transformer_mt.config.checks import (
    Checked,
    number,
    one_of,
    require,
    require_given,
    require_language,
)
from transformer_mt.config.decode import COMPUTE_TYPES, DecodeConfig
from transformer_mt.files import expand_user
from transformer_mt.registries import (
    DOCUMENT_ENDINGS,
    DOCUMENT_FORMATS,
    ENGINES,
    EXPORT_FORMATS,
    MARKUP_WRAPPERS,
    METRICS,
    PROTOCOLS,
    QUANTIZED_FORMATS,
    SOURCE_METRICS,
    SPLIT_WRAPPERS,
)


@dataclass(kw_only=True, frozen=True)
class TranslateJob(Checked):
    """Settings of ``mt-translate``. Search settings that are null are the model folder's."""

    program: ClassVar = "mt-translate"

    model: str = ""
    """Model folder, or ``hf://ORG/NAME[@REVISION]`` on the Hugging Face Hub; required."""
    input: str | None = None
    """File to translate; null: standard input."""
    output: str | None = None
    """File to write; null: standard output."""
    format: str = one_of("auto", "text", "jsonl", DOCUMENT_FORMATS)
    """Read and write plain lines, JSON lines with scores, or a document; auto follows the ending of
    ``input``. ``text`` and ``jsonl`` write one line for each input line. ``po`` needs the extra
    ``po``."""
    nbest: int = number(1, at_least=1, at_most=10_000)
    """Number of translations of each line, best first. More than 1 needs ``format=jsonl``; with
    ``sampling`` they are in random order."""
    engine: str = one_of("auto", ENGINES)
    """Translate with CTranslate2, which is faster on a CPU, or with PyTorch; auto chooses. ``auto``
    chooses CTranslate2 on a CPU where it is installed and supports the model and the settings, and
    otherwise torch; their translations are the same, apart from ties and rounding."""
    compute_type: str = one_of(*COMPUTE_TYPES)
    """Compute in float32, or faster and less precisely; auto takes bfloat16 on GPUs that have it,
    else float32. ``fast`` uses int8 where CTranslate2 supports the job, otherwise bfloat16 where
    the hardware is fast at it, otherwise float32; unless it is float32, some translations and all
    scores change slightly. int8 needs CTranslate2, float16 a GPU."""
    split: str = one_of("none", SPLIT_WRAPPERS)
    """Translate whole lines, or the sentences of each line one by one. ``sentences`` needs the
    extra ``sentences``."""
    markup: str = one_of("text", MARKUP_WRAPPERS)
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
    """Score the translations in this file, one per input line, instead of translating."""
    alignment: bool = False
    """Add word alignments to the output. Needs ``format=jsonl``."""
    cache_dir: str = "~/.cache/transformer_mt"
    """Folder for converted models that cannot be stored with the model. ``~/.cache`` is
    ``$XDG_CACHE_HOME`` where that is set."""
    # Every field of DecodeConfig; written out, because type checkers cannot see generated fields.
    beam_size: int | None = None
    length_penalty: float | None = None
    max_extra_tokens: int | None = None
    max_source_tokens: int | None = None
    batch_tokens: int | None = DecodeConfig.batch_tokens
    min_length: int = DecodeConfig.min_length
    max_length: int | None = DecodeConfig.max_length
    no_repeat_ngram: int = DecodeConfig.no_repeat_ngram
    sampling: bool = DecodeConfig.sampling
    temperature: float = DecodeConfig.temperature
    top_k: int = DecodeConfig.top_k
    top_p: float = DecodeConfig.top_p
    seed: int = DecodeConfig.seed

    def __post_init__(self) -> None:
        require_given(bool(self.model), "no model given: set model=FOLDER (see --help)")
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
            for key, used in (
                ("prefix", self.prefix is not None),
                ("alignment", self.alignment),
                ("nbest", self.nbest > 1),
                ("sampling", self.sampling),
            ):
                require(not used, f"{key} cannot be used with score, which does not translate")
        for setting, used in (
            (f"split={self.split}", self.split != "none"),
            (f"markup={self.markup}", self.markup != "text"),
            (f"format={self.document_format}", self.document_format is not None),
        ):
            for key in ("prefix", "score", "alignment") if used else ():
                message = f"{key} applies to whole lines: it cannot be used with {setting}"
                require(getattr(self, key) in (None, False), message)

    @property
    def document_format(self) -> str | None:
        """Format of the document (``DOCUMENT_FORMATS``); None if lines are translated."""
        if self.format == "auto":
            return DOCUMENT_ENDINGS.get(Path(self.input or "").suffix.lower())
        return self.format if self.format in DOCUMENT_FORMATS else None


@dataclass(kw_only=True, frozen=True)
class EvaluateJob(Checked):
    """Settings of ``mt-eval``: either a model folder, or hypotheses with references."""

    program: ClassVar = "mt-eval"
    sentences: ClassVar = ("attention",)
    outputs: ClassVar = ("report", "attention_output")  # settings of files to write

    model: str | None = None
    """Model folder, or ``hf://ORG/NAME[@REVISION]``, whose own test set is translated and scored.
    ``testset``, ``subset`` or ``references`` select another set."""
    subset: str | None = one_of("test", "valid", default=None)
    """Score the model on its own test set, or on its validation set to choose settings. null:
    test."""
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
    """Files of translations to score, one for each system; the first is the baseline of the
    comparison."""
    references: list[str] = field(default_factory=list)
    """Files of reference translations; several files give each line several references."""
    source: str | None = None
    """File of source sentences; needed to detect untranslated lines."""
    testset: str | None = None
    """Score on this test set of sacreBLEU, such as ``wmt14/full``, instead of ``source`` and
    ``references``."""
    langs: str | None = None
    """Language pair of ``testset``, such as ``en-de``; null: that of ``tag``, or of the model."""
    tag: str | None = None
    """Tag of the lines of ``source`` or ``testset``. The lines of the model's own sets have their
    own."""
    tgt_lang: str | None = None
    """Language of the hypotheses, such as ``de``; adds BLEU by the paper's protocol."""
    metrics: list[str] | None = one_of(METRICS, SOURCE_METRICS, default=None)
    """Compute these metrics. null: bleu, chrf and ter. ``ppl`` is the perplexity of the references
    under the model, per subword."""
    protocols: list[str] | None = one_of(PROTOCOLS, default=None)
    """Add BLEU by other protocols, on their own scales. null: chosen to fit the model. ``paper``:
    tokenised, compounds split (Table 2); ``lowercase_tokens``: published Multi30k scores."""
    bootstrap: int | None = number(None, at_least=0, at_most=10_000_000)
    """Resamples for 95% intervals and the paired bootstrap test; null: 1000 when systems are
    compared or a report is written, otherwise 0."""
    comet_model: str = "Unbabel/wmt22-comet-da"
    """COMET model: its name, or a checkpoint file."""
    robustness: bool = False
    """Also score the model with each kind of noise on all source lines. The kinds are those of
    ``data.augment``; the metrics are bleu and chrf unless ``metrics`` is set."""
    report: str | None = None
    """Write an HTML report here: scores, charts, training curves and every sentence."""
    attention: str | None = None
    """Show the attention weights of the translation of this sentence."""
    attention_output: str | None = None
    """Write the attention weights here, as an HTML page (``.html``) or an image (``.png``)."""
    format: str = one_of("text", "json")
    """Print tables, or JSON."""
    device: str = one_of("auto", "cpu", "cuda")
    """Translate on this kind of device; auto takes the GPU if there is one."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.tgt_lang is not None:
            require_language("tgt_lang", self.tgt_lang)
        require(self.metrics != [], "metrics is empty: set at least one, e.g. metrics=[bleu]")
        require_given(
            bool(self.model) != bool(self.hypotheses),
            "set either model=FOLDER, or 'hypotheses=[FILE]' with 'references=[FILE]'",
        )
        systems = len(self.hypotheses)
        message = f"report: its charts show at most 5 systems, not {systems}"
        require(self.report is None or systems <= 5, message)
        self._check_test_set()
        self._check_attention()
        self._check_robustness()

    def _check_robustness(self) -> None:
        if not self.robustness:
            return
        require(bool(self.model), "robustness=true translates: set model=FOLDER, not hypotheses")
        for key in ("report", "attention", "bootstrap"):
            message = f"{key} cannot be used with robustness=true, which prints one table of scores"
            require(getattr(self, key) is None, message)
        for name in self.metrics or []:
            message = f"metrics: {name} cannot be used with robustness=true"
            require(name not in SOURCE_METRICS, message)

    def _check_test_set(self) -> None:
        for key in ("hypotheses", "references"):
            paths = getattr(self, key)
            require(len(set(map(expand_user, paths))) == len(paths), f"{key} lists a file twice")
        require(
            bool(self.model) or "ppl" not in (self.metrics or []),
            "metrics: ppl is the perplexity of a model: set model=FOLDER",
        )
        for key in () if self.model else ("subset", "step", "beam_size", "length_penalty", "tag"):
            require(getattr(self, key) is None, f"{key} needs model=FOLDER")
        for key in () if self.model else ("engine", "compute_type"):
            require(getattr(self, key) == "auto", f"{key} needs model=FOLDER")
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
        require_given(
            bool(self.references) or bool(self.testset),
            "hypotheses need references: set 'references=[FILE]' or testset=NAME",
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
        output = self.attention_output
        if self.attention is None:
            message = 'attention_output needs a sentence: set attention="…"'
            require(output is None, message)
            return
        require(bool(self.model), "attention needs a model: set model=FOLDER")
        require(bool(self.attention.strip()), "attention is an empty sentence")
        require(
            output is not None or bool(self.report),
            "attention needs an output: set attention_output=FILE or report=FILE",
        )
        require(
            output is None or Path(output).suffix in (".html", ".png"),
            f"attention_output={output} must end in .html, for a page, or .png, for an image",
        )


@dataclass(kw_only=True, frozen=True)
class ExportJob(Checked):
    """Settings of ``mt-export``."""

    program: ClassVar = "mt-export"

    model: str = ""
    """Model folder, or ``hf://ORG/NAME[@REVISION]``; required."""
    format: str = one_of(EXPORT_FORMATS, default="")
    """Write the model for this program or library; required. ``transformers``: a folder that
    Hugging Face transformers loads without this package. ``ctranslate2``: a folder that CTranslate2
    loads. ``argos``: a package that Argos Translate and LibreTranslate install. ``hub``: the files
    that a translation needs and a model card, to upload to the Hugging Face Hub."""
    output: str = ""
    """Folder to write; required. It must be new or empty."""
    compute_type: str | None = one_of("float32", "bfloat16", "int8", "float16", default=None)
    """Store the weights in this type, for ``format=ctranslate2`` and ``argos``. null: float32, for
    argos int8."""

    def __post_init__(self) -> None:
        require_given(bool(self.model), "no model given: set model=FOLDER (see --help)")
        formats = "|".join(EXPORT_FORMATS)
        require_given(bool(self.format), f"no format given: set format={formats}")
        super().__post_init__()
        require_given(bool(self.output), "no output given: set output=FOLDER")
        require(
            self.compute_type is None or self.format in QUANTIZED_FORMATS,
            f"compute_type={self.compute_type} applies to "
            f"format={' and '.join(QUANTIZED_FORMATS)} only",
        )
