"""Pairs of faces for validation: the .bin files that come with InsightFace's training sets (lfw.bin, cfp_fp.bin, ...).

Such a file is a pickle, and unpickling a file runs any function that it names. So it is not unpickled: an interpreter
in this module executes the instructions that build lists, bytes, numbers and numpy's arrays, and refuses all others.
Nothing is imported or called.
"""

from __future__ import annotations

import io
import os
import pickletools
from dataclasses import dataclass
from functools import partialmethod
from typing import TYPE_CHECKING, Any

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
        found = _Machine().run(data)
        encoded, same = found
        images = [_image(each) for each in encoded]
        flags = np.array(
            [_flag(each) for each in (same.items() if isinstance(same, _Array) else same)], np.bool_
        )
    except _Refused as error:
        raise LayoutError(
            f"{error}; the file is refused, because it could run a program", path=path
        ) from None
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError) as error:
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


_MARK = object()


class _Machine:
    """Interpreter of the pickle instructions that build plain data."""

    def __init__(self) -> None:
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def run(self, data: bytes) -> Any:
        """Return the object that the pickle builds.

        Raises:
            ValueError, LookupError, TypeError: the pickle is malformed.
            _Refused: the pickle builds more than plain data.
        """
        for opcode, argument, _ in pickletools.genops(io.BytesIO(data)):
            name = opcode.name
            if name == "STOP":
                return self._stack.pop()
            if name in _PUSHES:
                self._stack.append(_PUSHES[name](argument))
            elif name in _NOTHING:
                continue
            else:
                method: Callable[[Any], None] | None = getattr(self, f"_{name.lower()}", None)
                if method is None:
                    raise _Refused(f"it has the instruction {name}")
                method(argument)
        raise ValueError("it ends too early")

    def _since_mark(self) -> list[Any]:
        place = len(self._stack) - 1
        while self._stack[place] is not _MARK:
            place -= 1
            if place < 0:
                raise ValueError("a mark is missing")
        values = self._stack[place + 1 :]
        del self._stack[place:]
        return values

    def _mark(self, _: Any) -> None:
        self._stack.append(_MARK)

    def _memoize(self, _: Any) -> None:
        self._memo[len(self._memo)] = self._stack[-1]

    def _binput(self, argument: Any) -> None:
        self._memo[int(argument)] = self._stack[-1]

    _put = _long_binput = _binput

    def _binget(self, argument: Any) -> None:
        self._stack.append(self._memo[int(argument)])

    _get = _long_binget = _binget

    def _pop(self, _: Any) -> None:
        self._stack.pop()

    def _list(self, _: Any) -> None:
        self._stack.append(self._since_mark())

    def _append(self, _: Any) -> None:
        self._extend([self._stack.pop()])

    def _appends(self, _: Any) -> None:
        self._extend(self._since_mark())

    def _extend(self, values: list[Any]) -> None:
        if not isinstance(self._stack[-1], list):
            raise ValueError("a value is appended to an object that is not a list")
        self._stack[-1].extend(values)

    def _tuple(self, _: Any) -> None:
        self._stack.append(tuple(self._since_mark()))

    def _last(self, count: int, _: Any) -> None:
        if len(self._stack) < count:
            raise ValueError("values are missing")
        values = tuple(self._stack[-count:])
        del self._stack[-count:]
        self._stack.append(values)

    _tuple1 = partialmethod(_last, 1)
    _tuple2 = partialmethod(_last, 2)
    _tuple3 = partialmethod(_last, 3)

    def _global(self, argument: Any) -> None:
        module, _, name = str(argument).partition(" ")
        self._stack.append(_name(module, name))

    def _stack_global(self, _: Any) -> None:
        name = self._stack.pop()
        self._stack.append(_name(self._stack.pop(), name))

    def _reduce(self, _: Any) -> None:
        arguments = self._stack.pop()
        function = self._stack.pop()
        if not callable(function) or function not in _FUNCTIONS.values() or not isinstance(arguments, tuple):
            raise _Refused("it calls an object that is not a function of numpy's pickles")
        self._stack.append(function(*arguments))

    def _build(self, _: Any) -> None:
        state = self._stack.pop()
        if not isinstance(self._stack[-1], (_Array, _Dtype)):
            raise _Refused("it sets the state of an object that is not an array")
        self._stack[-1].build(state)


_NOTHING = frozenset({"PROTO", "FRAME"})
_PUSHES: dict[str, Callable[[Any], Any]] = {
    "NONE": lambda _: None,
    "NEWTRUE": lambda _: True,
    "NEWFALSE": lambda _: False,
    "EMPTY_LIST": lambda _: [],
    "EMPTY_TUPLE": lambda _: (),
    **dict.fromkeys(
        ("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "FLOAT", "BINFLOAT"), lambda value: value
    ),
    **dict.fromkeys(("SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "UNICODE"), lambda value: value),
    **dict.fromkeys(("SHORT_BINBYTES", "BINBYTES", "BINBYTES8", "BYTEARRAY8"), bytes),
    # Python 2's bytes, which are shown as text.
    **dict.fromkeys(("STRING", "SHORT_BINSTRING", "BINSTRING"), lambda value: value.encode("latin-1")),
}


def _text(value: Any) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


def _name(module: Any, name: Any) -> Any:
    """Return this module's replacement of a named function; nothing is imported."""
    found = _FUNCTIONS.get((_text(module), _text(name)))
    if found is None:
        raise _Refused(f"it names {_text(module)}.{_text(name)}")
    return found


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
