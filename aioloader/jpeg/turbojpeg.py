"""Decoder for a rectangle of a JPEG, by libjpeg-turbo 3 where that library is installed.

Rule: the entropy-coded data above the rectangle and on both sides of it has to be read, but it need not become pixels:
the cosine transform, the interpolation of chroma and the conversion of colours are skipped there. The pixels inside
are those of a full decode, if one chroma sample of margin is decoded with them on the left and on the right. Damage is
detected as in a full decode if the rectangle ends with the image, because all data is then read; the library's first
warning is returned. Rows below a rectangle are not read: leave them out beforehand (`aioloader.jpeg.cut`).

The library is called through ctypes, by TurboJPEG's documented interface (``tj3*``, 3.0 and newer). It is optional:
without it `aioloader.transforms.lazy_image` decodes the full width from the top.
"""

from __future__ import annotations

import ctypes
import os
import sys
import warnings
from functools import cache
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioloader.foundation.types import Array

LIBRARY_VARIABLE: Final = "AIOLOADER_TURBOJPEG"
"""Environment variable: path of the library to use; set it to nothing to use none."""

# turbojpeg.h: TJINIT_DECOMPRESS, TJPF_RGB, TJPF_GRAY.
_DECOMPRESS = 1
_PIXEL_FORMATS = {3: 0, 1: 6}
_NAMES = {
    "darwin": (
        "libturbojpeg.dylib",
        "/opt/homebrew/lib/libturbojpeg.dylib",
        "/usr/local/lib/libturbojpeg.dylib",
    ),
    "win32": ("turbojpeg.dll", r"C:\libjpeg-turbo64\bin\turbojpeg.dll"),
}
_LINUX = ("libturbojpeg.so.0", "/opt/libjpeg-turbo/lib64/libturbojpeg.so.0")


class _Region(ctypes.Structure):
    """``tjregion``."""

    _fields_ = (("x", ctypes.c_int), ("y", ctypes.c_int), ("w", ctypes.c_int), ("h", ctypes.c_int))


class _Library(NamedTuple):
    """The functions that are used, and the name that the library was loaded by."""

    name: str
    init: Any
    destroy: Any
    header: Any
    region: Any
    decompress: Any
    error: Any


def library_path() -> str | None:
    """Return the library that is used in this process: a path, or a name for the system's loader; None without one.

    Warns:
        RuntimeWarning: the library that `LIBRARY_VARIABLE` names cannot be used; once per process.
    """
    found = _library()
    return None if found is None else found.name


def _candidates() -> Iterator[str]:
    # Wheels of the package `turbojpeg` contain the library in a folder next to it; the package itself is not imported.
    spec = PathFinder.find_spec("turbojpeg")
    if spec is not None and spec.origin is not None:
        yield from map(str, sorted(Path(spec.origin).parent.glob("turbojpeg.libs/libturbojpeg*")))
    yield from _NAMES.get(sys.platform, _LINUX)


@cache
def _library() -> _Library | None:
    named = os.environ.get(LIBRARY_VARIABLE)
    if named is None:
        return next((found for found in map(_load, _candidates()) if found is not None), None)
    if not named:
        return None
    found = _load(named)
    if found is None:
        warnings.warn(
            f"{LIBRARY_VARIABLE} names {named!r}, which cannot be loaded or is not libjpeg-turbo of version 3; "
            "crops are decoded without it. Name another file, or set the variable to nothing",
            RuntimeWarning,
            stacklevel=3,
        )
    return found


def _load(name: str) -> _Library | None:
    try:
        # Short calls keep the interpreter's lock: where threads compete, taking it again can cost more than the call.
        short, long = ctypes.PyDLL(name), ctypes.CDLL(name)
        found = _Library(
            name=name,
            init=short.tj3Init,
            destroy=short.tj3Destroy,
            header=short.tj3DecompressHeader,
            region=short.tj3SetCroppingRegion,
            decompress=long.tj3Decompress8,
            error=short.tj3GetErrorStr,
        )
    except (OSError, AttributeError):
        # AttributeError: version 2 has the file's name, but no cropping.
        return None
    pointer, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    found.init.restype = pointer
    found.init.argtypes = [number]
    found.destroy.restype = None
    found.destroy.argtypes = [pointer]
    found.header.argtypes = [pointer, pointer, size]
    found.region.argtypes = [pointer, _Region]
    found.decompress.argtypes = [pointer, pointer, size, pointer, number, number]
    found.error.restype = ctypes.c_char_p
    found.error.argtypes = [pointer]
    return found


class RectangleDecoder:
    """Decoder for rectangles of JPEGs. It keeps nothing from one image to the next.

    Attributes:
        worth: least share of an image's pixels that should be left out: less does not pay for reading the headers
            again, and for a library that may be older than simplejpeg's.

    Raises:
        RuntimeError: no usable library is installed; call `library_path` before.
    """

    worth = 0.25

    def __init__(self) -> None:
        library = _library()
        if library is None:
            raise RuntimeError(
                "no libjpeg-turbo of version 3 was found: pip install 'aioloader[turbojpeg]', or name its file in "
                f"{LIBRARY_VARIABLE}"
            )
        self._library = library

    def decode(self, data: Any, x: int, y: int, out: Array) -> str | None:
        """Decode a rectangle with the extents of `out`.

        Args:
            data: a JPEG; contiguous and bytes-like. It is not changed.
            x: first column, a multiple of the width of its MCU. Near the rectangle's left and right edge, where the
                image continues, pixels may differ from those of a full decode as far as chroma is interpolated.
            y: first row.
            out: array for the pixels: uint8 (height, width, channels) with 3 channels (RGB) or 1 (grey), contiguous
                except for its rows; the rectangle is inside the image.

        Returns:
            None, or the decoder's complaint: after a warning about the scan the pixels are complete, after any other
            complaint they are not. Complaints about the headers begin with "header: ".

        Raises:
            ValueError: `out` is empty, read-only or not of that kind.
        """
        height, width, channels = out.shape
        # The library reads an extent of 0 as all that is left, and does not check where it writes.
        if (
            not (height and width)
            or channels not in _PIXEL_FORMATS
            or out.strides[1:] != (channels, 1)
            or out.dtype != np.uint8
            or not out.flags.writeable
        ):
            raise ValueError(
                "out must be uint8 (height, width, 3 or 1), not empty, writable and contiguous except for its rows; "
                f"got {out.dtype} {out.shape} with strides {out.strides}"
            )
        library = self._library
        source = np.frombuffer(data, np.uint8)
        address = source.__array_interface__["data"][0]
        # A new decoder for every image. One that is used again has the tables of the last image, and uses them for an
        # image that lacks tables; and after an error in the headers it continues in the middle of them.
        handle = library.init(_DECOMPRESS)
        if not handle:
            raise MemoryError("libjpeg-turbo has no memory for a decoder")
        try:
            if library.header(handle, address, source.size) or library.region(
                handle, _Region(x, y, width, height)
            ):
                return f"header: {_message(library, handle)}"
            target = out.__array_interface__["data"][0], out.strides[0], _PIXEL_FORMATS[channels]
            if library.decompress(handle, address, source.size, *target):
                return _message(library, handle)
            return None
        finally:
            library.destroy(handle)


def _message(library: _Library, handle: int) -> str:
    message: bytes = library.error(handle)
    return message.decode("utf-8", "replace")
