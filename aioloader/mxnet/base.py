"""`mx.base`: MXNet's base error, types that scripts test for, and the calls of its C library that read records."""

from __future__ import annotations

import ctypes
import operator
import os
import weakref
from types import FunctionType
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.errors import LoaderError, TooManyErrorsError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = (
    "MXNetError",
    "OutsideError",
    "TooManyFailedError",
    "UnusedOverrideError",
    "integer_types",
    "mx_real_t",
    "mx_uint",
    "numeric_types",
    "string_types",
)

integer_types = (int, np.int32, np.int64)
numeric_types = (float, int, np.generic)
string_types = (str,)
mx_real_t = np.float32
mx_uint = ctypes.c_uint


class _NullType:
    """Type of the default of arguments that operators do not pass on."""

    def __repr__(self) -> str:
        return "_Null"


_Null = _NullType()


class MXNetError(RuntimeError):
    """Base of the errors of `aioloader.mxnet`, under MXNet's name."""

    # Pickles the attributes: the constructors of derived classes take other arguments than the text.
    __reduce__ = LoaderError.__reduce__


class TooManyFailedError(TooManyErrorsError, MXNetError):
    """Error raised when more images failed than `max_errors` allows. An MXNetError too."""

    def __str__(self) -> str:
        return super().__str__().replace("max_error_rate=", "max_errors=")  # here one option is both


class OutsideError(MXNetError, NotImplementedError, AttributeError):
    """Error raised when a part of MXNet is used that does not load data.

    An AttributeError too, so that ``hasattr(mx.sym, "Variable")`` is False.

    Args:
        used: the name that was used, such as "mx.sym.Variable".
        instead: the alternative; by default to pass the arrays to a framework.

    Attributes:
        used, instead: as given.
    """

    def __init__(self, used: str, instead: str | None = None) -> None:
        super().__init__(
            f"{used}: {instead or 'training is outside aioloader'}; hand its arrays, which are numpy arrays, "
            "to your framework, for example torch.from_numpy(x) or jax.numpy.asarray(x)"
        )
        self.used = used
        self.instead = instead


class UnusedOverrideError(MXNetError, TypeError):
    """Error raised when a derived class overrides a method that MXNet calls, and this package does not.

    Args:
        kind: the class of this package.
        method: the method.
        instead: what to override.

    Attributes:
        kind, method, instead: as given.
    """

    def __init__(self, kind: str, method: str, instead: str) -> None:
        super().__init__(
            f"{kind} does not call {method}(), so it would have no effect: override {instead} instead"
        )
        self.kind = kind
        self.method = method
        self.instead = instead


def check_call(ret: int) -> None:
    """Raise MXNetError unless a call of `_LIB` returned 0."""
    if ret != 0:
        raise MXNetError(f"a call of mx.base._LIB returned {ret}")


def data_dir() -> str:
    """Return the folder of MXNet's data: ``$MXNET_HOME``, or that in the user's folder."""
    from aioloader.formats.arrays.vision import mxnet_home

    return os.path.expanduser(mxnet_home())


def c_array(ctype: Any, values: Sequence[Any]) -> Any:
    """Return values as an array of `ctypes`, for calls of a C library."""
    return (ctype * len(values))(*values)


def c_str_array(strings: Sequence[str]) -> Any:
    """Return texts as an array of `ctypes`."""
    return c_array(ctypes.c_char_p, [each.encode() for each in strings])


def c_str(string: str) -> bytes:
    """Return text as bytes, for calls of `_LIB`."""
    return string.encode()


def py_str(x: bytes) -> str:
    """Return bytes as text."""
    return x.decode()


def _as_list(obj: Any) -> list[Any]:
    """Return a list or tuple itself, anything else in a list."""
    return obj if isinstance(obj, list | tuple) else [obj]  # type: ignore[return-value]


def exported(namespace: Mapping[str, Any], *others: str, module: str = "") -> tuple[str, ...]:
    """Return the ``__all__`` of a module: its public functions and classes that are this project's, and others.

    Args:
        namespace: the module's globals.
        *others: names of anything else.
        module: leave out functions and classes that other modules than this one define.
    """
    found = (
        name
        for name, value in namespace.items()
        if name[0] != "_"
        and isinstance(value, FunctionType | type)
        and (value.__module__ == module if module else value.__module__.startswith("aioloader."))
    )
    return tuple(sorted({*found, *others}))


def names_in(text: str) -> frozenset[str]:
    """Return the names in a text, which spaces separate."""
    return frozenset(text.split())


def methods_of(kind: type, *names: str) -> dict[str, Any]:
    """Return methods of a class by name, to find out later whether they were replaced; see `overrides`."""
    return {name: getattr(kind, name) for name in names}


def overrides(instance: object, methods: dict[str, Any]) -> bool:
    """Return True if the class of an object, or the object itself, replaces one of these methods."""
    # Not with `vars`, after which CPython reads all attributes of the object more slowly.
    found = [getattr(getattr(instance, name), "__func__", None) for name in methods]
    return found != list(methods.values())


def renamed(name: str) -> Any:
    """Return a property that is another attribute: MXNet's private name of it, which scripts read and assign."""

    def assign(instance: object, value: Any) -> None:
        setattr(instance, name, value)

    return property(operator.attrgetter(name), assign)


class _RecordCalls:
    """The calls of MXNet's C library that scripts make for the positions of records."""

    def MXRecordIOReaderTell(self, handle: Any, pos: Any) -> int:
        """Put the offset of the next record into the number that `pos` refers to (``ctypes.byref``)."""
        pos._obj.value = _reader_of(handle).read_position()
        return 0

    def MXRecordIOReaderSeek(self, handle: Any, pos: Any) -> int:
        """Make the record at a byte offset the next to be read."""
        _reader_of(handle).read_from(int(getattr(pos, "value", pos)))
        return 0

    def MXRecordIOWriterTell(self, handle: Any, pos: Any) -> int:
        """Put the offset at which the next record will be written into the number that `pos` refers to."""
        pos._obj.value = handle.tell()
        return 0

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise OutsideError(
            f"mx.base._LIB.{name}", "there is no C library; mx.recordio.MXRecordIO reads records"
        )


# Open readers (`mx.recordio.MXRecordIO`) by the number of their handle, which scripts pass to `_LIB`.
open_readers: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()


def _reader_of(handle: Any) -> Any:
    """Return the open reader that has this `handle`.

    Raises:
        MXNetError: none has it.
    """
    reader = open_readers.get(id(handle))
    if reader is None or reader.handle is not handle:
        raise MXNetError("this is no handle of an open reader: pass the attribute `handle` of an MXRecordIO")
    return reader


_LIB = _RecordCalls()
