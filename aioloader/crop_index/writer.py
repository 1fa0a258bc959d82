"""Writer of the file of a crop index.

The entries are appended to a partial file, each in a frame with a checksum. After a kill the frames up to the first
damaged one are valid, and a later writer continues behind them. At the end the tables are appended, and the file gets
its name.

Making of the entries that go into a crop index.
"""

from __future__ import annotations

import mmap
import os
import zlib
from array import array
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.crop_index.layout import (
    ENTRY,
    FRAME_NBYTES,
    HEADER_NBYTES,
    REFUSAL,
    Frame,
    Header,
    LayoutFault,
    Tables,
    pack_frame,
    read_frame,
    read_header,
    reasons_text,
)
from aioloader.errors import CropIndexBusyError, CropIndexWarning
from aioloader.foundation.native import absence, native
from aioloader.foundation.stacks import warn_caller
from aioloader.jpeg.crop_entry import HEAD, CropEntryError, EntryHead, check_entry, check_intact
from aioloader.jpeg.crop_scan import build_entry
from aioloader.jpeg.huffman import NotIndexableError
from aioloader.storage.local.descriptors import open_locked
from recordio._partial_files import partial_path, sync

if TYPE_CHECKING:
    from aioloader.foundation.types import Array


def warn_if_slow() -> None:
    """Warn where the compiled part is missing: without it, making entries takes a hundred times as long."""
    if native is None:
        warn_caller(
            "crop indexes are made a hundred times as slowly as with the compiled part of aioloader, which is not "
            f"used: {absence}",
            CropIndexWarning,
        )


def entry_or_reason(data: bytes | memoryview) -> bytes | str:
    """Return the entry of an image, or the reason why it has none.

    Args:
        data: the encoded image, or anything else.
    """
    try:
        return build_entry(data)
    except NotIndexableError as error:
        return error.reason


def fits(entry: Any, data: Any) -> bool:
    """Return whether an entry is intact and belongs to exactly these bytes."""
    try:
        check_entry(entry, data)
    except CropEntryError:
        return False
    return True


def is_reproduced(entry: Any, data: bytes | memoryview) -> bool:
    """Return whether making the entry of an image again, with the same interval, yields the same bytes.

    Args:
        entry: an intact entry.
        data: the encoded image.
    """
    interval = EntryHead._make(HEAD.unpack_from(entry)).interval
    try:
        return interval > 0 and build_entry(data, interval=interval) == entry
    except NotIndexableError:
        return False


def is_intact(entry: Any) -> bool:
    """Return whether an entry is intact and of the present version of the layout."""
    try:
        check_intact(entry)
    except CropEntryError:
        return False
    return True


def put(writer: CropIndexWriter, key: int, nbytes: int, made: bytes | memoryview | str) -> None:
    """Write the entry of an image of `nbytes` bytes, or the reason why it has none."""
    if isinstance(made, str):
        writer.refuse(key, nbytes, made)
    else:
        writer.put(key, nbytes, made)


_BUFFER_NBYTES = 1 << 20


