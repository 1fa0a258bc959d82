"""Labels of a .lst file, looked up by the ids of the records (`path_imglist`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from aioloader.mxnet.base import MXNetError

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ("LabelList", "MissingLabelError")


class MissingLabelError(MXNetError, LookupError):
    """Error raised when a record's id is not in the list of labels. A LookupError too.

    Args:
        key: the id.
        path: the list.

    Attributes:
        key, path: as given.
    """

    def __init__(self, key: int, path: str) -> None:
        super().__init__(
            f"fail to find imagelabel for id {key}: {path} has no line for it; add one, or give no path_imglist to "
            "take the labels of the records"
        )
        self.key = key
        self.path = path

    def __reduce__(self) -> tuple[type[MissingLabelError], tuple[int, str]]:
        return type(self), (self.key, self.path)


class LabelList:
    """Labels of a list. Lines are an id, labels and a path, separated by TABs or, without any TAB, by spaces.

    Args:
        path: the file.
        width: labels of every line; None for any number.

    Attributes:
        widest: the largest number of labels in a line; 0 without lines.

    Raises:
        MXNetError: the file cannot be read, or a line is malformed or has another number of labels.
    """

    def __init__(self, path: str, width: int | None) -> None:
        ids: list[int] = []
        counts: list[int] = []
        labels: list[float] = []
        try:
            with open(path, encoding="utf-8", errors="surrogateescape") as file:
                for number, line in enumerate(file, 1):
                    if line.strip():
                        key, row = _parse(line, width, f"{path}, line {number}")
                        ids.append(key)
                        counts.append(len(row))
                        labels += row
        except OSError as error:
            raise MXNetError(f"path_imglist: {path} cannot be opened: {error.strerror}") from error
        self._path = path
        order = np.argsort(np.array(ids, np.uint64), kind="stable")
        self._ids: npt.NDArray[np.uint64] = np.array(ids, np.uint64)[order]
        ends = np.cumsum(np.array(counts, np.int64))
        self._start = (ends - counts)[order]
        self._end = ends[order]
        with np.errstate(over="ignore"):  # what is too large is infinite, as in MXNet
            self._labels: npt.NDArray[np.float32] = np.array(labels, np.float32)
        self.widest = max(counts, default=0)

    def find(self, key: int) -> npt.NDArray[np.float32]:
        """Return the labels of an id, float32 (n,); of several lines with that id those of the last one.

        Raises:
            MissingLabelError: no line has this id.
        """
        place = int(np.searchsorted(self._ids, np.uint64(key), side="right")) - 1
        if place < 0 or int(self._ids[place]) != key:
            raise MissingLabelError(key, self._path)
        return self._labels[self._start[place] : self._end[place]]


def _parse(line: str, width: int | None, where: str) -> tuple[int, list[float]]:
    fields = [field.strip() for field in line.strip("\r\n").split("\t")] if "\t" in line else line.split()
    try:
        key = _id(fields[0])
        row = [float(field) for field in fields[1:-1]]
        if len(fields) < 3:
            raise ValueError("it should be an id, labels and a path")
    except ValueError as error:
        raise MXNetError(f"{where} ({line.strip()[:80]!r}): {error}") from None
    if width is not None and len(row) != width:
        raise MXNetError(
            f"{where} ({line.strip()[:80]!r}) has {len(row)} labels, but label_width is {width}; set "
            f"label_width={len(row)}"
        )
    return key, row


def _id(text: str) -> int:
    try:
        key = int(text)
    except ValueError:
        number = float(text)  # "12.0", as tables of numbers are written
        key = int(number) if number.is_integer() else -1
    if not 0 <= key < 1 << 64:
        raise ValueError(f"{text.strip()} is no id")
    return key
