"""Pairs of faces for validation: the .bin files that come with InsightFace's training sets (lfw.bin, cfp_fp.bin, ...).

Such a file is a pickle, and unpickling a file runs any function that it names. So only the instructions that
build lists, bytes, numbers and arrays are allowed, and functions of this module are called in place of those named.
"""

from __future__ import annotations

import io
import os
import pickle
import pickletools
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from aioloader.errors import LayoutError
from aioloader.storage.local.descriptors import open_regular
from aioloader.storage.urls import path_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioloader.foundation.types import Array

_MOST_NBYTES = 4 << 30
_MULTIARRAY = ("numpy.core.multiarray", "numpy._core.multiarray")
_NUMERIC = ("numpy.core.numeric", "numpy._core.numeric")


def read_verification_pairs(path: str | os.PathLike[str]) -> tuple[list[bytes], Array]:
    """Read the images of a .bin file of face pairs, and the flags that mark the pairs of the same person.

    Args:
        path: the file, such as lfw.bin; ``~`` is expanded.

    Returns:
        the encoded images, pair i at 2 * i and 2 * i + 1; bool (pairs,), True for a pair of the same person.

    Raises:
        FileNotFoundError: there is no such file.
        LayoutError: it is not a file of pairs; or it contains anything but lists, bytes, numbers and arrays of bytes.
    """
    path = path_of(path)
    with open(open_regular(path), "rb") as file:
        if os.fstat(file.fileno()).st_size > _MOST_NBYTES:
            raise LayoutError(
                f"it is larger than {_MOST_NBYTES} bytes, so it is not a file of pairs", path=path
            )
        data = file.read()
    try:
        found = _Unpickler(io.BytesIO(data), encoding="bytes").load()
        encoded, same = found
        images = [_image(each) for each in encoded]
        flags = np.array(
            [_flag(each) for each in (same.items() if isinstance(same, _Array) else same)], np.bool_
        )
    except _Refused as error:
        raise LayoutError(
            f"{error}; the file is refused, because it could run a program", path=path
        ) from None
    except (
        *(ValueError, TypeError, LookupError, AttributeError, OverflowError),
        *(EOFError, pickle.UnpicklingError),
    ) as error:
        raise LayoutError(f"it is not a file of pairs: {error}", path=path) from error
    if not len(flags) or len(images) != 2 * len(flags):
        raise LayoutError(f"it has {len(images)} images for {len(flags)} pairs", path=path)
    return images, flags


class _Refused(Exception):
    """Error raised for an instruction that lists of images do not need."""


@dataclass
class _Array:
    """Array under construction: the name of its dtype and its bytes."""

    dtype: str = ""
    data: bytes = b""

    def build(self, state: Any) -> None:
        _, _, dtype, _, data = state
        self.dtype, self.data = dtype.name, bytes(data)

    def items(self) -> list[Any]:
        values: list[Any] = np.frombuffer(self.data, np.dtype(_plain(self.dtype))).tolist()
        return values


@dataclass(frozen=True)
class _Dtype:
    """Numpy dtype, by a name such as "u1"."""

    name: str

    def build(self, state: Any) -> None:
        """Ignore the other properties of a dtype, such as the byte order, which single bytes do not have."""


def _plain(name: str) -> str:
    if name not in ("u1", "i1", "b1", "i4", "i8", "f4", "f8"):
        raise ValueError(f"an array of the dtype {name!r} is neither an image nor a flag")
    return name


def _image(value: Any) -> bytes:
    if isinstance(value, _Array) and value.dtype in ("u1", "i1"):
        return value.data
    if isinstance(value, (bytes, bytearray)):
        return bytes(value)
    raise ValueError(f"an image is {type(value).__name__.lstrip('_').lower()}, not bytes")


def _flag(value: Any) -> bool:
    if isinstance(value, (bool, int, float)):
        return bool(value)
    raise ValueError(f"a flag is {type(value).__name__.lstrip('_').lower()}, not a truth value")


_PLAIN = (
    "PROTO FRAME STOP MARK POP NONE NEWTRUE NEWFALSE INT BININT BININT1 BININT2 LONG LONG1 FLOAT BINFLOAT UNICODE "
    "SHORT_BINUNICODE BINUNICODE BINUNICODE8 SHORT_BINBYTES BINBYTES BINBYTES8 BYTEARRAY8 STRING SHORT_BINSTRING "
    "BINSTRING EMPTY_LIST LIST APPEND APPENDS EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 GLOBAL STACK_GLOBAL REDUCE BUILD "
    "MEMOIZE PUT BINPUT LONG_BINPUT GET BINGET LONG_BINGET"
)


def _refuse(name: str, unpickler: _Unpickler) -> None:
    raise _Refused(f"it has the instruction {name}")


# The one in Python: a damaged file cannot make that in C take gigabytes for its memo.
_Base: Any = pickle._Unpickler


class _Unpickler(_Base):  # type: ignore[misc]  # the types do not have its methods
    """Unpickler of plain data: nothing is imported, and only this module's functions are called."""

    dispatch: ClassVar = {
        ord(each.code): _Base.dispatch[ord(each.code)]
        if each.name in _PLAIN.split()
        else partial(_refuse, each.name)
        for each in pickletools.opcodes
    }

    def find_class(self, module: Any, name: Any) -> Any:
        """Return this module's replacement of a named function."""
        found = _FUNCTIONS.get((_text(module), _text(name)))
        if found is None:
            raise _Refused(f"it names {_text(module)}.{_text(name)}")
        return found

    def load_build(self) -> None:
        """Set the state of an array or a dtype: that of a function could change what it does."""
        state = self.stack.pop()
        if not isinstance(self.stack[-1], (_Array, _Dtype)):
            raise _Refused("it sets the state of an object that is not an array")
        self.stack[-1].build(state)

    dispatch[pickle.BUILD[0]] = load_build


def _text(value: Any) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


def _encode(text: Any, encoding: Any = "latin1") -> bytes:
    if _text(encoding) not in ("latin1", "latin-1"):
        raise ValueError(f"bytes in the encoding {encoding!r}")
    encoded: bytes = text.encode("latin-1")
    return encoded


def _bytes(*arguments: Any) -> bytes:
    if arguments:
        raise _Refused("it calls bytes() with arguments")
    return b""


def _new_array(*_: Any) -> _Array:
    return _Array()


def _dtype(name: Any, *_: Any) -> _Dtype:
    return _Dtype(_text(name).lstrip("|<"))


def _scalar(dtype: Any, data: Any) -> Any:
    return np.frombuffer(bytes(data), np.dtype(_plain(dtype.name)))[0].item()


def _frombuffer(data: Any, dtype: Any, *_: Any) -> _Array:
    return _Array(dtype.name, bytes(data))


_FUNCTIONS: dict[tuple[str, str], Callable[..., Any]] = {
    ("_codecs", "encode"): _encode,
    ("numpy", "ndarray"): _new_array,
    ("numpy", "dtype"): _dtype,
    **{(module, "bytes"): _bytes for module in ("builtins", "__builtin__")},
    **{(module, "_reconstruct"): _new_array for module in _MULTIARRAY},
    **{(module, "scalar"): _scalar for module in _MULTIARRAY},
    **{(module, "_frombuffer"): _frombuffer for module in _NUMERIC},
}
