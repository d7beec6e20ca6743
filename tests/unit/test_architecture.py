"""Architecture: imports point down without circles, at the top of a file, to declared packages.

Every rule is a function from source text to violations, so that it is tested on text that breaks
it before it is trusted on the package.
"""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from importlib.metadata import packages_distributions
from os.path import commonprefix
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from support.paths import ROOT

import transformer_mt

PACKAGE = ROOT / "transformer_mt"
SOURCES = sorted(PACKAGE.rglob("*.py"))

# Lowest first. A layer may import those below it; training and decode do not import each other.
LAYERS = [
    {"errors"},
    {"console", "files", "registries", "run_layout"},
    {"batch", "config", "hub_models"},
    {"protocols"},
    {"kernels"},
    {"distributed"},
    {"model"},
    {"data"},
    {"checkpoint"},
    {"model_folder"},
    {"training", "decode"},
    {"evaluation"},
    {"conversion"},
    {"jobs"},
    {"cli"},
    {"contrib"},
]
LAYER = {folder: number for number, folders in enumerate(LAYERS) for folder in folders}

OF_CONTRIB = {"jinja2", "matplotlib"}
"""Packages that only features of contrib need, so that nobody else waits for them."""

Violations = Iterator[tuple[int, str]]


def imported_names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, dotted name) of everything imported; ``from a import b`` gives ``a.b``.

    There are no relative imports (Ruff's TID252).
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def within(name: str, parent: str) -> bool:
    return name == parent or name.startswith(f"{parent}.")


def upward_imports(tree: ast.AST, module: str) -> Violations:
    """Imports of a higher layer, of a neighbour in the same one, or of a package of contrib."""
    folder = module.partition(".")[2].split(".")[0]
    # The public API imports from all layers, but not from contrib, the highest.
    layer = LAYER.get(folder, 0) if folder else LAYER["contrib"]
    for line, name in imported_names(tree):
        top, _, inside = name.partition(".")
        other = inside.split(".")[0]
        internal = top == "transformer_mt" and other in LAYER and other != folder
        if (internal and LAYER[other] >= layer) or (top in OF_CONTRIB and folder != "contrib"):
            yield line, f"{folder} imports {name}, which is not below it"


CONTRIB = "transformer_mt.contrib"


def core_names_contrib(tree: ast.AST, module: str) -> Violations:
    """Names of modules of contrib in a file of the core other than the registries."""
    if within(module, CONTRIB) or module == "transformer_mt.registries":
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and str(node.value).startswith(f"{CONTRIB}."):
            yield node.lineno, f"{node.value!r} belongs in transformer_mt/registries.py"


OF_COMMANDS = ["console", "files"]
"""What a command of contrib also uses: the boundary of errors, atomic outputs, and the log."""


def contrib_imports(tree: ast.AST, module: str) -> Violations:
    """Imports of contrib beyond the public names, the settings, protocols and ``OF_COMMANDS``.

    The folders of contrib do not import each other.
    """
    if not within(module, CONTRIB):
        return
    public = [f"transformer_mt.{name}" for name in transformer_mt.__all__]
    public += ["transformer_mt.config", "transformer_mt.protocols"]
    public += [f"transformer_mt.{name}" for name in OF_COMMANDS]
    own = ".".join(module.split(".")[:3])
    for line, name in imported_names(tree):
        if within(name, "transformer_mt") and not any(within(name, at) for at in [*public, own]):
            yield line, f"{name} is not public"


WITHOUT_TORCH = [
    *("cli.compose", "cli.command_line", "cli.main", "config", "config.checks"),
    *("data.cleaning.filters", "data.subwords.tokenizer", "data.text.lines"),
    *("data.text.normalization", "data.text.sources", "data.text.arrow_tables"),
    *("decode.engines.converted_models", "decode.engines.ctranslate2_engine"),
    *("decode.engine", "decode.lines.sentences", "decode.translator"),
    *("console", "distributed", "errors", "evaluation.metrics", "evaluation.source_metrics"),
    *("files", "hub_models", "jobs.evaluate", "jobs.translate"),
    *("kernels.hardware", "model_folder", "registries"),
]
"""Modules that ``--help``, a translation by CTranslate2 and scores of files load. PyTorch takes
longer to load than they take to run, so they import it, and what else is slow, where it is used.
All other modules import what they need at their top."""

OPTIONAL = {"ctranslate2", "polib", "py3langid"}
"""Packages of extras, which are imported where they are used."""


def deferred_imports(tree: ast.AST, module: str) -> Violations:
    """Imports inside functions, without a reason."""
    if module.removeprefix("transformer_mt.") in WITHOUT_TORCH or module == "transformer_mt":
        return
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for line, name in imported_names(function):
                if name.split(".")[0] not in OPTIONAL:
                    yield line, f"{name} belongs at the top of the file"


def test_what_must_start_fast_loads_no_torch() -> None:
    modules = ", ".join(f"transformer_mt.{name}" for name in WITHOUT_TORCH)
    code = f"import sys, {modules}; print('torch' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "False\n"


Rule = Callable[[ast.AST, str], Violations]
parsed = cache(ast.parse)


def violations(rule: Rule, source: str, path: Path) -> list[str]:
    """The rule's findings in one file, ``path`` being relative to the root."""
    module = ".".join(path.with_suffix("").parts).removesuffix(".__init__")
    found = rule(parsed(source), module)
    return [f"{path}:{line}: {what}" for line, what in sorted(set(found))]


@pytest.mark.parametrize(
    "rule", [upward_imports, core_names_contrib, contrib_imports, deferred_imports]
)
def test_package_keeps_the_rule(rule: Rule) -> None:
    assert len(SOURCES) > len(LAYER)
    found = [
        violation
        for path in SOURCES
        for violation in violations(rule, path.read_text("utf-8"), path.relative_to(ROOT))
    ]
    assert not found, "\n".join(found)


def circles(sources: Mapping[Path, str]) -> list[str]:
    """Circles of imports among the files and folders of each folder, one for each such folder.

    Args:
        sources: Text of each file, by its path.
    """
    names = {path.relative_to(ROOT).with_suffix("").parts: path for path in sources}
    imports: dict[tuple[str, ...], dict[str, set[str]]] = {}
    for name, path in names.items():
        if name == ("transformer_mt", "__init__"):  # the public API, which imports from all layers
            continue
        for _, imported in imported_names(parsed(sources[path])):
            parts = imported.split(".")
            modules = [(*parts[:n], *end) for n in range(len(parts), 0, -1) for end in INSIDE]
            other = next((module for module in modules if module in names), name)
            common = commonprefix([name, other])  # noqa: RUF071, of tuples
            if other != name:
                edges = imports.setdefault(common, {})
                edges.setdefault(name[len(common)], set()).add(other[len(common)])
    found = []
    for folder, edges in imports.items():
        try:
            TopologicalSorter(edges).prepare()
        except CycleError as error:
            found.append(f"{'/'.join(folder)}: {' ← '.join(error.args[1])}")
    return found


INSIDE: list[tuple[str, ...]] = [(), ("__init__",)]
"""What may follow a dotted name of a module in the path of its file."""


def test_no_imports_form_a_circle() -> None:
    found = circles({path: path.read_text("utf-8") for path in SOURCES})
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "sources",
    [
        {"p/a.py": "from p import b", "p/b.py": "def f():\n    from p.a import x"},
        {"p/__init__.py": "from p.a import x", "p/a.py": "import p"},
        {"p/a.py": "import q.c", "q/b.py": "from p.d import x", "q/c.py": "", "p/d.py": ""},
        {"a.py": "import b", "b.py": "import c", "c.py": "from a import f"},
    ],
)
def test_a_circle_is_seen(sources: dict[str, str]) -> None:
    assert len(circles({ROOT / path: text for path, text in sources.items()})) == 1


