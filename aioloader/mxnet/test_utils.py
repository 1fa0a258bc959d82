"""`mx.test_utils`, as far as scripts that load data use it: `download`, and comparisons of arrays."""

from __future__ import annotations

import os
import shutil
from typing import Any
from urllib.parse import unquote, urlsplit

import numpy as np

from aioloader.mxnet.base import MXNetError
from recordio._partial_files import published

__all__ = ("almost_equal", "assert_almost_equal", "download", "same")

_SCHEMES = ("file", "http", "https")
# numpy's letter of a dtype: relative and absolute tolerance.
_TOLERANCES = {"e": (1e-2, 1e-1), "f": (1e-4, 1e-3), "d": (1e-5, 1e-20)}


def download(
    url: str,
    fname: str | None = None,
    dirname: str | None = None,
    overwrite: bool = False,
    retries: int = 5,
    timeout: float = 60,
) -> str:
    """Fetch a file; blocks. Nothing else in this package downloads anything.

    Args:
        url: ``file:``, ``http:`` or ``https:``.
        fname: the file to write; default: the last part of the URL.
        dirname: folder of the file, created if necessary; default: the current one.
        overwrite: fetch it even if the file exists.
        retries: number of attempts, at least one.
        timeout: seconds without an answer after which an attempt fails.

    Returns:
        Path of the file. It appears only when it is complete.

    Raises:
        ValueError: the URL is of another kind, or ends in "/" and no `fname` is given.
        MXNetError: it could not be fetched.
    """
    import http.client
    import urllib.error
    import urllib.request

    parts = urlsplit(url)
    if parts.scheme not in _SCHEMES:
        raise ValueError(f"download takes {', '.join(f'{s}:' for s in _SCHEMES)} URLs, not {url!r}")
    path = fname or os.path.basename(unquote(parts.path))
    if not path:
        raise ValueError(f"{url} names no file: give fname")
    if dirname is not None:
        path = os.path.join(dirname, path)
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    if os.path.exists(path) and not overwrite:
        return path
    left = retries
    while True:
        try:
            with published(path) as (part,):
                with open(part, "wb") as file, urllib.request.urlopen(url, timeout=timeout) as source:
                    shutil.copyfileobj(source, file)
                    missing = getattr(source, "length", None)
                if missing:
                    raise OSError(f"the answer ended {missing} bytes too early")
            return path
        except (OSError, http.client.HTTPException) as error:  # urllib's errors are OSErrors
            left -= 1
            refused = False
            if isinstance(error, urllib.error.HTTPError):
                refused = error.code < 500
                error.close()  # it holds the connection
            if left < 1 or refused:
                raise MXNetError(f"{url} could not be fetched: {error}") from error


def same(a: Any, b: Any) -> bool:
    """Return whether two arrays have the same shape and elements."""
    return bool(np.array_equal(np.asarray(a), np.asarray(b)))


def almost_equal(
    a: Any, b: Any, rtol: float | None = None, atol: float | None = None, equal_nan: bool = False
) -> bool:
    """Return whether two arrays are equal up to ``atol + rtol * abs(b)``, by default 1e-20 and 1e-5."""
    rtol, atol = 1e-5 if rtol is None else rtol, 1e-20 if atol is None else atol
    return bool(np.allclose(np.asarray(a), np.asarray(b), rtol, atol, equal_nan))


def assert_almost_equal(
    a: Any, b: Any, rtol: float | None = None, atol: float | None = None, equal_nan: bool = False, **_: Any
) -> None:
    """Raise an AssertionError that shows the difference if there is one of more than ``atol + rtol * abs(b)``.

    Args:
        a, b: arrays or numbers.
        rtol, atol: default: MXNet's for the dtypes, the larger of the two. 1e-2 and 1e-1 for float16, 1e-4 and 1e-3 for
            float32, 1e-5 and 1e-20 for float64, 0 for integers.
        equal_nan: NaNs are equal.
    """
    one, other = np.asarray(a), np.asarray(b)
    relative, absolute = map(max, zip(_tolerances(one), _tolerances(other), strict=True))
    np.testing.assert_allclose(
        one,
        other,
        rtol=relative if rtol is None else rtol,
        atol=absolute if atol is None else atol,
        equal_nan=equal_nan,
    )


def _tolerances(array: Any) -> tuple[float, float]:
    return _TOLERANCES.get(array.dtype.char, (0.0, 0.0))
