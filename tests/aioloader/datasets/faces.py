"""Sets in InsightFace's layout, written as InsightFace's programs write them, and read as its reader reads them."""

from __future__ import annotations

import numbers
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import recordio

LABELS = [0, 0, 0, 1, 1, 2, 2, 2, 2, 3]
"""Labels of the set that most tests read."""


def numbers_record(first: float, second: float, key: int) -> bytes:
    """Return a header, or an identity record."""
    return recordio.pack(recordio.IRHeader(2, [first, second], key, 0), b"")


def write_set(
    folder: Path,
    bodies: Sequence[bytes],
    labels: Sequence[int],
    *,
    order: str = "header first",
    vectors: bool = False,
    shown: str | None = "count",
) -> Path:
    """Write a set with `labels` in rising order; return the folder.

    Args:
        folder: created by the function.
        bodies: encoded images.
        labels: one for each.
        order: "header first": as the keys are; "header last": images, header, identities, as InsightFace's face2rec2
            does; "mixed": the lines of the .idx in another order.
        vectors: images have two labels, [identity, 1].
        shown: text of the file `property`; "count": the correct text; None: no file.
    """
    folder.mkdir(parents=True)
    count = len(bodies)
    ranges: list[tuple[int, int]] = []
    for label in sorted(set(labels)):
        mine = [key for key, own in enumerate(labels, 1) if own == label]
        ranges.append((mine[0], mine[-1] + 1))
    end = count + 1 + len(ranges)
    records = {0: numbers_record(count + 1, end, 0)}
    for key, (body, label) in enumerate(zip(bodies, labels, strict=True), 1):
        value: Any = [float(label), 1.0] if vectors else float(label)
        records[key] = recordio.pack(recordio.IRHeader(2 if vectors else 0, value, key, 0), body)
    for number, (start, stop) in enumerate(ranges):
        records[count + 1 + number] = numbers_record(start, stop, count + 1 + number)
    keys = sorted(records)
    if order == "header last":
        keys = [*range(1, count + 1), 0, *range(count + 1, end)]
    write_records(folder / "train", [(key, records[key]) for key in keys])
    if order == "mixed":
        idx = folder / "train.idx"
        lines = idx.read_text().splitlines()
        idx.write_text("\n".join(lines[1::2] + lines[::2]) + "\n")
    if shown is not None:
        text = f"{len(ranges)},6,8\n" if shown == "count" else shown
        (folder / "property").write_text(text)
    return folder


def plain_set(folder: Path, png: Any, labels: Any, keys: Any = None) -> Path:
    """Write a set without a header; image i is `png(i)`, its key i unless `keys` are passed. Return the folder."""
    folder.mkdir()
    records = [
        (key, recordio.pack((0, label, key, 0), png(number)))
        for number, (key, label) in enumerate(zip(keys or range(len(labels)), labels, strict=True))
    ]
    write_records(folder / "train", records)
    (folder / "property").write_text(f"{max(np.ravel(labels)):.0f},6,8\n{len(labels)}\n")
    return folder


def write_records(path: Path, records: Iterable[tuple[int, bytes]]) -> None:
    """Write path.rec and path.idx."""
    writer = recordio.MXIndexedRecordIO(f"{path}.idx", f"{path}.rec", "w")
    for key, payload in records:
        writer.write_idx(key, payload)
    writer.close()


class Reader:
    """Reader like InsightFace's torch reader, with `recordio` in MXNet's place: (encoded image, label) of sample i."""

    def __init__(self, folder: Path) -> None:
        self.records = recordio.MXIndexedRecordIO(str(folder / "train.idx"), str(folder / "train.rec"), "r")
        header, _ = recordio.unpack(self.records.read_idx(0))
        self.keys = range(1, int(header.label[0])) if header.flag > 0 else list(self.records.keys)

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, index: int) -> tuple[bytes, int]:
        header, body = recordio.unpack(self.records.read_idx(self.keys[index]))
        label = header.label if isinstance(header.label, numbers.Number) else header.label[0]
        return bytes(body), int(label)

    def close(self) -> None:
        self.records.close()
