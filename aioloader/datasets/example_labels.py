"""Labels of TFRecord records without their images: of each record the bytes before and behind large features are read.

A walk over an example needs the beginnings of its entries only. So the first kilobyte of each record is read, then the
bytes from the end of the feature on that the walk went beyond, and so on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from aioloader.formats.example import ExampleWalk, Wanted, wanted_features
from aioloader.formats.example_feature import feature_value
from aioloader.formats.protobuf import MessageFault
from aioloader.formats.tfrecord import FRAME_NBYTES, HEAD, HEAD_NBYTES, length_crc
from aioloader.foundation.types import Spans

if TYPE_CHECKING:
    from aioloader.abc import FetchingByteSource
    from aioloader.foundation.types import Array, IntArray

FIRST_NBYTES: Final = HEAD_NBYTES + 1024
_NEXT_NBYTES: Final = 1024
# A record with more parts than this is read whole: it has many large features, or very many features.
_MOST_ROUNDS: Final = 6


class _Label:
    """Search for the label of one record."""

    def __init__(self, nbytes: int, wanted: Wanted) -> None:
        self.walk = ExampleWalk(nbytes, wanted)
        self._nbytes = nbytes
        self._key = wanted.keys[0]
        self._feature: tuple[list[tuple[int, int]], bytes] | None = None

    def take(self, window: bytes) -> bool:
        """Take bytes of the example from the walk's place on; return True at its end.

        Raises:
            MessageFault: the bytes are not an example.
        """
        begin = self.walk.at
        done = not self._nbytes or self.walk.take(window)
        parts = self.walk.found.get(self._key)
        if (
            parts is not None
            and len(parts) == 1
            and begin <= parts[0][0]
            and parts[0][1] <= begin + len(window)
        ):
            self._feature = parts, window[parts[0][0] - begin : parts[0][1] - begin]
        return done

    def value(self) -> Any:
        """Return the number or numbers of the feature; None if the windows did not show it all, or it has none.

        Raises:
            MessageFault: the bytes are not a feature.
        """
        if self._feature is None or self._feature[0] is not self.walk.found.get(self._key):
            return None
        data = self._feature[1]
        value = feature_value(memoryview(data), [(0, len(data))])
        return value if isinstance(value, (np.generic, np.ndarray)) and value.size else None

    def next_nbytes(self) -> int:
        """Return the number of bytes to read next."""
        return min(max(_NEXT_NBYTES, self.walk.least), self._nbytes - self.walk.at)


def read_labels(source: FetchingByteSource, spans: Spans, name: str) -> list[Any]:
    """Return the value of a feature of numbers in each record; None where the record has to be read whole. Blocking.

    Args:
        source: of the records.
        spans: of the records, with their heads and CRCs.
        name: of the feature.

    Returns:
        None for a record that is damaged, does not have the feature or has it in an unusual form, too: a reader of the
        whole record returns its value or raises its error.

    Raises:
        OSError: a file cannot be read.
        ShortReadError: a file ends inside a record.
    """
    values: list[Any] = [None] * len(spans)
    wanted = wanted_features((name,))
    labels: dict[int, _Label] = {}
    first = np.minimum(spans.length, FIRST_NBYTES)
    for place, window in enumerate(_windows(source, spans.file, spans.offset, first)):
        nbytes = int(spans.length[place]) - FRAME_NBYTES
        if nbytes >= 0 and HEAD.unpack_from(window) == (nbytes, length_crc(nbytes)):
            labels[place] = _Label(nbytes, wanted)
            _step(labels, place, window[HEAD_NBYTES : HEAD_NBYTES + nbytes], values)
    for _ in range(_MOST_ROUNDS):
        if not labels:
            break
        places = np.array(list(labels), np.int64)
        at = np.array([label.walk.at for label in labels.values()], np.int64)
        nbytes_of = np.array([label.next_nbytes() for label in labels.values()], np.int64)
        windows = _windows(source, spans.file[places], spans.offset[places] + HEAD_NBYTES + at, nbytes_of)
        for place, window in zip(places.tolist(), windows, strict=True):
            _step(labels, place, window, values)
    return values


def _step(labels: dict[int, _Label], place: int, window: bytes, values: list[Any]) -> None:
    """Continue with one record; forget it at its end, or if it is damaged."""
    try:
        if not labels[place].take(window):
            return
        values[place] = labels[place].value()
    except MessageFault:
        pass
    del labels[place]


def _windows(source: FetchingByteSource, file: Array, offset: IntArray, length: IntArray) -> list[bytes]:
    plan, data = source.fetch(Spans(file, offset, length))
    ends = (plan.start + plan.length).tolist()
    return [bytes(data[start:end]) for start, end in zip(plan.start.tolist(), ends, strict=True)]
