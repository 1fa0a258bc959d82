"""Decoding a rectangle of a JPEG with libjpeg-turbo 3, where that library is installed.

Rule: the entropy-coded data above the rectangle and on both sides of it has to be read, but it need not become pixels:
the cosine transform, the interpolation of chroma and the conversion of colours are left out there. The pixels inside
are those of a full decode, if one chroma sample of margin is decoded with them on the left and on the right. Damage is
noticed as in a full decode if the rectangle ends with the picture, because all data is then read; the library's first
warning is told. Rows below a rectangle are not looked at: leave them out beforehand (`aioloader.jpeg.cut`).

The library is called through ctypes, by TurboJPEG's documented interface (``tj3*``, 3.0 and newer). It is not needed
for anything: without it `aioloader.transforms.pictures` decodes the full width from the top.
"""

from __future__ import annotations

import ctypes
import os
import sys
import weakref
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioloader._types import Array

__all__ = ("LIBRARY_VARIABLE", "RectangleDecoder", "library_path")

LIBRARY_VARIABLE: Final = "AIOLOADER_TURBOJPEG"
"""Environment variable: path of the library to use; empty, to do without."""

# turbojpeg.h: TJINIT_DECOMPRESS, TJPF_RGB, TJPF_GRAY.
_DECOMPRESS = 1
_PIXEL_FORMATS = {3: 0, 1: 6}
_FUNCTIONS = (
    "tj3Init",
    "tj3Destroy",
    "tj3DecompressHeader",
    "tj3SetCroppingRegion",
    "tj3Decompress8",
    "tj3GetErrorStr",
)
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
    """``tjregion``: all zero for the whole picture."""

    _fields_ = (("x", ctypes.c_int), ("y", ctypes.c_int), ("w", ctypes.c_int), ("h", ctypes.c_int))


_WHOLE = _Region(0, 0, 0, 0)


def library_path() -> str | None:
    """The library that is used in this process: a path or a name as given to the system's loader; None without one."""
    found = _library()
    return None if found is None else str(found._name)


def _candidates() -> Iterator[str]:
    named = os.environ.get(LIBRARY_VARIABLE)
    if named is not None:
        if named:
            yield named
        return
    # Wheels of the package `turbojpeg` bring the library in a folder beside it; the package itself is not imported.
    spec = find_spec("turbojpeg")
    if spec is not None and spec.origin is not None:
        yield from map(str, sorted(Path(spec.origin).parent.glob("turbojpeg.libs/libturbojpeg*")))
    yield from _NAMES.get(sys.platform, _LINUX)


@cache
def _library() -> Any:
    for name in _candidates():
        try:
            library = ctypes.CDLL(name)
        except OSError:
            continue
        # Version 2 has the file's name, but no cropping.
        if all(hasattr(library, function) for function in _FUNCTIONS):
            pointer, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
            library.tj3Init.restype = pointer
            library.tj3Init.argtypes = [number]
            library.tj3Destroy.restype = None
            library.tj3Destroy.argtypes = [pointer]
            library.tj3DecompressHeader.argtypes = [pointer, pointer, size]
            library.tj3SetCroppingRegion.argtypes = [pointer, _Region]
            library.tj3Decompress8.argtypes = [pointer, pointer, size, pointer, number, number]
            library.tj3GetErrorStr.restype = ctypes.c_char_p
            library.tj3GetErrorStr.argtypes = [pointer]
            return library
    return None


class RectangleDecoder:
    """Decodes rectangles of JPEGs; one per thread.

    Attributes:
        worth: share of a picture's pixels that should be left out at least: less does not pay for the second look at
            the headers, and for a library that may be older than simplejpeg's.

    Raises:
        RuntimeError: no usable library is installed; ask `library_path` before.
    """

    worth = 0.25

    def __init__(self) -> None:
        library = _library()
        if library is None:
            raise RuntimeError(
                "no libjpeg-turbo of version 3 was found: pip install 'aioloader[turbojpeg]', or name its file in "
                f"{LIBRARY_VARIABLE}"
            )
        handle = library.tj3Init(_DECOMPRESS)
        if not handle:
            raise MemoryError("libjpeg-turbo has no memory for a decoder")
        self._library = library
        self._handle = handle
        weakref.finalize(self, library.tj3Destroy, handle)

    def decode(self, data: Any, x: int, y: int, out: Array) -> str | None:
        """Decode as many pixels as `out` has.

        Args:
            data: a JPEG; contiguous and bytes-like. It is not changed.
            x: first column, a multiple of the width of its MCU. Near the rectangle's left and right edge, where the
                picture goes on, pixels may differ from those of a full decode as far as chroma is interpolated.
            y: first row.
            out: where they are put: uint8 (height, width, channels) with 3 channels (RGB) or 1 (grey), contiguous but
                for its rows; the rectangle lies inside the picture.

        Returns:
            None, or what the decoder complains about: after a warning the pixels are there, after an error not.
        """
        library, handle = self._library, self._handle
        height, width, channels = out.shape
        source = np.frombuffer(data, np.uint8)
        address = source.__array_interface__["data"][0]
        if (
            library.tj3SetCroppingRegion(handle, _WHOLE)
            or library.tj3DecompressHeader(handle, address, source.size)
            or library.tj3SetCroppingRegion(handle, _Region(x, y, width, height))
            or library.tj3Decompress8(
                handle,
                address,
                source.size,
                out.__array_interface__["data"][0],
                out.strides[0],
                _PIXEL_FORMATS[channels],
            )
        ):
            message: bytes = library.tj3GetErrorStr(handle)
            return message.decode("utf-8", "replace")
        return None
