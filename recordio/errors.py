"""Errors of the package, as one family under `RecordIOError`.

Details are attributes (path, offset, key, ...), not only text, and survive pickling, so an error that is sent to
another process still names the place of the damage. Each child also derives from the built-in exception that a caller
would expect (`EOFError`, `ValueError`, `KeyError`, ...). The page File formats, "Damage", defines damage.
"""

from __future__ import annotations

import errno
import struct
from typing import Any, ClassVar

__all__ = (
    "ClosedError",
    "CorruptIndexError",
    "CorruptRecordError",
    "DuplicateKeyWarning",
    "HeaderError",
    "ImageEncodeError",
    "IndexNotFoundError",
    "InvalidFlagError",
    "MissingDependencyError",
    "ModeError",
    "NotSeekableError",
    "PayloadTypeError",
    "RecordFileNotFoundError",
    "RecordIOError",
    "RecordIndexError",
    "RecordKeyError",
    "RecordTooLargeError",
    "RepairTargetError",
    "ShortReadError",
    "TruncatedRecordError",
    "UnknownSchemeError",
    "WriterPicklingError",
    "WrongProcessError",
)


class RecordIOError(Exception):
    """Base class of all errors of this package.

    Args:
        message: Description of the fault and of the remedy.

    Attributes:
        message: The argument, without the details that `str()` adds.
    """

    def __init__(self, message: str = "") -> None:
        super().__init__(message)
        self.message = message

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[Any, ...]:
        # Everything but the message is in attributes. Lists (the notes) are copied, so that a copy has its own.
        state = {
            name: list(value) if isinstance(value, list) else value for name, value in vars(self).items()
        }
        return type(self), (self.message,), state


class _UnexpectedBytesError(RecordIOError):
    def __init__(
        self,
        message: str = "",
        *,
        path: str | None = None,
        offset: int | None = None,
        expected: object = None,
        found: object = None,
    ) -> None:
        super().__init__(message)
        self.path = path
        self.offset = offset
        self.expected = expected
        self.found = found


class CorruptRecordError(_UnexpectedBytesError, ValueError):
    """Error raised when bytes that should be a record are not one.

    Args:
        message: Description of the fault.
        path: File or URL of the bytes; None if they are from memory.
        offset: Byte offset in that file at which the fault was found.
        expected: Value that the format requires there, for example the magic number as an int.
        found: Value that is there.
    """

    hint: ClassVar[str] = (
        "`python -m recordio verify FILE` lists all damage, "
        "`python -m recordio repair SRC DST` keeps what is readable."
    )

    def __str__(self) -> str:
        where = self.path if self.path is not None else "<bytes>"
        if self.offset is not None:
            where += f", byte {self.offset}"
        facts = ""
        if self.expected is not None or self.found is not None:
            facts = f" (expected {_show(self.expected)}, found {_show(self.found)})"
        return f"{where}: {self.message}{facts}. {self.hint}"


class TruncatedRecordError(CorruptRecordError, EOFError):
    """Error raised when the file, or the buffer, ends inside a record. Same attributes as `CorruptRecordError`."""


class CorruptIndexError(RecordIOError, ValueError):
    """Error raised when a line of an .idx file is malformed, or names an offset at which no record can be.

    Args:
        message: Description of the fault and of the remedy.
        path: The .idx file; None if the text is from memory.
        line: Line number, counted from 1; None if the fault is not in a single line.
        key: The key on that line, if it could be read.
        offset: The byte offset on that line, if it could be read.
        found: Value that is there.
    """

    def __init__(
        self,
        message: str = "",
        *,
        path: str | None = None,
        line: int | None = None,
        key: int | str | None = None,
        offset: int | None = None,
        found: object = None,
    ) -> None:
        super().__init__(message)
        self.path = path
        self.line = line
        self.key = key
        self.offset = offset
        self.found = found

    def __str__(self) -> str:
        where = self.path if self.path is not None else "<index>"
        if self.line is not None:
            where += f", line {self.line}"
        facts = []
        if self.key is not None:
            facts.append(f"key {self.key!r}")
        if self.offset is not None:
            facts.append(f"offset {self.offset}")
        if self.found is not None:
            facts.append(f"found {_show(self.found)}")
        return f"{where}: {self.message}" + (f" ({', '.join(facts)})" if facts else "")


