"""Every error the package raises, as one family under `RecordIOError`.

Facts are attributes (path, offset, key, ...), not only text, and survive pickling, so an error that
crosses a process border still says where the damage is. Each child also derives from the built-in
exception a caller would expect (`EOFError`, `ValueError`, `KeyError`, ...). What counts as damage
is written down in docs/format.md, "Damage".
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


def _rebuild(cls: type[RecordIOError], message: str, facts: dict[str, Any]) -> RecordIOError:
    return cls(message, **facts)


class RecordIOError(Exception):
    """Base of all errors of this package.

    Args:
        message: What is wrong and what to do about it.

    Attributes:
        message: The text given, without the facts that `str()` adds.
    """

    _facts: ClassVar[tuple[str, ...]] = ()
    message: str

    def __init__(self, message: str = "") -> None:
        super().__init__(message)
        self.message = message

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[Any, ...]:
        facts = {name: getattr(self, name) for name in self._facts}
        notes = getattr(self, "__notes__", None)
        state = {"__notes__": list(notes)} if notes else None
        return (_rebuild, (type(self), self.message, facts), state)


class CorruptRecordError(RecordIOError, ValueError):
    """Bytes that should be a record are not one.

    Args:
        message: What is wrong.
        path: File or URL the bytes came from; None if they came from memory.
        offset: Byte offset in that file at which the fault was found.
        expected: What the format demands there, for example the magic number as an int.
        found: What stood there.
    """

    _facts = ("path", "offset", "expected", "found")
    hint: ClassVar[str] = (
        "`python -m recordio verify FILE` lists all damage, "
        "`python -m recordio repair SRC DST` keeps what is readable."
    )

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

    def __str__(self) -> str:
        where = self.path if self.path is not None else "<bytes>"
        if self.offset is not None:
            where += f", byte {self.offset}"
        facts = ""
        if self.expected is not None or self.found is not None:
            facts = f" (expected {_show(self.expected)}, found {_show(self.found)})"
        return f"{where}: {self.message}{facts}. {self.hint}"


class TruncatedRecordError(CorruptRecordError, EOFError):
    """The file, or the buffer, ends inside a record. Same attributes as `CorruptRecordError`."""


class CorruptIndexError(RecordIOError, ValueError):
    """A line of an .idx file is malformed, or points where no record can be.

    Args:
        message: What is wrong and what to do about it.
        path: The .idx file; None if the text came from memory.
        line: Line number, counted from 1; None if no single line is to blame.
        key: The key on that line, if it could be read.
        offset: The byte offset on that line, if it could be read.
        found: What stood there.
    """

    _facts = ("path", "line", "key", "offset", "found")

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
    _facts = ("path",)

    def __init__(self, message: str = "", *, path: str | None = None) -> None:
        FileNotFoundError.__init__(self, errno.ENOENT, message, path)
        self.message = message
        self.path = path

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class RecordFileNotFoundError(_NotFoundError):
    """The .rec file does not exist. Attribute `path` names it."""


class IndexNotFoundError(_NotFoundError):
    """An .idx file that was asked for by name does not exist. Attribute `path` names it."""


class RecordKeyError(RecordIOError, KeyError):
    """No record has this key. Attributes: `key`, `path` (of the index or record file)."""

    _facts = ("key", "path")

    def __init__(self, message: str = "", *, key: object = None, path: str | None = None) -> None:
        super().__init__(message)
        self.key = key
        self.path = path


class RecordIndexError(RecordIOError, IndexError):
    """A position outside the file. Attributes: `position` (as given), `length` (records there)."""

    _facts = ("position", "length")

    def __init__(self, message: str = "", *, position: int | None = None, length: int | None = None) -> None:
        super().__init__(message)
        self.position = position
        self.length = length


class ShortReadError(RecordIOError, EOFError):
    """A source returned fewer bytes than it was asked for and than its size promised.

    Attributes: `path`, `offset` (bytes), `expected` and `found` (lengths in bytes).
    """

    _facts = ("path", "offset", "expected", "found")

    def __init__(
        self,
        message: str = "",
        *,
        path: str | None = None,
        offset: int | None = None,
        expected: int | None = None,
        found: int | None = None,
    ) -> None:
        super().__init__(message)
        self.path = path
        self.offset = offset
        self.expected = expected
        self.found = found


class RecordTooLargeError(RecordIOError, ValueError):
    """A payload of 2**29 bytes or more cannot be stored. Attribute `length` is in bytes."""

    _facts = ("length",)

    def __init__(self, message: str = "", *, length: int | None = None) -> None:
        super().__init__(message)
        self.length = length


class HeaderError(RecordIOError, ValueError, struct.error):
    """An image record header cannot be packed, or a payload is too short to hold one."""


class PayloadTypeError(RecordIOError, TypeError):
    """A payload is not bytes-like."""


class ImageEncodeError(RecordIOError, AssertionError):
    """OpenCV could not encode the image."""


class MissingDependencyError(RecordIOError, ImportError, AssertionError):
    """An optional package is needed for this call and is not installed."""


class ModeError(RecordIOError, AssertionError):
    """Reading from a writer, or writing to a reader."""


class InvalidFlagError(RecordIOError, ValueError):
    """The open flag is neither 'r' nor 'w'."""


class ClosedError(RecordIOError, RuntimeError, ValueError):
    """The reader or writer has been closed."""


class WrongProcessError(RecordIOError, RuntimeError):
    """The object was opened in another process (before a fork) and must not be used here."""


class WriterPicklingError(RecordIOError, TypeError):
    """Writers cannot be pickled: a copy would truncate the file."""


class UnknownSchemeError(RecordIOError, ValueError):
    """No opener is registered for a URL. Attribute `url`."""

    _facts = ("url",)

    def __init__(self, message: str = "", *, url: str | None = None) -> None:
        super().__init__(message)
        self.url = url


class RepairTargetError(RecordIOError, ValueError):
    """`repair` would overwrite its own source."""


class DuplicateKeyWarning(UserWarning):
    """An index holds one key twice; look-ups by that key find the last line only."""


def _show(value: object) -> str:
    return f"0x{value:08X}" if isinstance(value, int) and value > 0xFFFF else repr(value)