def test_every_module_belongs_to_a_layer() -> None:
    folders = {path.relative_to(PACKAGE).with_suffix("").parts[0] for path in SOURCES}
    assert folders - {"__init__", "__main__"} <= set(LAYER)


@pytest.mark.parametrize(
    ("rule", "path", "source"),
    [
        (upward_imports, "decode/search.py", "from transformer_mt.training.loss import nll"),
        (upward_imports, "training/trainer.py", "from transformer_mt import evaluation"),
        (upward_imports, "cli/main.py", "from transformer_mt.contrib.corpora.tmx import read"),
        (upward_imports, "registries.py", "import transformer_mt.contrib"),
        (upward_imports, "__init__.py", "from transformer_mt.contrib import corpora"),
        (upward_imports, "jobs/train.py", "def f():\n    import matplotlib.pyplot"),
        (core_names_contrib, "data/prepare.py", "x = 'transformer_mt.contrib.corpora.tmx:read'"),
        (contrib_imports, "contrib/a/b.py", "import transformer_mt"),
        (contrib_imports, "contrib/a/b.py", "from transformer_mt.contrib.c import d"),
        (deferred_imports, "training/step.py", "def f():\n    import torch"),
    ],
)
def test_rule_sees_what_breaks_it(rule: Rule, path: str, source: str) -> None:
    assert violations(rule, source, Path("transformer_mt", path))


def test_nothing_is_made_of_the_names_in_a_file() -> None:
    """Ruff finds the other ways to run what a file holds (``pyproject.toml``)."""
    files = [*SOURCES, *(ROOT / "configs").rglob("*.yaml")]
    unsafe = re.compile(r"\b_target_\b|allow_pickle")
    assert not [path for path in files if unsafe.search(path.read_text("utf-8"))]


@pytest.mark.parametrize(("folder", "group"), [("transformer_mt", []), ("tests", ["test"])])
def test_imported_packages_are_declared(folder: str, group: list[str]) -> None:
    """A package that is installed only because another needs it may be missing tomorrow."""
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project, groups = pyproject["project"], pyproject["dependency-groups"]
    entries = sum(project["optional-dependencies"].values(), project["dependencies"])
    entries += [entry for name in group for entry in groups[name]]
    declared = {canonicalize_name(Requirement(entry).name) for entry in entries}
    trees = [parsed(path.read_text("utf-8")) for path in (ROOT / folder).rglob("*.py")]
    found = {name.partition(".")[0] for tree in trees for _, name in imported_names(tree)}
    # Only PyTorch's builds for GPUs have Triton, and install the version that they need.
    own = {"transformer_mt", "triton"}
    if folder == "tests":  # which import each other and scripts by their names
        own |= {path.stem for ours in ("scripts", "tests") for path in (ROOT / ours).rglob("*")}
    distributions = packages_distributions()
    undeclared = {
        name
        for name in found - sys.stdlib_module_names - own
        if declared.isdisjoint(map(canonicalize_name, distributions.get(name, [name])))
    }
    assert {"torch", "numpy", "hydra"} <= found
    assert undeclared == set()
