"""Check of the bytes of a file, while they are read, by their number and their hash."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from aioloader.errors import SampleFormatError

if TYPE_CHECKING:
    from collections.abc import Mapping


class FileCheck:
    """Check of bytes by their number, and by the first of their hashes that this Python can calculate.

    Args:
        hashes: name of an algorithm to the hexadecimal digest.

    Attributes:
        nbytes: number of bytes so far.
    """

    def __init__(self, hashes: Mapping[str, str]) -> None:
        self.nbytes = 0
        self._digest: Any = None
        for name, expected in hashes.items():
            # Those with a digest of any length need the length.
            if name in hashlib.algorithms_available and not name.startswith("shake"):
                with suppress(ValueError):
                    self._digest = hashlib.new(name, usedforsecurity=False)
                    self._name, self._expected = name, expected.lower()
                    break

    def add(self, block: bytes) -> None:
        """Add bytes."""
        self.nbytes += len(block)
        if self._digest is not None:
            self._digest.update(block)

    def require(self, nbytes: int, path: str, what: str) -> None:
        """Raise SampleFormatError unless number and hash of all bytes are those of the index.

        Args:
            nbytes: that there should be.
            path: of the file, for errors.
            what: the file, for errors.
        """
        if self.nbytes != nbytes:
            raise SampleFormatError(
                f"{what} does not have the size that index.json says; copy it again",
                path=path,
                expected=f"{nbytes} bytes",
                found=self.nbytes,
            )
        if self._digest is not None and self._digest.hexdigest() != self._expected:
            raise SampleFormatError(
                f"{what} does not have the hash {self._name} that index.json says; copy it again",
                path=path,
                expected=self._expected,
                found=self._digest.hexdigest(),
            )
