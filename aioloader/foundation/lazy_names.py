"""Names of a package that are imported when they are first used (PEP 562), so that importing the package is cheap."""

from __future__ import annotations

import importlib
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def lazy_names(
    package: str, names_of: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the functions ``__getattr__`` and ``__dir__`` of a package, whose modules are names of it too.

    Args:
        package: its ``__name__``.
        names_of: for each module, the names that the package has from it, separated by spaces.
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

    def names() -> list[str]:
        own = vars(sys.modules[package])
        return sorted({*own, *own["__all__"]})

    return get, names
