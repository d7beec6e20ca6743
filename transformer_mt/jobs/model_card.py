"""The model card: ``README.md`` of a run folder, with the metadata that the Hugging Face Hub reads.

The end of a run writes it; it is exported with the model.
"""

import logging
import re
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from importlib import resources
from itertools import chain
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from huggingface_hub import EvalResult, ModelCard, ModelCardData

from transformer_mt import hub_models, run_layout
from transformer_mt.config import ModelConfig, SourceConfig, TrainJob
from transformer_mt.config.languages import base_language, language_name
from transformer_mt.conversion import transformers_model
from transformer_mt.data.subwords.tokenizer import vocabulary_files
from transformer_mt.decode import engine
from transformer_mt.errors import InputError
from transformer_mt.evaluation.scores import Score
from transformer_mt.files import atomic, write_text
from transformer_mt.registries import CURVES
from transformer_mt.training.metrics_log import read_records

MARKER = "<!-- Written by mt-train. Remove this line, and mt-train keeps your changes. -->"
_LIBRARY = "transformer_mt"
_METRIC_TYPES = {"BLEU": "bleu", "chrF2": "chrf", "TER": "ter"}
_SHAPE_CHECKS = {
    "ctranslate2": engine.check_supported,
    "transformers": transformers_model.check_supported,
}
"""Formats of ``mt-export`` that the card has examples for, and the checks of a model's shape."""
_HELD_OUT = "pairs held out of the training data"
"""Name of a set without sources of its own (``data.valid_pairs``, ``data.test_pairs``)."""

log = logging.getLogger(__name__)


def write_model_card(
    job: TrainJob,
    cleaning: dict[str, Any],
    starts: Sequence[dict[str, Any]],
    end: dict[str, Any],
    scores: Sequence[Score],
) -> None:
    """Writes the card and the picture of the training curves; keeps a card without ``MARKER``.

    Args:
        job: The job of the finished run.
        cleaning: Report of what cleaning dropped: ``CleaningReport.to_json``.
        starts: Starts of the run, as in ``run.json``.
        end: Its end, as in ``run.json``.
        scores: Scores of the test set; empty if there is none.
    """
    run_dir = Path(job.run_dir)
    path = run_dir / run_layout.MODEL_CARD
    if path.exists() and MARKER.encode() not in path.read_bytes():
        log.info("%s has been edited and is kept", path)
        return
    image: bytes | None = resolve_name(CURVES)(read_records(run_dir))
    if image is not None:
        with atomic(run_dir / run_layout.CURVES) as temporary:
            temporary.write_bytes(image)
    name, source = job.card.name or run_dir.name, job.train.init_from or ""
    # Not a start after the last update, which only made the model, the scores or the card again.
    training = [start for start in starts if start["step"] < end["step"]]
    start = (training or starts)[-1]
    template = resources.files("transformer_mt.jobs") / "templates" / "model_card.md.jinja"
    card = ModelCard.from_template(
        _metadata(job, name, scores),
        template_str=template.read_text(encoding="utf-8"),
        marker=MARKER,
        title=name,
        model=f"{hub_models.PREFIX}{name}" if "/" in name else name,
        languages=list(map(language_name, job.data.languages())),
        date=end["time"][:10],
        version=start["version"],
        job=job,
        source_tags=job.data.tags,
        formats=_formats(job.model),
        segments=sum({score.tag: score.segments for score in scores}.values()),
        tokenizers=[path.name for path in vocabulary_files(run_dir)],
        scores=scores,
        training_data=_names(job.data.train),
        validation_data=_names(job.data.valid) or _HELD_OUT,
        test_data=_names(job.data.test) or _HELD_OUT,
        started_from=source if source.startswith(hub_models.PREFIX) else Path(source).name,
        cleaning=cleaning,
        end=end,
        averaged_updates=[f"{step:,}" for step in end["averaged_updates"]],
        start=start,
        hardware=_hardware(start),
        curves=None if image is None else run_layout.CURVES,
    )
    write_text(path, f"{card}\n")


def _formats(model: ModelConfig) -> list[str]:
    """Formats of other libraries that can represent a model of this shape."""
    formats = []
    for name, check in _SHAPE_CHECKS.items():
        with suppress(InputError):
            check(model)
            formats.append(name)
    return formats


def _metadata(job: TrainJob, name: str, scores: Sequence[Score]) -> ModelCardData:
    """The metadata that the Hub reads."""
    data = job.data
    languages = data.languages()
    directions = {languages, *data.tags.values()}
    results = [
        EvalResult(
            task_type="translation",
            task_name=f"Translation {'-'.join(languages)}"
            if len(directions) == 1
            else "Translation",
            metric_type=_METRIC_TYPES[score.name],
            metric_name=score.label,
            metric_value=round(score.score, 2),
            metric_args={"signature": score.signature, "segments": score.segments},
            **_dataset([source for source in data.test if (source.tag or "") == score.tag]),
        )
        for score in scores
        if score.name in _METRIC_TYPES  # other kinds of BLEU would be taken for this one
    ]
    sources = [*data.train, *data.valid, *data.test]
    ids = dict.fromkeys(source.hub for source in sources if source.hub and _is_hub_id(source))
    return ModelCardData(
        language=[*dict.fromkeys(map(base_language, chain(languages, *data.tags.values())))],
        license=job.card.license,
        library_name=_LIBRARY,
        pipeline_tag="translation",
        tags=["translation", "transformer"],
        datasets=[*ids] or None,
        base_model=hub_models.repository(job.train.init_from),
        metrics=list(dict.fromkeys(result.metric_type for result in results)) or None,
        model_name=name,
        eval_results=results or None,
    )


def _is_hub_id(source: SourceConfig) -> bool:
    return source.hub is not None and "hub" not in source.paths and not source.hub.startswith("/")


def _dataset(sources: Sequence[SourceConfig]) -> dict[str, Any]:
    """Identification of a test set in ``model-index``."""
    if len(sources) == 1 and _is_hub_id(sources[0]):
        return {
            "dataset_type": sources[0].hub,
            "dataset_name": _names(sources),
            "dataset_config": sources[0].config,
            "dataset_split": sources[0].split,
            "dataset_revision": sources[0].revision,
        }
    name = _names(sources) or "test"
    return {"dataset_type": re.sub(r"[^\w.-]+", "-", name).strip("-"), "dataset_name": name}


def _names(sources: Sequence[SourceConfig]) -> str:
    """Short names of data sources, without the folders of this machine."""
    names = []
    for source in sources:
        name = "built-in sample" if source.sample else source.short_name
        part = source.sample or source.langs or source.split
        names.append(f"{name} ({part})" if part else name)
    return ", ".join(dict.fromkeys(names))


def _hardware(start: dict[str, Any]) -> str:
    counts = Counter(device["device"] for device in start["devices"])
    names = ", ".join(f"{count} × {name}" for name, count in counts.items())
    threads = start["threads"]
    return names if start.get("cuda") else f"{names}, {threads} thread{'s' * (threads != 1)}"
