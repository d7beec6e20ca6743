"""``scripts/bench/translation_memory.py`` at a tiny size, with a memory of translate-toolkit."""

import os
import re
import subprocess
import sys

import pytest
from support.paths import ROOT, SHARED_DATA


@pytest.mark.slow
@pytest.mark.skipif(not SHARED_DATA.is_dir(), reason="no ../shared/data")
def test_a_tiny_run() -> None:
    script = ROOT / "scripts/bench/translation_memory.py"
    code = "import translate.storage.tmx"  # elsewhere: scripts/bench has a translate.py
    if subprocess.run([sys.executable, "-P", "-c", code], capture_output=True).returncode:
        pytest.skip("translate-toolkit is not installed")
    command = [sys.executable, str(script), "--units", "2000", "--megabytes", "2"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert "2,000 units: the corpora are equal" in done.stdout
    rows = re.findall(r"^\| (\w+\.tmx) +\| +(\d+) \| +([\d,]+) \|", done.stdout, re.MULTILINE)
    assert [row[0] for row in rows] == ["a.tmx", "large.tmx"]
    assert rows[0][2] == "2,000"
    assert int(rows[1][2].replace(",", "")) % 2000 == 0