class CropIndexWriter:
    """Writer of the crop index of one record file or folder.

    Args:
        path: the file to be written. An earlier one stays until `finish`.
        kind: `aioloader.crop_index.layout.RECORDS` or `FOLDER`.
        source: number that identifies the state of the record file; a partial file of another state is not continued.
            0: it is not known, and not compared.
        resume: continue a partial file; False: begin again.

    Attributes:
        path: as given.

    Raises:
        CropIndexBusyError: another process writes it.
        OSError: it cannot be written.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, kind: int, source: int = 0, resume: bool = True
    ) -> None:
        self.path = Path(path)
        self._partial = partial_path(self.path)
        self._header = Header(kind, source=source)
        # Of all images so far: key, size, offset of the entry (or number of the reason), and its length.
        self._keys, self._nbytes, self._places = array("Q"), array("Q"), array("Q")
        self._lengths = array("I")
        self._reasons: dict[str, int] = {}
        fd = open_locked(self._partial)
        if fd is None:
            raise CropIndexBusyError(os.fspath(path))
        self._file = os.fdopen(fd, "r+b", buffering=_BUFFER_NBYTES)
        try:
            self._end = (self._restored() if resume else 0) or self._begun()
            self._file.truncate(self._end)
            self._file.seek(self._end)
        except BaseException:
            self._file.close()
            raise

    def __len__(self) -> int:
        """Return the number of images written so far, those of an earlier writer included."""
        return len(self._keys)

    def _begun(self) -> int:
        self._file.seek(0)
        self._file.write(self._header.packed())
        self._file.flush()
        return HEADER_NBYTES

    def _restored(self) -> int:
        """Read the frames of an earlier writer; return their end, or 0 if there is nothing to be continued."""
        nbytes = os.fstat(self._file.fileno()).st_size
        if nbytes < HEADER_NBYTES:
            return 0
        with (
            mmap.mmap(self._file.fileno(), nbytes, access=mmap.ACCESS_READ) as memory,
            memoryview(memory) as view,
        ):
            try:
                header = read_header(view)
            except LayoutFault:
                return 0
            if header.kind != self._header.kind or self._header.source not in (0, header.source):
                return 0
            end = HEADER_NBYTES
            while (frame := read_frame(view, end)) is not None:
                with view[frame.at : frame.at + frame.length] as body:
                    self._note(frame, body)
                end = frame.end
        return end

    def restored(self) -> tuple[Array, Array]:
        """Return keys and sizes of the images written so far: uint64 (n,), ascending, and uint64 (n,)."""
        keys = np.array(self._keys, np.uint64)
        order = np.argsort(keys, kind="stable")
        return keys[order], np.array(self._nbytes, np.uint64)[order]

    def put(self, key: int, nbytes: int, entry: Any) -> None:
        """Write the entry of an image.

        Args:
            key: offset of its record, or its `folder_key`. If a key is written twice, the last one counts.
            nbytes: size of the image in bytes.
            entry: bytes, or a memoryview of bytes.
        """
        self._append(key, nbytes, ENTRY, entry)

    def refuse(self, key: int, nbytes: int, reason: str) -> None:
        """Write the reason why an image has no entry."""
        self._append(key, nbytes, REFUSAL, reason.encode())

    def _append(self, key: int, nbytes: int, kind: int, body: Any) -> None:
        frame = pack_frame(key, nbytes, kind, body)
        self._file.write(frame)
        self._note(Frame(key, nbytes, kind, self._end + FRAME_NBYTES, len(body)), body)
        self._end += len(frame)

    def _note(self, frame: Frame, body: Any) -> None:
        self._keys.append(frame.key)
        self._nbytes.append(frame.nbytes)
        if frame.kind == ENTRY:
            self._places.append(frame.at)
            self._lengths.append(frame.length)
        else:
            self._places.append(self._reasons.setdefault(str(body, "utf-8", "replace"), len(self._reasons)))
            self._lengths.append(0)

    def flush(self) -> None:
        """Pass everything written to the system, so that it survives the end of this process."""
        self._file.flush()

    def complete(self, keys: Array | None = None) -> None:
        """Write the tables, and sync the partial file to disk. It can be renamed then; nothing can be added.

        Args:
            keys: uint64 (n,), keys of all images that exist; others are left out of the tables. None: all of them.
        """
        wanted = keys
        keys = np.array(self._keys, np.uint64)
        nbytes, lengths = np.array(self._nbytes, np.uint64), np.array(self._lengths, np.uint32)
        # The last frame of a key counts.
        unique, backwards = np.unique(keys[::-1], return_index=True)
        rows = len(keys) - 1 - backwards
        if wanted is not None:
            exists = np.isin(unique, wanted)
            unique, rows = unique[exists], rows[exists]
        tables = Tables(unique, np.array(self._places, np.uint64)[rows], lengths[rows], list(self._reasons))
        packed = tables.packed()
        self._header = Header(
            self._header.kind,
            images=len(unique),
            tables_at=self._end,
            jpeg_nbytes=int(nbytes[rows][lengths[rows] > 0].sum()),
            source=self._header.source,
            reasons_nbytes=len(reasons_text(tables.reasons)),
            tables_crc=zlib.crc32(packed),
        )
        self._file.write(packed)
        self._file.seek(0)
        self._file.write(self._header.packed())
        self._file.flush()
        os.fsync(self._file.fileno())

    def finish(self, keys: Array | None = None) -> None:
        """Complete the file, give it its name, and close it.

        Args:
            keys: as for `complete`.

        Raises:
            OSError: it cannot be written or renamed.
        """
        self.complete(keys)
        if os.name == "nt":  # an open file cannot be renamed there
            self.close()
        os.replace(self._partial, self.path)
        with suppress(OSError):  # not every system can sync a folder
            sync(self.path.parent)
        self.close()

    def discard(self) -> None:
        """Delete the partial file, and close it; an earlier index stays.

        Raises:
            OSError: it cannot be deleted.
        """
        if os.name == "nt":  # an open file cannot be deleted there
            self.close()
        self._partial.unlink(missing_ok=True)
        self.close()

    def close(self) -> None:
        """Close the partial file, which stays; repeated calls do nothing."""
        self._file.close()
