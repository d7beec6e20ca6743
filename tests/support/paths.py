"""Folders that tests refer to."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""The checkout."""
SCRIPTS = ROOT / "scripts"
SHARED_DATA = ROOT.parent / "shared/data"
"""Real English–German text, beside the checkout where there is any; tests of it skip otherwise."""
MULTI30K = SHARED_DATA / "multi30k"
