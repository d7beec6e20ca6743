"""A feature in contrib costs nobody else anything: the core loads neither it nor its packages."""

import subprocess
import sys

from support.paths import ROOT

LOAD = """
import sys
from importlib import import_module

for name in sys.argv[1:]:
    import_module(name)
packages = {"jinja2", "matplotlib", "sentencex"}
print(*(name for name in sys.modules if name in packages or "transformer_mt.contrib" in name))
"""


def test_the_core_does_not_load_contrib() -> None:
    paths = (path.relative_to(ROOT) for path in (ROOT / "transformer_mt").rglob("[!_]*.py"))
    modules = [".".join(path.with_suffix("").parts) for path in paths]
    core = [name for name in modules if not name.startswith("transformer_mt.contrib.")]
    assert len(core) > 100
    done = subprocess.run(
        [sys.executable, "-c", LOAD, *core], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []
