"""``scripts/bench/data.py`` at a tiny size: it reports every figure, and both pipelines agree."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.paths import ROOT, SHARED_DATA

pytestmark = [
    pytest.mark.skipif(not SHARED_DATA.is_dir(), reason="no ../shared/data"),
    pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="no /proc"),
]


@pytest.mark.slow
def test_a_tiny_run(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "scripts/bench/data.py"), "--pairs", "2000"]
    command += ["--vocab", "1000", "--workers", "1"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 100
    rows = re.findall(r"^\| (\w+) +\|(.*)\|$", done.stdout, re.MULTILINE)
    assert [name for name, _ in rows] == ["pipeline", "ours", "datasets"]
    for _, row in rows[1:]:
        seconds, rate, *_ = (float(cell.replace(",", "")) for cell in row.split("|"))
        assert rate == pytest.approx(2000 / seconds, rel=0.1)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("bench")] == []
