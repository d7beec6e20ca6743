"""``odd_input.py`` with the committed model: one line out for each line in."""

import shutil
from pathlib import Path

import odd_input
import pytest
from support.paths import ROOT

MODEL = ROOT / "tests/e2e/fixtures/run_2_3"


@pytest.mark.slow
def test_output_has_as_many_lines_as_the_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = shutil.copytree(MODEL, tmp_path / "model")
    status = odd_input.main(["--model", str(model), "engine=torch", "beam_size=1"])
    assert status == 0, capsys.readouterr().out
