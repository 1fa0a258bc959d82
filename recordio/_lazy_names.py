"""Names of a package that are imported when they are first used (PEP 562), so that importing the package is cheap."""

from __future__ import annotations

import importlib
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def lazy_names(
    package: str, names_of: Mapping[str, str], others: str = ""
) -> tuple[Callable[[str], Any], Callable[[], list[str]], tuple[str, ...]]:
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` of a package, whose modules are names of it too.

    Type checkers need an import of each name ``as`` itself under TYPE_CHECKING.

    Args:
        package: its ``__name__``.
        names_of: for each module, the names that the package has from it, separated by spaces.
        others: names of modules, and of what the package defines, that are public too.
    """
    module_of = {name: module for module, names in names_of.items() for name in names.split()}

    def get(name: str) -> Any:
        if name in module_of:
            value = getattr(importlib.import_module(module_of[name]), name)
            setattr(sys.modules[package], name, value)
            return value
        full = f"{package}.{name}"
        if name.startswith("_") or find_spec(full) is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return importlib.import_module(full)

    public = tuple(sorted((*module_of, *others.split())))
    return get, lambda: sorted({*vars(sys.modules[package]), *public}), public
