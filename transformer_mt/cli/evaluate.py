"""``mt-eval``: scores of a model folder, or of files of hypotheses and references."""

import json
import sys
from pathlib import Path

from transformer_mt import checkpoint as ckpt
from transformer_mt import distributed
from transformer_mt.cli import app
from transformer_mt.config import EvaluateJob
from transformer_mt.data.corpus import read_pairs
from transformer_mt.data.normalization import Normalizer
from transformer_mt.data.text import read_lines
from transformer_mt.decode.translator import Translator
from transformer_mt.errors import InputError
from transformer_mt.evaluate import metrics
from transformer_mt.evaluate.metrics import Score


def main() -> None:
    """Entry point of ``mt-eval``."""
    app.main("evaluate", EvaluateJob, run)


def run(job: EvaluateJob) -> None:
    """Scores and prints."""
    if job.model is not None:
        systems = {job.model: _score_model(Path(job.model).expanduser(), job.device)}
    else:
        systems = _score_files(job)
    if job.format == "json":
        _print_json(systems)
        return
    for name, scores in systems.items():
        if len(systems) > 1:
            print(f"{name}:")
        print(metrics.to_text(scores))


def _score_model(folder: Path, device: str) -> list[Score]:
    model, tokenizer, job = ckpt.load_model(folder)
    if not job.data.test:
        raise InputError(f"{folder} was trained without a test set (data.test)")
    data = job.data
    pairs = list(read_pairs(data.test, src_lang=data.src_lang, tgt_lang=data.tgt_lang))
    model.to(distributed.pick_device(device))
    translator = Translator(model, tokenizer, job.decode, Normalizer.of(data))
    hypotheses = translator.translate([pair.src for pair in pairs])
    return metrics.score_all(
        hypotheses,
        [[pair.tgt for pair in pairs]],
        tgt_lang=data.tgt_lang,
        normalization=data.normalization,
    )


def _score_files(job: EvaluateJob) -> dict[str, list[Score]]:
    references = {path: list(read_lines(path)) for path in job.references}
    source = {} if job.source is None else {job.source: list(read_lines(job.source))}
    systems = {}
    for path in job.hypotheses:
        hypotheses = list(read_lines(path))
        metrics.check_line_counts({path: hypotheses, **references, **source})
        for lines in source.values():
            copies = sum(
                h.strip() == s.strip() != "" for h, s in zip(hypotheses, lines, strict=True)
            )
            _warn(path, copies, len(lines), "equal to their source")
        empty = sum(not line.strip() for line in hypotheses)
        _warn(path, empty, len(hypotheses), "empty")
        systems[path] = metrics.score_all(
            hypotheses, list(references.values()), tgt_lang=job.tgt_lang
        )
    return systems


def _warn(path: str, count: int, total: int, what: str) -> None:
    if count:
        print(f"mt-eval: {path}: {count:,} of {total:,} lines are {what}", file=sys.stderr)


def _print_json(systems: dict[str, list[Score]]) -> None:
    """One system: sacrebleu's list of scores. Several: the list of each, with its name."""
    lists = {name: json.loads(metrics.to_json(scores)) for name, scores in systems.items()}
    if len(lists) == 1:
        (content,) = lists.values()
    else:
        content = [{"system": name, "scores": scores} for name, scores in lists.items()]
    print(json.dumps(content, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
