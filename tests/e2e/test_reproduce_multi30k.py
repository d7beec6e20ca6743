"""``scripts/reproduce_multi30k``: what it starts, and the table of what was found.

In the place of ``mt-train`` stands a script that writes what the table is read from. The training
itself is ``mt-train experiment=multi30k_tiny``, and tested as such.
"""

import os
import statistics
import subprocess
import sys
from pathlib import Path

from support.paths import ROOT

SCRIPT = ROOT / "scripts/reproduce_multi30k"
BLEU = {1: 41.25, 2: 40.5, 3: 41.9}
STAND_IN = f"""#!{sys.executable}
import json, os, sys
from pathlib import Path
settings = dict(argument.split("=", 1) for argument in sys.argv[1:])
with open(os.environ["STARTED"], "a") as file:
    print(*sys.argv[1:], file=file)
folder, seed = Path(settings["run_dir"]), int(settings["train.seed"])
state = folder / "checkpoints/step_00000800/state.json"
state.parent.mkdir(parents=True)
state.write_text(json.dumps({{"seconds": 600.0 * seed}}))
records = [{{"split": "train", "step": s, "tokens_per_second": s * 10}} for s in (400, 800)]
records.insert(1, {{"split": "valid", "step": 400}})
(folder / "metrics.jsonl").write_text("".join(json.dumps(r) + "\\n" for r in records))
scores = {{"BLEU (lower-case tokens)": {BLEU}[seed], "BLEU": 8.0 + seed, "chrF2": 50.0}}
rows = [dict(name=n, score=v, signature=f"of {{n}}", segments=1000) for n, v in scores.items()]
(folder / "test.json").write_text(json.dumps(rows))
"""


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    bin_ = folder / "bin"
    bin_.mkdir()
    (bin_ / "mt-train").write_text(STAND_IN)
    (bin_ / "mt-train").chmod(0o755)
    (bin_ / "python").symlink_to(sys.executable)
    environment = {**os.environ, "PATH": f"{bin_}{os.pathsep}{os.environ['PATH']}"}
    environment |= {"RUNS": str(folder / "my runs"), "STARTED": str(folder / "started")}
    command = [str(SCRIPT), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)


def cells(out: str) -> list[list[str]]:
    rows = [line.strip("| ").split("|") for line in out.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows]


def test_table_has_each_seed_and_their_mean(tmp_path: Path) -> None:
    done = run(tmp_path, "seeds=1,2,3", "train.max_steps=800", "data.mirror=/a b")
    assert done.returncode == 0, done.stderr
    runs = tmp_path / "my runs"
    assert (tmp_path / "started").read_text().splitlines() == [
        f"experiment=multi30k_tiny run_dir={runs}/multi30k_tiny_seed{seed} "
        f"cache_dir={runs}/cache train.seed={seed} train.max_steps=800 data.mirror=/a b"
        for seed in (1, 2, 3)
    ]
    header, _, *rows = cells(done.stdout)
    assert header[:4] == ["seed", "updates", "minutes", "tokens/s"]
    assert header[4:] == ["BLEU tokens", "sacreBLEU", "chrF2"]
    for seed, row in zip((1, 2, 3), rows, strict=False):
        expected = [str(seed), "800", str(10 * seed), "6,000", f"{BLEU[seed]:.2f}"]
        assert row == [*expected, f"{8 + seed:.2f}", "50.00"]
    mean, deviation = statistics.mean(BLEU.values()), statistics.stdev(BLEU.values())
    assert rows[3][0] == "mean ± s.d."
    assert rows[3][4] == f"{mean:.2f} ± {deviation:.2f}"
    assert rows[3][6] == "50.00 ± 0.00"
    assert "BLEU tokens: of BLEU (lower-case tokens), 1000 segments" in done.stdout
