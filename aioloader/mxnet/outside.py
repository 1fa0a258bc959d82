"""Placeholders for the parts of MXNet for training: they can be imported, named and derived from, and raise when used.

So a library that defines networks next to its datasets can be imported, and its data code runs.

Also MXNet's modules that are other ones here, and an alias for imports: one copy of each module of this package under
any name. After ``sys.modules["mxnet"] = aioloader.mxnet`` Python would load ``mxnet.base`` from this package's files a
second time, with different classes, which no ``except`` and no ``isinstance`` matches.
"""

from __future__ import annotations

import abc
import importlib
import importlib.util
import inspect
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn

from aioloader.mxnet.base import OutsideError

if TYPE_CHECKING:
    from types import FrameType

__all__ = ("ELSEWHERE", "ImportAlias", "OutsideModule", "module_elsewhere", "outside_class", "outside_module")

_OWN = __name__.rpartition(".")[0]

# Modules of MXNet that are other ones here.
ELSEWHERE = {
    f"{_OWN}.{theirs}": f"{_OWN}.{ours}"
    for theirs, ours in (
        *(("image.image", "image"), ("io.io", "io"), ("io.utils", "io.ndarray_iter"), ("rnn.io", "rnn")),
        *(("ndarray.image", "ndarray_image"), ("ndarray.random", "random"), ("ndarray.sparse", "sparse")),
        *(("ndarray.utils", "ndarray_file"), ("gluon.contrib.data.sampler", "gluon.data.sampler")),
    )
}


def module_elsewhere(package: str, name: str) -> ModuleType:
    """Return a module that MXNet's package has under this name.

    Raises:
        AttributeError: it has none.
    """
    full = f"{package}.{name}"
    if full not in ELSEWHERE:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    return importlib.import_module(ELSEWHERE[full])


# Decorators that a module applies when it is imported.
_DECORATORS = frozenset(("add_alias_to", "alias", "register", "register_op", "wrap_performance"))


class _Outside(abc.ABCMeta):  # so that a class may derive from an abstract class as well
    """Kind of the placeholder classes: any use but naming and deriving is an OutsideError."""

    used: str

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        derived = "" if cls.__module__ == __name__ else f", from which {cls.__qualname__} is derived"
        used = f"{cls.used}(){derived}"
        if _importing(sys._getframe(1)):
            return _Made(used)
        raise OutsideError(used)

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("_"):  # attributes that the interpreter and tools read
            raise AttributeError(f"{cls!r} has no attribute {name!r}")
        return _placeholder(f"{cls.used}.{name}")

    def __repr__(cls) -> str:
        if cls.__module__ != __name__:
            return super().__repr__()
        return f"<{cls.used}: training is outside aioloader>"

    def _refuse(cls, *args: Any) -> NoReturn:
        raise OutsideError(cls.used)

    __iter__ = __len__ = __enter__ = __exit__ = __getitem__ = __setitem__ = __add__ = __radd__ = __mul__ = (
        _refuse
    )


def _importing(frame: FrameType) -> bool:
    """Return whether a frame is that of a library's module or class body, such as for the default of an argument."""
    return not frame.f_code.co_flags & inspect.CO_OPTIMIZED and frame.f_globals.get("__name__") != "__main__"


class _Made:
    """Placeholder for the object that a library makes while it is imported; any use is an OutsideError.

    Args:
        used: what was called.
    """

    def __init__(self, used: str) -> None:
        self._used = used

    def __repr__(self) -> str:
        return f"<{self._used}: training is outside aioloader>"

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise OutsideError(self._used)

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):  # attributes that the interpreter and tools read
            raise AttributeError(name)
        raise OutsideError(f"{self._used}.{name}")

    __iter__ = __len__ = __enter__ = __getitem__ = __add__ = __radd__ = __mul__ = __call__


def outside_class(used: str) -> Any:
    """Return the placeholder for a class or function of MXNet.

    Args:
        used: its full name in a script, such as "mx.gluon.Trainer".
    """
    name = used.rpartition(".")[2]
    return _Outside(name, (), {"used": used, "__module__": __name__, "__qualname__": name})


def _placeholder(used: str) -> Any:
    return _decorator if used.rpartition(".")[2] in _DECORATORS else outside_class(used)


def _decorator(*args: Any, **_: Any) -> Any:
    """Return a class or function itself; given names, a decorator that does."""
    return args[0] if args and callable(args[0]) else lambda decorated: decorated


class OutsideModule(ModuleType):
    """Placeholder for a module of MXNet for training. Every name can be imported from it, and raises when used.

    Args:
        name: the full name of the module, in this package.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name, "Part of MXNet for training, which is outside aioloader.")
        self.__path__: list[str] = []  # it may have modules

    def __repr__(self) -> str:
        return f"<{_used(self.__name__)}: training is outside aioloader>"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # attributes that the interpreter and tools read
            raise AttributeError(f"{self!r} has no attribute {name!r}")
        full = f"{self.__name__}.{name}"
        # A name in lower case can be that of a module, from which more is imported.
        value = (
            OutsideModule(full) if name.islower() and name not in _DECORATORS else _placeholder(_used(full))
        )
        setattr(self, name, value)
        return value

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        used = f"{_used(self.__name__)}()"
        if _importing(sys._getframe(1)):
            return _Made(used)
        raise OutsideError(used)


def _used(module: str) -> str:
    return f"mx{module.removeprefix(_OWN)}"


def outside_module(name: str) -> OutsideModule:
    """Return the placeholder for a module of MXNet, always the same one.

    Args:
        name: its full name in this package, such as "aioloader.mxnet.gluon.nn".
    """
    found = sys.modules.get(name)
    if not isinstance(found, OutsideModule):
        parent, _, last = name.rpartition(".")
        made = vars(sys.modules[parent]).get(last)
        found = sys.modules[name] = made if isinstance(made, OutsideModule) else OutsideModule(name)
    return found


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
