"""`mx.base`: MXNet's base error, types that scripts test for, and the calls of its C library that read records."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from aioloader.errors import LoaderError, TooManyErrorsError

__all__ = (
    "MXNetError",
    "OutsideError",
    "TooManyFailedError",
    "integer_types",
    "numeric_types",
    "string_types",
)

integer_types = (int, np.int32, np.int64)
numeric_types = (float, int, np.generic)
string_types = (str,)


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


def check_call(ret: int) -> None:
    """Raise MXNetError unless a call of `_LIB` returned 0."""
    if ret != 0:
        raise MXNetError(f"a call of mx.base._LIB returned {ret}")


def c_str(string: str) -> bytes:
    """Return text as bytes, for calls of `_LIB`."""
    return string.encode()


def py_str(x: bytes) -> str:
    """Return bytes as text."""
    return x.decode()


def _as_list(obj: Any) -> list[Any]:
    """Return a list or tuple itself, anything else in a list."""
    return obj if isinstance(obj, list | tuple) else [obj]  # type: ignore[return-value]


class _RecordCalls:
    """The calls of MXNet's C library that scripts make for the positions of records."""

    def MXRecordIOReaderTell(self, handle: Any, pos: Any) -> int:
        """Put the offset of the next record into the number that `pos` refers to (``ctypes.byref``)."""
        pos._obj.value = _open_record_file(handle).read_position()
        return 0

    def MXRecordIOReaderSeek(self, handle: Any, pos: Any) -> int:
        """Make the record at a byte offset the next to be read."""
        _open_record_file(handle).read_from(int(getattr(pos, "value", pos)))
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


def _open_record_file(handle: Any) -> Any:
    # That module imports this one.
    return importlib.import_module("aioloader.mxnet.recordio").reader_of(handle)


_LIB = _RecordCalls()
