"""Alias for imports: one copy of each module of this package under any name, and placeholders for those for training.

After ``sys.modules["mxnet"] = aioloader.mxnet`` Python would load ``mxnet.base`` from this package's files a second
time, with different classes, which no ``except`` and no ``isinstance`` matches.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from importlib.machinery import ModuleSpec
from typing import TYPE_CHECKING, Any

from aioloader.mxnet.outside import ELSEWHERE, OutsideModule, outside_module

if TYPE_CHECKING:
    from types import ModuleType

_OWN = __name__.rpartition(".")[0]


class ImportAlias:
    """Finder for `sys.meta_path`: a module of this package under another name is the module itself."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return the spec to import `fullname`; None if this finder is not responsible for it."""
        del path, target
        parent, _, name = fullname.rpartition(".")
        package = vars(sys.modules[parent]) if isinstance(sys.modules.get(parent), type(sys)) else {}
        own = package.get("__name__")
        if not isinstance(own, str) or not f"{own}.".startswith(f"{_OWN}."):
            return None
        module = f"{own}.{name}"
        if name in package.get("_OUTSIDE", ()) or isinstance(sys.modules[parent], OutsideModule):
            outside: Any = _OutsideLoader(module)
            return ModuleSpec(fullname, outside, is_package=True)
        module = ELSEWHERE.get(module, module)
        if module == fullname or importlib.util.find_spec(module) is None:
            return None
        alias: Any = _AliasLoader(module)  # whose base class would cost an import
        return ModuleSpec(fullname, alias)


class _AliasLoader:
    """Loader that returns a module which is already known under its own name."""

    def __init__(self, own: str) -> None:
        self._own = own

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        del spec
        module = importlib.import_module(self._own)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec  # the import system has put the other name's there


class _OutsideLoader:
    """Loader of the placeholder for a module."""

    def __init__(self, own: str) -> None:
        self._own = own

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        del spec
        return outside_module(self._own)

    def exec_module(self, module: ModuleType) -> None:
        spec: Any = ModuleSpec(self._own, None, is_package=True)
        module.__spec__ = spec  # the import system has put the other name's there
