"""The model card: ``README.md`` of a run folder, with the metadata that the Hugging Face Hub reads.

Everything in it is read from the folder. Facts that are not there, as in a folder downloaded from
the Hub, are left out.
"""

import logging
import re
from collections import Counter
from collections.abc import Sequence
from importlib import resources
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import transformer_mt
from transformer_mt import hub_models, model_folder, run_layout
from transformer_mt.config import SourceConfig, TrainJob
from transformer_mt.data.subwords.tokenizer import vocabulary_files
from transformer_mt.data.text.languages import base_language
from transformer_mt.evaluation.scores import Score
from transformer_mt.files import atomic, read_json, write_text
from transformer_mt.training.metrics_log import read_records

if TYPE_CHECKING:
    from huggingface_hub import ModelCardData

MARKER = "<!-- Written by mt-train. Remove this line, and mt-train keeps your changes. -->"
_METRIC_TYPES = {"BLEU": "bleu", "chrF2": "chrf", "TER": "ter"}

log = logging.getLogger(__name__)


def write_model_card(folder: Path, scores: Sequence[Score] | None, name: str | None = None) -> None:
    """Writes the card and the picture of the training curves.

    An edited card, which lacks ``MARKER``, is kept.

    Args:
        folder: The run folder.
        scores: Scores of the test set, if there are any.
        name: Name of the model unless ``card.name`` is set; None for that of the folder.

    Raises:
        InputError: The configuration is missing or damaged.
    """
    from transformer_mt.evaluation import charts  # loads matplotlib: a second

    path = folder / run_layout.MODEL_CARD
    if path.exists() and MARKER not in path.read_text(encoding="utf-8", errors="replace"):
        log.info("%s has been edited and is kept", path)
        return
    image = charts.curve_image(read_records(folder))
    if image is not None:
        with atomic(folder / run_layout.CURVES) as temporary:
            temporary.write_bytes(image)
    job = model_folder.read_config(folder)
    name = job.card.name or name or folder.resolve().name
    write_text(path, _render(folder, job, name, scores or []))


def _render(folder: Path, job: TrainJob, name: str, scores: Sequence[Score]) -> str:
    """The text of the card; huggingface_hub has parsed its front matter."""
    from huggingface_hub import ModelCard  # takes a fraction of a second

    info = _read_object(folder / run_layout.RUN_INFO)
    start = info["starts"][-1] if info.get("starts") else {}
    counts = Counter(device["device"] for device in start.get("devices", ()))
    latest = sorted((folder / run_layout.CHECKPOINTS).glob("step_*"))[-1:]
    states = [_read_object(path / run_layout.CHECKPOINT_STATE) for path in latest]
    source = job.train.init_from or ""
    template = resources.files("transformer_mt.jobs") / "templates" / "model_card.md.jinja"
    card = ModelCard.from_template(
        _metadata(job, name, scores),
        template_str=template.read_text(encoding="utf-8"),
        marker=MARKER,
        title=name,
        repository=name if "/" in name else f"ORG/{name}",
        version=start.get("version", transformer_mt.__version__),
        job=job,
        source_tags=job.data.tags,
        segments=sum({score.tag: score.segments for score in scores}.values()),
        tokenizers=[path.name for path in vocabulary_files(folder)],
        scores=scores,
        training_data=_names(job.data.train),
        validation_data=_names(job.data.valid),
        test_data=_names(job.data.test),
        started_from=source if source.startswith(hub_models.PREFIX) else Path(source).name,
        cleaning=_read_object(folder / run_layout.CLEANING_REPORT),
        state=states[0] if states else {},
        averaged_updates=[f"{step:,}" for step in info.get("end", {}).get("averaged_updates", ())],
        start=start,
        hardware=", ".join(f"{count} × {device}" for device, count in counts.items()),
        curves=run_layout.CURVES if (folder / run_layout.CURVES).exists() else None,
    )
    return f"{card}\n"


def _read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file; empty if it is missing or damaged."""
    try:
        return dict(read_json(path, {}))
    except (OSError, ValueError):
        return {}


def _metadata(job: TrainJob, name: str, scores: Sequence[Score]) -> "ModelCardData":
    """The metadata that the Hub reads."""
    from huggingface_hub import EvalResult, ModelCardData

    data = job.data
    languages = data.languages(None)
    directions = {languages, *data.tags.values()}
    task = f"Translation {'-'.join(languages)}" if len(directions) == 1 else "Translation"
    results = [
        EvalResult(
            task_type="translation",
            task_name=task,
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
    ids = dict.fromkeys(str(source.hub) for source in sources if _is_on_hub(source))
    return ModelCardData(
        language=[*dict.fromkeys(map(base_language, chain(languages, *data.tags.values())))],
        license=job.card.license,
        library_name="transformer_mt",
        pipeline_tag="translation",
        tags=["translation", "transformer"],
        datasets=[*ids] or None,
        base_model=hub_models.repository(job.train.init_from),
        metrics=list(dict.fromkeys(result.metric_type for result in results)) or None,
        model_name=name,
        eval_results=results or None,
    )


def _is_on_hub(source: SourceConfig) -> bool:
    """Whether a source is a dataset of the Hub, and not a local copy of one."""
    return source.hub is not None and not source.hub.startswith("/")


def _dataset(sources: Sequence[SourceConfig]) -> dict[str, Any]:
    """Identification of a test set in ``model-index``."""
    name = _names(sources) or "test"
    if len(sources) != 1 or not _is_on_hub(sources[0]):
        return {"dataset_type": re.sub(r"[^\w.-]+", "-", name).strip("-"), "dataset_name": name}
    return {
        "dataset_type": sources[0].hub,
        "dataset_name": name,
        "dataset_config": sources[0].config,
        "dataset_split": sources[0].split,
        "dataset_revision": sources[0].revision,
    }


def _names(sources: Sequence[SourceConfig]) -> str:
    """Short names of data sources, without the folders of this machine."""
    names = []
    for source in sources:
        name = "built-in sample" if source.sample else source.name
        name = Path(name).name if name.startswith("/") else name
        part = source.sample or source.langs or source.split
        names.append(f"{name} ({part})" if part else name)
    return ", ".join(dict.fromkeys(names))
