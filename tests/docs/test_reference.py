"""Tests that the reference has every public name, and that each has a docstring."""

from __future__ import annotations

import ast
import importlib
import re
from functools import lru_cache
from pathlib import Path

import aioloader
from tests.cases import with_cases
from tests.docs.blocks import ROOT

PACKAGES = Path(aioloader.__file__).parents[1]
REFERENCE = ROOT / "docs" / "reference"

MODULES = (
    *("abc", "batchify", "datasets", "errors", "executors", "samplers", "transforms", "transforms.boxes"),
    *(
        "interop.ray",
        "interop.torch",
        "interop.prometheus",
        "interop.opentelemetry",
        "storage.remote",
        "jpeg",
    ),
    *("mxnet.io", "mxnet.recordio", "mxnet.image", "mxnet.gluon.data", "mxnet.gluon.data.vision"),
)
"""Modules of aioloader whose ``__all__`` is public, in addition to the package itself and those of recordio."""

# Submodules, each of which has a page; and names that are not separate objects.
NO_ENTRY = {"abc", "batchify", "samplers", "transforms", "boxes", "cut", "__version__"}


def _file(module: str) -> Path | None:
    base = PACKAGES.joinpath(*module.split("."))
    return next((path for path in (base / "__init__.py", base.with_suffix(".py")) if path.is_file()), None)


def exported(module: str) -> list[str]:
    """Return ``__all__`` of a module, read from its source: some cannot be imported without an extra."""
    path = _file(module)
    assert path is not None, module
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if not isinstance(node, ast.Assign) or "__all__" not in ast.unparse(node.targets[0]):
            continue
        if not isinstance(node.value, ast.Call):
            return list(ast.literal_eval(node.value))
        if ast.unparse(node.value.func) != "lazy_names":  # it is what was imported
            return list(importlib.import_module(module).__all__)
        names_of, *others = map(ast.literal_eval, node.value.args[1:])
        return [name for names in (*names_of.values(), *others) for name in names.split()]
    return []


def _directives() -> list[str]:
    return [
        name
        for path in sorted(REFERENCE.glob("*.md"))
        for name in re.findall(r"^::: ([\w.]+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    ]


@lru_cache
def _documented() -> set[str]:
    found = set()
    for name in _directives():
        found.add(name)
        if _file(name) is not None:
            found |= {f"{name}.{each}" for each in exported(name)}
    return found


def test_nothing_is_in_the_reference_twice() -> None:
    names = _directives()
    assert sorted(names) == sorted(set(names))


@with_cases(
    "module",
    ["aioloader", *(f"aioloader.{name}" for name in MODULES), "recordio", "recordio.aio", "recordio.errors"],
)
def test_every_public_name_has_an_entry(module: str) -> None:
    documented = _documented()
    missing = []
    for name in exported(module):
        places = {f"{module}.{name}"}
        if module == "aioloader":  # the pages of these two have their names
            places |= {f"aioloader.datasets.{name}", f"aioloader.errors.{name}"}
        if name not in NO_ENTRY and not places & documented:
            missing.append(name)
    assert missing == []


def test_the_table_of_names_leads_to_what_there_is() -> None:
    text = (REFERENCE / "index.md").read_text(encoding="utf-8")
    for module in re.findall(r"`(aioloader(?:\.[a-z_]+)+)`", text):
        assert _file(module) or _file(module.rpartition(".")[0]), module
    for name in aioloader.__all__:
        if isinstance(getattr(aioloader, name), type) and issubclass(getattr(aioloader, name), Exception):
            continue  # they have a page
        assert name in NO_ENTRY or f"`aioloader.{name}`" in text or f"`{name}`" in text, name
