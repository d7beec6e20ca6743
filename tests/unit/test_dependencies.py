"""``pyproject.toml``, ``uv.lock`` and ``scripts/constraints.txt`` name the same dependencies."""

import re
import tomllib
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from support.paths import ROOT

PROJECT = "transformer-mt"
CHOSEN_BY_LIB_SH = ("torch", "triton", "cuda-", "nvidia-")
AGAIN = "run scripts/lock"


def read(name: str) -> dict[str, Any]:
    return tomllib.loads((ROOT / name).read_text())


def locked() -> dict[str, dict[str, Any]]:
    packages = read("uv.lock")["package"]
    by_name = {package["name"]: package for package in packages}
    assert len(by_name) == len(packages), "two versions of a package: constraints.txt needs markers"
    return by_name


def requirements(entries: list[str | dict[str, str]], groups: dict[str, Any]) -> set[Requirement]:
    """The requirements of a dependency group and of the groups that it includes."""
    found = set()
    for entry in entries:
        if isinstance(entry, str):
            found.add(Requirement(entry))
        else:
            found |= requirements(groups[entry["include-group"]], groups)
    return found


def comparable(found: set[Requirement]) -> set[tuple[str, str]]:
    return {(canonicalize_name(one.name), str(one.specifier)) for one in found}


def recorded(entries: list[dict[str, str]]) -> set[tuple[str, str]]:
    return comparable({Requirement(one["name"] + one.get("specifier", "")) for one in entries})


def test_lock_is_of_this_pyproject() -> None:
    pyproject = read("pyproject.toml")
    metadata = locked()[PROJECT]["metadata"]
    project, groups = pyproject["project"], pyproject["dependency-groups"]
    extras = project["optional-dependencies"]
    direct = {Requirement(one) for one in sum(extras.values(), project["dependencies"])}
    assert recorded(metadata["requires-dist"]) == comparable(direct), AGAIN
    assert set(metadata["provides-extras"]) == set(extras), AGAIN
    assert {name: recorded(one) for name, one in metadata["requires-dev"].items()} == {
        name: comparable(requirements(one, groups)) for name, one in groups.items()
    }, AGAIN


def installed_by_scripts(packages: dict[str, dict[str, Any]]) -> set[str]:
    """The names of all packages that the project and its group dev need."""
    project = packages[PROJECT]
    queue = [*project["dependencies"], *project["dev-dependencies"]["dev"]]
    names: set[str] = set()
    while queue:
        needed = queue.pop()
        package = packages[needed["name"]]
        optional = package.get("optional-dependencies", {})
        for extra in needed.get("extra", []):
            queue += [one for one in optional.get(extra, []) if one["name"] not in names]
        if needed["name"] not in names:
            names.add(needed["name"])
            queue += package.get("dependencies", [])
    return names


def test_constraints_are_those_of_the_lock() -> None:
    lines = (ROOT / "scripts" / "constraints.txt").read_text().splitlines()
    constraints = {line for line in lines if not line.startswith("#")}
    packages = locked()
    assert constraints == {
        f"{name}=={packages[name]['version']}"
        for name in installed_by_scripts(packages)
        if not name.startswith(CHOSEN_BY_LIB_SH)
    }, AGAIN


def test_scripts_install_the_locked_torch() -> None:
    script = (ROOT / "scripts" / "lib.sh").read_text()
    dockerfile = (ROOT / "Dockerfile").read_text()
    version = locked()["torch"]["version"]
    assert re.findall(r"MT_TORCH_VERSION:-(.*?)}", script) == [version]
    assert re.findall(r"ARG TORCH=(.*)", dockerfile) == [version]


@pytest.mark.parametrize("name", ["uv.lock", "scripts/constraints.txt"])
def test_only_the_public_index(name: str) -> None:
    urls = re.findall(r"[a-z]+://[^/\"\s]+", (ROOT / name).read_text())
    assert set(urls) <= {"https://pypi.org", "https://files.pythonhosted.org"}
