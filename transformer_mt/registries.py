"""The extension points: names that settings accept, and where each is implemented.

This is the only list of these names: settings are checked against it, ``--help`` and
``transformer_mt/config/README.md`` print it. A value is a path, ``package.module:name``, which
``pkgutil.resolve_name`` imports when it is used, so that ``--help`` needs no PyTorch. What has one
implementation is its path.
"""

Registry = dict[str, str]
"""Name → path of its implementation."""

ENGINES: Registry = {
    "torch": "transformer_mt.decode.engines.torch_engine:build",
    "ctranslate2": "transformer_mt.decode.engines.converted_models:build",
}
"""``engine``: functions that build an ``Engine`` from an ``EngineRequest``."""

PAIR_NOISE: Registry = {
    "standard": "transformer_mt.contrib.robustness.noise:some_noise",
    "punctuation": "transformer_mt.contrib.robustness.noise:less_punctuation",
}
"""``data.augment``: ``protocols.PairNoise``."""

PHRASE_PAIRS = "transformer_mt.contrib.phrases.phrase_pairs:phrase_pairs"
"""``data.phrase_pairs``: a function of sentence pairs that returns pairs of phrases."""

TRACKERS: Registry = {
    "tensorboard": "transformer_mt.training.trackers:TensorBoardTracker",
    "trackio": "transformer_mt.contrib.trackers.wandb_tracker:TrackioTracker",
    "wandb": "transformer_mt.contrib.trackers.wandb_tracker:WandbTracker",
    "mlflow": "transformer_mt.contrib.trackers.mlflow_tracker:MlflowTracker",
}
"""``trackers``: ``protocols.Tracker``; each needs the package of its name."""

MARKUP = "transformer_mt.contrib.documents.markup:MarkupTranslator"
"""``markup=keep`` of mt-translate, and documents: wraps the ``Translator`` as a
``protocols.LineTranslator``, which adds what it cannot place to a list, if there is one."""

DOCUMENT_FORMATS: Registry = {
    "html": "transformer_mt.contrib.documents.html_document:HtmlDocument",
    "po": "transformer_mt.contrib.documents.po_document:PoDocument",
    "xliff": "transformer_mt.contrib.documents.xliff_document:XliffDocument",
}
"""``format`` of mt-translate, of documents: ``protocols.Document``."""

DOCUMENT_ENDINGS = {
    ".html": "html",
    ".htm": "html",
    ".xhtml": "html",
    ".xlf": "xliff",
    ".xliff": "xliff",
    ".sdlxliff": "xliff",
    ".mqxliff": "xliff",
    ".po": "po",
    ".pot": "po",
}
"""Ending of a file → the format that ``format=auto`` chooses."""

SOURCE_READERS: Registry = {
    "src+tgt": "transformer_mt.data.text.sources:read_text",
    "tsv": "transformer_mt.data.text.sources:read_tsv",
    "jsonl": "transformer_mt.data.text.sources:read_jsonl",
    "parquet": "transformer_mt.data.text.arrow_tables:read_parquet",
    "csv": "transformer_mt.contrib.corpora.csv_table:read_csv",
    "tmx": "transformer_mt.contrib.corpora.tmx:read_tmx",
    "po": "transformer_mt.contrib.corpora.localization:read_po",
    "xliff": "transformer_mt.contrib.corpora.localization:read_xliff",
    "hub": "transformer_mt.data.text.arrow_tables:read_hub",
    "testset": "transformer_mt.data.text.sources:read_testset",
    "mtdata": "transformer_mt.data.text.sources:read_mtdata",
    "sample": "transformer_mt.data.text.sources:read_sample",
}
"""Kinds of data source, by ``SourceConfig.kind``: ``protocols.Reader``."""

MTDATA = "transformer_mt.contrib.corpora.mtdata:download"
"""The function that downloads a corpus of mtdata: the paths of its two files of lines."""

COOCCURRENCE = "transformer_mt.contrib.embeddings.cooccurrence:embeddings"
"""The function that computes the embeddings of ``train.initial_embeddings=cooccurrence``."""

SCHEDULES: Registry = {
    "noam": "transformer_mt.training.optimizer:noam",
    "inverse_sqrt": "transformer_mt.training.optimizer:inverse_sqrt",
    "linear": "transformer_mt.training.optimizer:linear",
}
"""``schedule.name``: functions that give the learning rate of an update."""

METRICS: Registry = {
    "bleu": "transformer_mt.evaluation.metrics:bleu",
    "chrf": "transformer_mt.evaluation.metrics:chrf",
    "chrf++": "transformer_mt.evaluation.metrics:chrf_plus_plus",
    "ter": "transformer_mt.evaluation.metrics:ter",
    "paper": "transformer_mt.evaluation.metrics:PaperBLEU",
}
"""``metrics`` of mt-eval that compare texts. Functions of the target language that return a metric
of sacreBLEU."""

SOURCE_METRICS: Registry = {
    "comet": "transformer_mt.evaluation.source_metrics:comet",
    "ppl": "transformer_mt.evaluation.source_metrics:perplexity",
}
"""``metrics`` of mt-eval that also read the source."""

VALIDATION_METRICS: Registry = {"bleu": METRICS["bleu"], "chrf": METRICS["chrf"]}
"""Metrics of validation translations, which ``train.best_by`` may name; higher is better."""

REPORT = "transformer_mt.contrib.report.pages:report_page"
"""``report`` of mt-eval: a function of the ``Evaluation`` that returns a page as HTML."""

CURVES = "transformer_mt.contrib.report.charts:curve_image"
"""The picture of the model card: a function of the records of ``metrics.jsonl`` that returns a PNG,
or None if there is nothing to draw."""

EXPORT_FORMATS: Registry = {
    "transformers": "transformer_mt.jobs.export:to_transformers",
    "ctranslate2": "transformer_mt.jobs.export:to_ctranslate2",
    "argos": "transformer_mt.contrib.argos.argos_package:write_package",
    "browser": "transformer_mt.contrib.browser.browser_folder:write_folder",
    "hub": "transformer_mt.jobs.export:to_hub",
}
"""``format`` of mt-export: ``protocols.ExportFormat``."""

QUANTIZED_FORMATS = ("ctranslate2", "argos")
"""Formats of mt-export that have a ``compute_type``."""

MARIAN_IMPORT = "transformer_mt.conversion.marian_import:import_model"
"""Converts a MarianMT model of Hugging Face transformers to a model folder."""
