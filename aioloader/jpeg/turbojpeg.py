"""Search for libjpeg-turbo 3, which can decode a rectangle of a JPEG, and the functions of that library.

The library is called through ctypes, by TurboJPEG's documented interface (``tj3*``, 3.0 and newer). It is optional:
without it `aioloader.transforms.lazy_image` decodes the full width from the top.
"""

from __future__ import annotations

import ctypes
import glob
import os
import sys
from functools import cache
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING, Final, NamedTuple

from aioloader.foundation.stacks import warn_caller

if TYPE_CHECKING:
    from collections.abc import Iterator

LIBRARY_VARIABLE: Final = "AIOLOADER_TURBOJPEG"
"""Environment variable: path of the library to use; set it to nothing to use none."""

_NAMES = {
    "darwin": (
        "libturbojpeg.dylib",
        "/opt/homebrew/lib/libturbojpeg.dylib",
        "/usr/local/lib/libturbojpeg.dylib",
    ),
    "win32": ("turbojpeg.dll", r"C:\libjpeg-turbo64\bin\turbojpeg.dll"),
}
_LINUX = ("libturbojpeg.so.0", "/opt/libjpeg-turbo/lib64/libturbojpeg.so.0")


class Region(ctypes.Structure):
    """``tjregion``."""

    _fields_ = (("x", ctypes.c_int), ("y", ctypes.c_int), ("w", ctypes.c_int), ("h", ctypes.c_int))


class Library(NamedTuple):
    """The library, loaded twice: for short calls and for long ones.

    Short calls keep the interpreter's lock: where threads compete, taking it again can cost more than the call.

    Attributes:
        name: the name that the library was loaded by.
        short: its functions, which keep the lock.
        long: its functions, which release the lock.
    """

    name: str
    short: ctypes.PyDLL
    long: ctypes.CDLL


def library_path() -> str | None:
    """Return the library that is used in this process: a path, or a name for the system's loader; None without one.

    Warns:
        RuntimeWarning: the library that `LIBRARY_VARIABLE` names cannot be used; once per process.
    """
    found = turbojpeg_library()
    return None if found is None else found.name


def _candidates() -> Iterator[str]:
    # Wheels of the package `turbojpeg` contain the library in a folder next to it; the package itself is not imported.
    spec = PathFinder.find_spec("turbojpeg")
    if spec is not None and spec.origin is not None:
        folder = os.path.join(glob.escape(os.path.dirname(spec.origin)), "turbojpeg.libs")
        yield from sorted(glob.glob(os.path.join(folder, "libturbojpeg*")))
    yield from _NAMES.get(sys.platform, _LINUX)


@cache
def turbojpeg_library() -> Library | None:
    """Return the library that is used in this process, or None; see `library_path`."""
    named = os.environ.get(LIBRARY_VARIABLE)
    if named is None:
        return next((found for found in map(_load, _candidates()) if found is not None), None)
    if not named:
        return None
    found = _load(named)
    if found is None:
        warn_caller(
            f"{LIBRARY_VARIABLE} names {named!r}, which cannot be loaded or is not libjpeg-turbo of version 3; "
            "crops are decoded without it. Name another file, or set the variable to nothing",
            RuntimeWarning,
        )
    return found


def _load(name: str) -> Library | None:
    pointer, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    prototypes = {
        "tj3Init": (pointer, [number]),
        "tj3Destroy": (None, [pointer]),
        "tj3DecompressHeader": (number, [pointer, pointer, size]),
        "tj3SetCroppingRegion": (number, [pointer, Region]),
        "tj3Decompress8": (number, [pointer, pointer, size, pointer, number, number]),
        "tj3GetErrorStr": (ctypes.c_char_p, [pointer]),
    }
    try:
        short, long = ctypes.PyDLL(name), ctypes.CDLL(name)
        for library in (short, long):
            for function_name, (result, arguments) in prototypes.items():
                function = getattr(library, function_name)
                function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError):
        # AttributeError: version 2 has the file's name, but no cropping.
        return None
    return Library(name, short, long)
