"""CRC-32C of payloads, by the library google-crc32c."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.errors import MissingPackageError

if TYPE_CHECKING:
    from collections.abc import Callable


@cache
def crc32c_function() -> Callable[[memoryview], int]:
    """Return a function that computes the CRC-32C of bytes.

    Raises:
        MissingPackageError: google-crc32c is not installed; the error is an ImportError.
    """
    try:
        import google_crc32c
    except ImportError:
        raise MissingPackageError("google-crc32c", extra="tfrecord") from None
    value: Any = google_crc32c.value

    def crc32c(data: memoryview) -> int:
        # The library refuses a memoryview, and bytes would be a copy.
        return int(value(np.frombuffer(data, np.uint8))) if len(data) else 0

    return crc32c
