"""Tars of samples for tests, written by Python's tarfile."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.aioloader.datasets.conftest import png


def write_tar(
    path: Path, members: Iterable[tuple[str, bytes | str]], format: int = tarfile.USTAR_FORMAT, **options: Any
) -> Path:
    """Write members, (name, bytes) each; of a hard link (name, name of the member that it refers to)."""
    with tarfile.open(path, "w", format=format, **options) as archive:
        for name, data in members:
            member = tarfile.TarInfo(name)
            if isinstance(data, str):
                member.type, member.linkname = tarfile.LNKTYPE, data
                archive.addfile(member)
            else:
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
    return path


def members_of(samples: Sequence[tuple[str, Mapping[str, bytes]]]) -> list[tuple[str, bytes]]:
    """Return the members of samples, (key, {extension: bytes}) each."""
    return [(f"{key}.{name}", data) for key, fields in samples for name, data in fields.items()]


def photo(number: int) -> tuple[str, dict[str, bytes]]:
    """Return a sample whose image is `pixels(number)` and whose label is the number."""
    return f"train/{number:04}", {"png": png(number), "cls": b"%d" % number}


def write_photos(folder: Path, count: int = 23, per_shard: int = 5) -> Path:
    """Write such samples as train-0.tar, ... in a new folder."""
    folder.mkdir()
    for shard, low in enumerate(range(0, count, per_shard)):
        samples = [photo(number) for number in range(low, min(low + per_shard, count))]
        write_tar(folder / f"train-{shard}.tar", members_of(samples))
    return folder


def npy(array: Any, **options: Any) -> bytes:
    """Return a .npy file."""
    stream = io.BytesIO()
    np.save(stream, array, **options)
    return stream.getvalue()


def as_json(value: Any) -> bytes:
    """Return a JSON document."""
    return json.dumps(value).encode()
