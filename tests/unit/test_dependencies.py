"""``pyproject.toml`` names every package that is imported, and pip's constraints are ``uv.lock``'s.

CI asks uv whether ``uv.lock`` is that of ``pyproject.toml``.
"""

import ast
import sys
import tomllib
from importlib.metadata import packages_distributions
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from support.imports import imported_names
from support.paths import ROOT

PROJECT = "transformer-mt"
AGAIN = "run scripts/lock"


def read(name: str) -> dict[str, Any]:
    return tomllib.loads((ROOT / name).read_text())


def locked() -> dict[str, list[dict[str, Any]]]:
    """The packages of the lock by name; several versions where extras need different ones."""
    by_name: dict[str, list[dict[str, Any]]] = {}
    for package in read("uv.lock")["package"]:
        by_name.setdefault(package["name"], []).append(package)
    return by_name


def requirements(entries: list[Any], groups: dict[str, Any]) -> set[tuple[str, str]]:
    """Names and versions of a dependency group and of the groups that it includes."""
    found: set[tuple[str, str]] = set()
    for entry in entries:
        if isinstance(entry, str):
            one = Requirement(entry)
            found.add((canonicalize_name(one.name), str(one.specifier)))
        else:
            found |= requirements(groups[entry["include-group"]], groups)
    return found


def imports(source: str) -> set[str]:
    """Names of the top-level modules that a source text imports, anywhere in it."""
    return {name.partition(".")[0] for _, name in imported_names(ast.parse(source))} - {""}


@pytest.mark.parametrize(("folder", "group"), [("transformer_mt", []), ("tests", ["test"])])
def test_imported_packages_are_declared(folder: str, group: list[str]) -> None:
    """A package that is installed only because another needs it may be missing tomorrow."""
    pyproject = read("pyproject.toml")
    project, groups = pyproject["project"], pyproject["dependency-groups"]
    entries = sum(project["optional-dependencies"].values(), project["dependencies"])
    entries += [entry for name in group for entry in groups[name]]
    declared = {name for name, _ in requirements(entries, groups)}
    files = list((ROOT / folder).rglob("*.py"))
    found = set().union(*(imports(path.read_text(encoding="utf-8")) for path in files))
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


def test_constraints_are_those_of_the_lock() -> None:
    lines = (ROOT / "scripts" / "constraints.txt").read_text().splitlines()
    constraints = dict(line.split("==") for line in lines if not line.startswith("#"))
    packages = locked()
    for name, version in constraints.items():
        assert version in {package["version"] for package in packages[name]}, AGAIN
    project = packages[PROJECT][0]
    direct = {one["name"] for one in project["dependencies"] + project["dev-dependencies"]["dev"]}
    direct.remove("torch")  # scripts/lib.sh chooses it
    assert direct <= constraints.keys(), AGAIN
