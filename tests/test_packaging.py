"""Tests of the package's metadata: version, extras, Pythons, and the bounds of the oldest environment."""

from __future__ import annotations

import re
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

import aioloader

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]

PYTHONS = [
    found[1]
    for each in PROJECT["classifiers"]
    if (found := re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", each))
]

# For contributors.
FOR_DEVELOPERS = {"test", "dev", "docs"}


def _extras_of(requirement: str) -> set[str]:
    found = re.fullmatch(r"aioloader\[([a-z0-9,-]+)\]", requirement)
    return set(found[1].split(",")) if found else set()


def test_the_version_is_one() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+(?:\.dev\d+|rc\d+)?", aioloader.__version__)
    assert "version" in PROJECT["dynamic"]
    try:
        installed = metadata.version("aioloader")
    except metadata.PackageNotFoundError:
        pytest.skip("aioloader is run from a checkout that is not installed")
    assert installed == aioloader.__version__


def test_all_is_every_extra_of_users() -> None:
    named = {name for requirement in EXTRAS["all"] for name in _extras_of(requirement)}
    assert named == set(EXTRAS) - FOR_DEVELOPERS - {"all"}


def test_extras_name_extras_that_exist() -> None:
    for requirements in EXTRAS.values():
        for requirement in requirements:
            assert _extras_of(requirement) <= set(EXTRAS), requirement


def test_every_requirement_has_a_lower_bound() -> None:
    for requirement in (*PROJECT["dependencies"], *(each for some in EXTRAS.values() for each in some)):
        if not _extras_of(requirement) and not requirement.startswith("types-"):
            assert re.match(r"[A-Za-z0-9_.-]+(\[[a-z,]+\])?\s*(>=|==)\s*\d", requirement), requirement


@pytest.mark.parametrize(
    ("python", "system", "machine", "installed"),
    [
        ("3.11", "linux", "x86_64", True),
        ("3.13", "linux", "x86_64", True),
        ("3.14", "linux", "x86_64", False),
        ("3.12", "linux", "aarch64", False),
        ("3.12", "darwin", "arm64", False),
        ("3.12", "win32", "AMD64", False),
    ],
)
def test_turbojpeg_is_required_only_where_it_has_a_wheel(
    python: str, system: str, machine: str, installed: bool
) -> None:
    requirements = pytest.importorskip("packaging.requirements")
    (needed,) = (requirements.Requirement(each) for each in EXTRAS["turbojpeg"])
    place = {"python_version": python, "sys_platform": system, "platform_machine": machine}
    assert needed.marker.evaluate(place) is installed


def test_the_oldest_environment_is_that_of_the_lower_bounds() -> None:
    bounds = dict(re.match(r"([a-z-]+)>=([0-9.]+)", each).groups() for each in PROJECT["dependencies"])
    lines = (ROOT / ".ci" / "lower-bounds.txt").read_text(encoding="utf-8").splitlines()
    pinned = dict(line.split("==") for line in lines if "==" in line and not line.startswith("#"))
    assert set(bounds) <= set(pinned)
    for name, bound in bounds.items():
        own, given = ([int(part) for part in version.split(".")] for version in (bound, pinned[name]))
        length = max(len(own), len(given))
        own, given = ([*parts, *[0] * (length - len(parts))] for parts in (own, given))
        assert given == own, f"{name}: {bound} is promised, {pinned[name]} is tested"


def test_pythons_are_those_from_the_oldest_on() -> None:
    assert PROJECT["requires-python"] == f">={PYTHONS[0]}"
    first, last = (int(each.partition(".")[2]) for each in (PYTHONS[0], PYTHONS[-1]))
    assert [f"3.{minor}" for minor in range(first, last + 1)] == PYTHONS


def test_workflows_name_files_that_exist_and_every_python() -> None:
    yaml = pytest.importorskip("yaml")
    texts = {path.stem: path.read_text() for path in (ROOT / ".github" / "workflows").iterdir()}
    jobs = {name: yaml.safe_load(text)["jobs"] for name, text in texts.items()}
    named = {word for text in texts.values() for word in re.findall(r"(?:\.ci|tests|docs)/[\w./-]+\w", text)}
    assert {".ci/run", ".ci/release"} <= named
    assert [word for word in named if not (ROOT / word).exists()] == []
    assert jobs["tests"]["linux"]["strategy"]["matrix"]["python"] == PYTHONS
    steps = jobs["release"]["build"]["steps"]
    assert sorted(steps[1]["with"]["python-version"].split()) == PYTHONS
