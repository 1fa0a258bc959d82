"""All imports of the two packages, found in their sources without running them."""

from __future__ import annotations

import ast
import functools
import gc
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import aioloader

__all__ = (
    "PACKAGES",
    "SOURCES",
    "Import",
    "all_imports",
    "imports_of",
    "names_in",
    "names_looked_up",
    "tree_of",
    "where",
)

PACKAGES = Path(aioloader.__file__).parent.parent
"""Folder that contains the two packages: the checkout, or that of an installed wheel."""


class Import(NamedTuple):
    """One import statement of one module.

    Attributes:
        importer: the module that contains the statement.
        module: the imported module.
        lazy: the statement is in a function and runs when that is called.
        annotation: the statement is under ``if TYPE_CHECKING`` and never runs.
        line: line number of the statement.
    """

    importer: str
    module: str
    lazy: bool
    annotation: bool
    line: int


def _module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGES).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


SOURCES = {
    _module_name(p): p for name in ("aioloader", "recordio") for p in sorted((PACKAGES / name).rglob("*.py"))
}


@functools.cache
def tree_of(module: str) -> ast.Module:
    """Return the syntax tree of a module, which takes long to parse, three times as long with garbage collection."""
    collects = gc.isenabled()
    gc.disable()
    try:
        return ast.parse(SOURCES[module].read_text(encoding="utf-8"))
    finally:
        if collects:
            gc.enable()


def imports_of(importer: str) -> Iterator[Import]:
    """Yield all imports of a module, those in functions and those for annotations included."""

    def visit(node: ast.AST, lazy: bool, annotation: bool) -> Iterator[Import]:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(importer, alias.name, lazy, annotation, node.lineno)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{importer}: relative imports hide the path; write the full name"
            base = node.module or ""
            for alias in node.names:
                full = f"{base}.{alias.name}"
                yield Import(importer, full if full in SOURCES else base, lazy, annotation, node.lineno)
        elif isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            for child in node.body:
                yield from visit(child, lazy, True)
            for child in node.orelse:
                yield from visit(child, lazy, annotation)
        elif not isinstance(node, ast.expr):
            inside = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
            for child in ast.iter_child_nodes(node):
                yield from visit(child, lazy or inside, annotation)

    return visit(tree_of(importer), False, False)


@functools.cache
def all_imports() -> list[Import]:
    """Return all imports of all modules."""
    return [found for importer in SOURCES for found in imports_of(importer)]


def where(found: Import) -> str:
    """Return the place of an import, and what it imports."""
    return f"{SOURCES[found.importer].relative_to(PACKAGES)}:{found.line} imports {found.module}"


def _nodes(importer: str, pattern: str) -> Iterator[ast.AST]:
    """Yield all nodes of a module whose text has the pattern."""
    if re.search(pattern, SOURCES[importer].read_text(encoding="utf-8")):
        yield from ast.walk(tree_of(importer))


@functools.cache
def names_in(importer: str) -> frozenset[str]:
    """Return the modules whose names are strings of a module: it may import them when they are used.

    Of ``import_module(f"package.{name}")`` these are all modules of the package. The packages that a module is in are
    left out.
    """
    found: set[str] = set()
    for node in _nodes(importer, r"""["'](aioloader|recordio)\.|import_module"""):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if "." in node.value and node.value in SOURCES and not importer.startswith(f"{node.value}."):
                found.add(node.value)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
            name = node.args[0] if node.func.attr == "import_module" else None
            if isinstance(name, ast.JoinedStr) and len(name.values) == 2:
                start = getattr(name.values[0], "value", "")
                found.update(module for module in SOURCES if f"{module.rpartition('.')[0]}." == start)
    return frozenset(found)


def names_looked_up(importer: str) -> Iterator[tuple[str | None, int]]:
    """Yield the module names that calls of ``import_module`` and ``find_spec`` contain, and their lines.

    A name is None where it is not a constant, and the part up to the first expression where it is an f-string.
    """
    for node in _nodes(importer, "import_module|find_spec|__import__"):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", None)
        if called not in ("import_module", "find_spec", "__import__"):
            continue
        name = node.args[0]
        if isinstance(name, ast.JoinedStr):
            name = name.values[0]
        constant = isinstance(name, ast.Constant) and isinstance(name.value, str)
        yield name.value if constant else None, node.lineno