class _NotFoundError(RecordIOError, FileNotFoundError):
    def __init__(self, message: str = "", *, path: str | None = None) -> None:
        FileNotFoundError.__init__(self, errno.ENOENT, message, path)
        self.message = message
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        cls, arguments, state = super().__reduce__()
        return cls, arguments, {**state, "filename": self.path}

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class RecordFileNotFoundError(_NotFoundError):
    """Error raised when a .rec file does not exist. Attribute: `path`."""


class NotSeekableError(RecordIOError, OSError, TypeError):
    """Error raised where a pipe or device, which can only be read once and in order, is read in another way.

    It is a TypeError too, as that of any object without a length, so that ``list(reader)`` does not ask for one.
    Attributes: `path`, `offset` (up to which it was read; None if it was not opened).
    """

    def __init__(self, message: str = "", *, path: str | None = None, offset: int | None = None) -> None:
        super().__init__(message)
        self.path = path
        self.offset = offset


class IndexNotFoundError(_NotFoundError):
    """Error raised when an .idx file that was named does not exist. Attribute: `path`."""


class RecordKeyError(RecordIOError, KeyError):
    """Error raised when no record has a key. Attributes: `key`, `path` (of the index or record file)."""

    def __init__(self, message: str = "", *, key: object = None, path: str | None = None) -> None:
        super().__init__(message)
        self.key = key
        self.path = path


class RecordIndexError(RecordIOError, IndexError):
    """Error raised for a position outside the file. Attributes: `position` (the argument), `length` (in records)."""

    def __init__(self, message: str = "", *, position: int | None = None, length: int | None = None) -> None:
        super().__init__(message)
        self.position = position
        self.length = length


class ShortReadError(_UnexpectedBytesError, EOFError):
    """Error raised when a source returned fewer bytes than requested and than its size promised.

    Attributes: `path`, `offset` (bytes), `expected` and `found` (lengths in bytes).
    """

    expected: int | None
    found: int | None


class RecordTooLargeError(RecordIOError, ValueError):
    """Error raised for a payload of 2**29 bytes or more, which cannot be stored. Attribute: `length`, in bytes."""

    def __init__(self, message: str = "", *, length: int | None = None) -> None:
        super().__init__(message)
        self.length = length


class HeaderError(RecordIOError, ValueError, struct.error):
    """Error raised when an image record header cannot be packed, or a payload is too short to contain one."""


class PayloadTypeError(RecordIOError, TypeError):
    """Error raised when a payload is not bytes-like, or a source is not one that can be read."""


class ImageEncodeError(RecordIOError, AssertionError):
    """Error raised when OpenCV could not encode an image."""


class MissingDependencyError(RecordIOError, ImportError, AssertionError):
    """Error raised when an optional package is needed for a call and is not installed."""


class ModeError(RecordIOError, AssertionError):
    """Error raised when a writer is read, or a reader is written."""


class InvalidFlagError(RecordIOError, ValueError):
    """Error raised when the open flag is neither 'r' nor 'w'."""


class ClosedError(RecordIOError, RuntimeError, ValueError):
    """Error raised when a reader or writer has been closed."""


class WrongProcessError(RecordIOError, RuntimeError):
    """Error raised when an object was opened in another process (before a fork) and must not be used in this one."""


class WriterPicklingError(RecordIOError, TypeError):
    """Error raised when a writer is pickled: a copy would truncate the file."""


class UnknownSchemeError(RecordIOError, ValueError):
    """Error raised when no opener is registered for a URL. Attribute: `url`."""

    def __init__(self, message: str = "", *, url: str | None = None) -> None:
        super().__init__(message)
        self.url = url


class RepairTargetError(RecordIOError, ValueError):
    """Error raised when `repair` or `build_index` would overwrite its own source, or would write to a URL."""


class DuplicateKeyWarning(UserWarning):
    """Warning that an index has one key twice; look-ups by that key find the last line only."""


def _show(value: object) -> str:
    return f"0x{value:08X}" if isinstance(value, int) and value > 0xFFFF else repr(value)
