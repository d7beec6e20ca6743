"""A picture of score against translation speed: each model of one or more reports is a point.

    python scripts/recipes/speed_picture.py OUTPUT.png runs/fast/report.json …

A model has a point for each beam size of its report, which is written beside it. Speed is in words
per second on one thread. The area of a point is proportional to the size of the model.
"""

import json
import statistics
from pathlib import Path

from recipe import argument_parser, main

from transformer_mt import files
from transformer_mt.errors import InputError


def picture() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("output", type=Path, metavar="OUTPUT", help="picture to write")
    parser.add_argument("reports", type=Path, nargs="+", metavar="REPORT", help="report.json")
    options = parser.parse_args()
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullFormatter

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.subplots()
    drawn = set[str]()
    for path in options.reports:
        try:
            models = json.loads(path.read_text("utf-8"))["models"]
        except (OSError, ValueError, KeyError) as error:
            raise InputError(f"{path} is not a report: {error}") from None
        for row in models:
            name = row["model"] + row["label"].removeprefix(Path(row["exported"]).name)
            if name in drawn:  # a teacher of several students
                continue
            drawn.add(name)
            beams = sorted(int(key.split()[1]) for key in row if key.startswith("bleu "))
            speeds = [statistics.median(row[f"words_per_second 1 {beam}"]) for beam in beams]
            scores = [row[f"bleu {beam}"] for beam in beams]
            label = f"{name}, {row['megabytes']:.0f} MB"
            (line,) = axes.plot(speeds, scores, linewidth=1, alpha=0.6, label=label)
            axes.scatter(speeds, scores, s=4 * row["megabytes"], color=line.get_color(), alpha=0.6)
            for beam, x, y in zip(beams, speeds, scores, strict=True):
                axes.annotate(str(beam), (x, y), (0, 4), textcoords="offset points", fontsize=7)
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(lambda speed, _: f"{speed:,.0f}")
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.legend(fontsize=8)
    axes.set_xlabel("source words per second on one thread (beside each point: beam size)")
    axes.set_ylabel("BLEU")
    axes.grid(visible=True, which="both", alpha=0.3)
    target = files.expand_user(options.output).resolve()
    with files.atomic(target) as temporary:
        figure.savefig(temporary, format=target.suffix.removeprefix(".") or "png", dpi=150)


if __name__ == "__main__":
    main(picture)
