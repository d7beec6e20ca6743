"""The picture of the README: perplexity, learning rate and cross-attention of a quick start.

python scripts/recipes/quickstart_picture.py runs/quickstart .github/images/quickstart.png
"""

import argparse
from pathlib import Path

import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

from transformer_mt import Translator
from transformer_mt.contrib.report.attention import compute_attention
from transformer_mt.training.metrics_log import read_records

COLOURS = LinearSegmentedColormap.from_list("weights", ["#f5f6f8", "#0d3b8c"])
SENTENCE = "The old teacher does not want to sell the house."


def label(piece: str) -> str:
    """A piece without the mark of a word's beginning, which would look like a line of the axis."""
    return piece.replace("▁", " ").strip() or "␣"


parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
parser.add_argument("run", type=Path, help="run folder")
parser.add_argument("output", type=Path, help="PNG to write")
options = parser.parse_args()

records = read_records(options.run)
train = [record for record in records if record["split"] == "train"]
valid = [record for record in records if record["split"] == "valid"]
attention = compute_attention(Translator.load(options.run, engine="torch"), SENTENCE)
cross = attention.kinds[0]

figure = Figure(figsize=(11.5, 4.2), layout="constrained")
left, middle, right = figure.subplots(1, 3, width_ratios=(1, 1, 1.5))
left.plot([r["step"] for r in train], [r["ppl"] for r in train], label="training")
left.plot([r["step"] for r in valid], [r["ppl"] for r in valid], "o", label="validation")
for r in valid:
    left.annotate(f"BLEU {r['bleu']:.1f}", (r["step"], r["ppl"]), (0, 9), ha="center", fontsize=9,
                  textcoords="offset points")  # fmt: skip
left.set(title="Perplexity", xlabel="update", yscale="log")
left.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
left.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
left.yaxis.set_minor_formatter(NullFormatter())
left.legend(frameon=False)
middle.plot([r["step"] for r in train], [1000 * r["lr"] for r in train])
middle.set(title="Learning rate × 1,000", xlabel="update", ylim=(0, None))
for axes in (left, middle):
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.3)
weights = np.mean(cross.layers[-1], axis=0).reshape(len(cross.queries), len(cross.keys)) / 1000
drawn = right.imshow(weights, vmin=0, vmax=1, cmap=COLOURS, aspect="auto")
right.set_title("Cross-attention: last layer, mean of the heads")
right.set_xticks(range(len(cross.keys)), map(label, cross.keys), rotation=60, fontsize=9)
right.set_yticks(range(len(cross.queries)), map(label, cross.queries), fontsize=9)
right.set(xlabel="attended token", ylabel="predicted token")
figure.colorbar(drawn, ax=right, label="attention weight")
figure.savefig(options.output, dpi=100)
print(f"{attention.sentence}\n{attention.translation}")
