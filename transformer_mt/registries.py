"""The extension points: names that settings accept, and where each is implemented.

This is the only list of these names: settings are checked against it, ``--help`` and
``transformer_mt/config/README.md`` print it. A value is a path, ``package.module:name``, which
``pkgutil.resolve_name`` imports when it is used, so that ``--help`` needs no PyTorch.
"""

Registry = dict[str, str]
"""Name → path of its implementation."""

PUBLIC: Registry = {
    "evaluate_robustness": "transformer_mt.contrib.robustness.noise_scores:evaluate_robustness",
}
"""Public names of ``transformer_mt`` that ``contrib/`` implements."""

ENGINES: Registry = {
    "torch": "transformer_mt.decode.engines.torch_engine:build",
    "ctranslate2": "transformer_mt.decode.engines.converted_models:build",
}
"""``engine``: functions that build an ``Engine`` from an ``EngineRequest``."""

SOURCE_NOISES: Registry = {
    "standard": "transformer_mt.contrib.robustness.noise:STANDARD",
}
"""``data.augment``: ``protocols.SourceNoise``."""

TRACKERS: Registry = {
    "tensorboard": "transformer_mt.training.trackers:TensorBoardTracker",
    "trackio": "transformer_mt.contrib.trackers.wandb_tracker:TrackioTracker",
    "wandb": "transformer_mt.contrib.trackers.wandb_tracker:WandbTracker",
    "mlflow": "transformer_mt.contrib.trackers.mlflow_tracker:MlflowTracker",
}
"""``trackers``: ``protocols.Tracker``; each needs the package of its name."""

MARKUP_WRAPPERS: Registry = {
    "keep": "transformer_mt.contrib.documents.markup:MarkupTranslator",
}
"""``markup`` of mt-translate: ``protocols.LineWrapper``."""

SPLIT_WRAPPERS: Registry = {
    "none": "transformer_mt.contrib.documents.sentences:whole_lines",
    "sentences": "transformer_mt.contrib.documents.sentences:SentenceTranslator",
}
"""``split`` of mt-translate: ``protocols.LineWrapper``, around that of ``markup``."""

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
    "tmx": "transformer_mt.contrib.corpora.tmx:read_tmx",
    "hub": "transformer_mt.data.text.arrow_tables:read_hub",
    "testset": "transformer_mt.data.text.sources:read_testset",
    "sample": "transformer_mt.data.text.sources:read_sample",
}
"""Kinds of data source, by ``SourceConfig.kind``: ``protocols.Reader``."""

SOURCE_DOWNLOADS: Registry = {
    "mtdata": "transformer_mt.contrib.corpora.mtdata:MtdataCorpus",
}
"""Kinds of data source that are downloaded and become another kind: ``protocols.Download``."""

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

PROTOCOLS: Registry = {
    "paper": "transformer_mt.evaluation.metrics:paper_bleu",
}
"""``protocols`` of mt-eval: kinds of BLEU, as functions like those of ``METRICS``."""

REPORTS: Registry = {
    "robustness": "transformer_mt.contrib.robustness.noise_scores:show_robustness",
    "report": "transformer_mt.contrib.report.reports:write_report",
    "attention": "transformer_mt.contrib.report.reports:show_attention",
}
"""Settings of mt-eval that write files or print other scores, of which the first one given is
called: ``protocols.Report``."""

MODEL_CARD_PICTURES: Registry = {
    "curves": "transformer_mt.contrib.report.charts:curve_image",
}
"""Pictures of the model card: ``protocols.Picture``."""

EXPORT_FORMATS: Registry = {
    "transformers": "transformer_mt.jobs.export:to_transformers",
    "ctranslate2": "transformer_mt.jobs.export:to_ctranslate2",
    "argos": "transformer_mt.contrib.argos.argos_package:write_package",
    "hub": "transformer_mt.jobs.export:to_hub",
}
"""``format`` of mt-export: ``protocols.ExportFormat``."""

QUANTIZED_FORMATS: Registry = {name: EXPORT_FORMATS[name] for name in ("ctranslate2", "argos")}
"""Formats of mt-export that have a ``compute_type``."""

IMPORT_FORMATS: Registry = {
    "marian": "transformer_mt.conversion.marian_import:import_model",
}
"""Models of Hugging Face transformers that are used like model folders, by ``model_type``."""
