"""``scripts/bench/data.py`` at a tiny size: it reports every figure, and all pipelines agree."""

import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.paths import ROOT, SHARED_DATA

bench_data = importlib.import_module("data")

pytestmark = [
    pytest.mark.skipif(not SHARED_DATA.is_dir(), reason="no ../shared/data"),
    pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="no /proc"),
]


@pytest.mark.slow
def test_a_tiny_run(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "scripts/bench/data.py"), "--pairs", "2000"]
    command += ["--plain-pairs", "1000", "--plan-pairs", "50000", "--vocab", "1000"]
    command += ["--workers", "1", "--folder", str(tmp_path), "--json", str(tmp_path / "json")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 100
    assert done.stdout.startswith("$ python ")
    rows = re.findall(r"^\| ([a-z][\w., ]*?) +\| +([\d,]+) \|", done.stdout, re.MULTILINE)
    assert rows == [
        ("ours", "2,000"),
        ("ours", "1,000"),
        ("datasets.map", "1,000"),
        ("map, batched", "1,000"),
        ("plan only", "50,000"),
    ]
    figures = json.loads((tmp_path / "json").read_text())
    part = [row for row in figures if row["pairs"] == 1000]
    assert len({row["kept"] for row in part}) == 1
    assert {path.name for path in tmp_path.iterdir()} == {"json"}
    for row in figures[:-1]:
        # Two bytes a token; 16 of offsets a pair; a little for the rest.
        if row["name"] == "ours":
            content = 2 * row["prepare_tokens"] + 16 * row["kept"]
            assert content < row["prepare_bytes"] < content + 10_000
