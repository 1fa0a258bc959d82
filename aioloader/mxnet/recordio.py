"""`mx.recordio`: the classes and functions of `recordio`, with MXNet's errors and text as payload.

Errors that MXNet reports as MXNetError are both: an MXNetError, and the class of `recordio` with its attributes.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import numpy as np

import recordio
from aioloader.mxnet.base import MXNetError, exported, methods_of, open_readers, overrides
from aioloader.mxnet.base import check_call as check_call
from recordio import IRHeader as IRHeader
from recordio import RecordIOError
from recordio import unpack as unpack
from recordio import unpack_img as unpack_img

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt


class RecordFileNotFoundError(recordio.RecordFileNotFoundError, MXNetError):
    """Error of `recordio` that is an MXNetError too."""


class CorruptRecordError(recordio.CorruptRecordError, MXNetError):
    """Error of `recordio` that is an MXNetError too."""


class TruncatedRecordError(recordio.TruncatedRecordError, CorruptRecordError):
    """Error of `recordio` that is an MXNetError too."""


class RecordTooLargeError(recordio.RecordTooLargeError, MXNetError):
    """Error of `recordio` that is an MXNetError too."""


_KINDS: dict[type[RecordIOError], type[RecordIOError]] = {
    recordio.RecordFileNotFoundError: RecordFileNotFoundError,
    recordio.CorruptRecordError: CorruptRecordError,
    recordio.TruncatedRecordError: TruncatedRecordError,
    recordio.RecordTooLargeError: RecordTooLargeError,
}


@contextlib.contextmanager
def _as_mxnet_error() -> Iterator[None]:
    try:
        yield
    except RecordIOError as error:
        # The same object under its MXNet class: attributes, notes and traceback stay.
        error.__class__ = _KINDS.get(type(error), type(error))
        raise


class MXRecordIO(recordio.MXRecordIO):
    """Reader or writer of records one after the other; see `recordio.MXRecordIO`.

    Args:
        uri: path of the file.
        flag: "r" to read, "w" to write a new file.
        tolerant: read damaged records as MXNet does, instead of raising an error.

    Raises:
        ValueError: the flag is something else.
        MXNetError: there is no such file to read, or no folder to write in.
    """

    def open(self) -> None:
        """Open the file, again if necessary; a writer truncates it.

        Raises:
            MXNetError: there is no such file to read, or no folder to write in.
        """
        with _as_mxnet_error():
            super().open()

        if not self.writable:
            open_readers[id(self.handle)] = self

    def read_position(self) -> int:
        """Return the byte offset of the next record of a reader; see `mx.base._LIB`."""
        return self._offset if self._stream is None else self._stream.parser.offset

    def read_from(self, offset: int) -> None:
        """Make the record at a byte offset the next to be read; see `mx.base._LIB`."""
        with self._lock:
            self._start_at(offset)

    def read(self) -> bytes | None:
        """Return the next payload; None at the end. An empty record is ``b""``, so test ``is None``.

        Raises:
            MXNetError: the file is damaged here.
        """
        with _as_mxnet_error():
            return super().read()

    def write(self, buf: Any) -> None:
        """Append a record, bytes-like or text (stored as UTF-8).

        Raises:
            MXNetError: the record has 2**29 bytes or more.
        """
        with _as_mxnet_error():
            super().write(buf)


class MXIndexedRecordIO(MXRecordIO, recordio.MXIndexedRecordIO):
    """Reader of records by key, or writer of records and an .idx file; see `recordio.MXIndexedRecordIO`.

    Args:
        idx_path: path of the .idx file.
        uri, flag, tolerant: see `MXRecordIO`.
        key_type: turns the text of a key into the key.

    Attributes:
        idx: dict, key to byte offset.
        keys: list of keys in the order of the file.
    """

    def read_idx(self, idx: Any) -> bytes | None:
        """Return the payload of a record by key. Keys are not converted: '3' is not 3.

        Raises:
            KeyError: no record has this key.
            MXNetError: there is no valid record at the place that the index names.
        """
        if overrides(self, _STEPS):
            self.seek(idx)
            return self.read()
        with _as_mxnet_error():
            return super().read_idx(idx)

    def seek(self, idx: Any) -> None:
        """Make the record with this key the next to be read.

        Raises:
            KeyError: no record has this key.
        """
        with _as_mxnet_error():
            super().seek(idx)


_STEPS = methods_of(MXIndexedRecordIO, "seek", "read")


def pack(header: IRHeader | Sequence[Any], s: bytes | bytearray | memoryview | str) -> bytes:
    """Put a header in front of a body; see `recordio.pack`. Text is stored as UTF-8."""
    return recordio.pack(header, s.encode() if isinstance(s, str) else s)


def pack_img(
    header: IRHeader | Sequence[Any], img: npt.NDArray[np.uint8], quality: int = 95, img_fmt: str = ".jpg"
) -> bytes:
    """Encode an image, BGR as OpenCV has it, and put a header in front of it; see `recordio.pack_img`."""
    return recordio.pack_img(header, np.asarray(img), quality, img_fmt)


__all__ = exported(globals(), "IRHeader", "unpack", "unpack_img", module=__name__)
