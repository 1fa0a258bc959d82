"""Ways in which an image is decoded, and reasons why it is not cut by a crop index: the keys of `Stats.decodes`.

`aioloader.transforms.lazy_image` counts by them.

Lines that C libraries write to standard error while they decode an image, given once, with the image's name.

libpng, OpenJPEG and OpenCV write to descriptor 2 themselves, as many lines as an image has faults. Only a worker
process may redirect the descriptor: in the user's process other threads write there.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import Counter
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from aioloader.errors import CropIndexWarning
from aioloader.foundation.error_log import add_note
from aioloader.foundation.stacks import warn_caller

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


CUT: Final = "cut"
"""Way: cut by its entry of a crop index."""
RECTANGLE: Final = "rectangle"
"""Way: the rectangle decoder of libjpeg-turbo 3 left out the pixels around the crop; rows below it are not read."""
EARLY_STOP: Final = "early stop"
"""Way: decoding ended below the crop, and all pixels above that were decoded."""
WHOLE: Final = "whole"
"""Way: decoded whole."""
RAW: Final = "raw"
"""Way: stored as raw pixels, which are not decoded."""
KEPT: Final = "kept"
"""Way: a kept sample, which is not decoded."""
WAYS: Final = (CUT, RECTANGLE, EARLY_STOP, WHOLE, RAW, KEPT)

INDEXED: Final = "indexed"
"""The reason of every image that was cut."""
KEPT_SAMPLE: Final = "kept sample"
"""The reason of every kept sample."""
TO_KEEP: Final = "to be kept"
"""Reason: the sample is kept, so all of the image is needed."""
NO_CROP: Final = "no crop"
"""Reason: the first transform does not crop, so all of the image is needed."""
NO_INDEX: Final = "no index"
"""Reason: there is no crop index of its file, or it cannot be read."""
NOT_IN_INDEX: Final = "not in index"
"""Reason: the crop index does not have the image."""
REFUSED: Final = "refused"
"""Reason: an entry of the image could not be made; a colon and the index's reason follow."""
BAD_ENTRIES: Final = {
    "damaged": "damaged entry",
    "of another version": "entry of another version",
    "of other bytes": "entry of other bytes",
}
"""Reasons: the entry was not used, by the reason of its `CropEntryError`."""
NEARLY_ALL: Final = "nearly all needed"
"""Reason: the crop is so large that a cut would save nothing."""
NOT_JPEG: Final = "not a JPEG"
"""Reason: the image has another format."""
WHOLE_ONLY: Final = "decoded whole only"
"""Reason: a JPEG of a kind that is decoded whole, such as a progressive one; see `aioloader.jpeg.read_frame`."""
COMPLAINT: Final = "complaint"
"""Reason: the decoder complained about the part, so the whole file was decoded."""


def refused(reason: str) -> str:
    """Return the reason of an image that a crop index refused.

    Args:
        reason: as stored in the index.
    """
    return f"{REFUSED}: {' '.join(reason.split())}"


def kind_of(reason: str) -> str:
    """Return a reason without what the index says: one of the constants of this module, or a value of `BAD_ENTRIES`."""
    return REFUSED if reason.startswith(REFUSED) else reason


def warn_of_bad_entries(counts: Mapping[str, int], warned: set[str]) -> None:
    """Issue a warning for each crop index whose entries do not fit their images, once.

    Args:
        counts: number of such entries by the path of the index.
        warned: paths that need no warning any more; the others are added.

    Warns:
        CropIndexWarning: for each other path.
    """
    for path in tuple(counts):
        if path not in warned:
            warned.add(path)
            warn_caller(
                f"{path}: entries of this crop index are damaged, or do not belong to their images; these images are "
                "decoded as without it. `aioloader verify` counts such entries, and `aioloader index --crops --remake` "
                "makes all of them again",
                CropIndexWarning,
            )


# What a pipe holds; what is written beyond is dropped.
_MOST_BYTES = 1 << 16
_MOST_KINDS = 3
_LONGEST = 200
_MOST_IMAGES = 100


class DecoderMessages:
    """Messages of one process. Until `own` is called they are written where they always are."""

    def __init__(self) -> None:
        self._pipe: tuple[int, int] | None = None
        self._lock = threading.Lock()
        self._given: set[str | None] = set()

    def own(self) -> None:
        """Catch messages from now on: descriptor 2 of this process is nobody else's."""
        if self._pipe is None:
            self._pipe = read, write = os.pipe()
            os.set_blocking(read, False)
            os.set_blocking(write, False)

    @contextmanager
    def caught(self, path: str | None) -> Iterator[None]:
        """Catch what is written to descriptor 2.

        An error gets it as a note. Otherwise it is written to standard error in one line, once for a file, and for the
        first 100 images of the process.

        Args:
            path: the file that is decoded; None if it has no name.
        """
        if self._pipe is None or not self._lock.acquire(blocking=False):  # another thread has redirected it
            yield
            return
        text = b""
        try:
            streams = _copy_of(2)
            if streams is None:
                yield
                return
            try:
                os.dup2(self._pipe[1], 2)
                yield
            except BaseException as error:
                if said := self._written():
                    add_note(error, f"the decoder wrote {_summary(said)}")
                raise
            finally:
                os.dup2(streams, 2)
                os.close(streams)
            text = self._written()
        finally:
            self._lock.release()
        if text:
            self._give(path, text)

    def _written(self) -> bytes:
        assert self._pipe is not None
        with suppress(BlockingIOError):
            return os.read(self._pipe[0], _MOST_BYTES)
        return b""

    def _give(self, path: str | None, text: bytes) -> None:
        if (path is not None and path in self._given) or len(self._given) > _MOST_IMAGES:
            return
        # Images without a name count too.
        self._given.add(f"\0{len(self._given)}" if path is None else path)
        line = f"aioloader: {_printable(path or 'an image')}: the decoder wrote {_summary(text)}"
        if len(self._given) > _MOST_IMAGES:
            line = f"aioloader: messages of decoders about more than {_MOST_IMAGES} images are not shown"
        with suppress(OSError, ValueError, AttributeError):  # standard error is full, closed or None
            sys.stderr.write(f"{line}\n")
            sys.stderr.flush()


def _summary(text: bytes) -> str:
    """Return the first different lines, with their numbers, as printable text of limited length."""
    lines = [line for line in text.decode("ascii", "replace").splitlines() if line.strip()]
    kinds = Counter(_printable(line.strip()[:_LONGEST]) for line in lines)
    shown = [
        line if count == 1 else f"{line} ({count} times)" for line, count in list(kinds.items())[:_MOST_KINDS]
    ]
    rest = len(kinds) - len(shown)
    more = [f"and {rest} other lines"] if rest else []
    return "; ".join(shown + more)


def _copy_of(fd: int) -> int | None:
    """Return a copy of a descriptor; None if it is closed, or there may be no more."""
    try:
        return os.dup(fd)
    except OSError:
        return None


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text)


decoder_messages = DecoderMessages()
