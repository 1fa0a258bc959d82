"""Small sets of the same samples in every format of shards, written with the facts of docs/formats.md.

A `Sample` has the same parts in each format: an image, a label, and perhaps a text, a JSON value, a second image and
other bytes. A `SetFormat` knows the names of the fields that they become, writes a set and opens it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import aioloader
from aioloader.datasets.shard_dataset import ShardDataset
from tests.aioloader.datasets import parquet_files
from tests.aioloader.datasets.tars import write_tar
from tests.aioloader.formats import mds_sets, tfrecords


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Sample in no format yet; a part that is None is left out.

    Attributes:
        key: of the sample, in formats that have keys.
        image, second: encoded images.
        label: a class.
        text: a caption.
        json: a JSON value.
        data: other bytes.
    """

    key: str
    image: bytes | None = None
    label: int | None = None
    text: str | None = None
    json: Any = None
    second: bytes | None = None
    data: bytes | None = None


PARTS = tuple(part.name for part in fields(Sample))[1:]


@dataclass(frozen=True)
class SetFormat:
    """Format of shards, with the names of the fields of its samples.

    Attributes:
        name: of the format, "tar", "tfrecord", "mds" or "parquet".
        image, label, text, json, second, data: names of the fields of the parts of a sample.
    """

    name: str
    image: str
    label: str
    text: str
    json: str
    second: str
    data: str

    def names(self, sample: Sample) -> dict[str, str]:
        """Return the parts that a sample has, and the names of their fields."""
        names = (self.image, self.label, self.text, self.json, self.second, self.data)
        return {
            part: name for part, name in zip(PARTS, names, strict=True) if sample.__dict__[part] is not None
        }

    def write(self, folder: Path, samples: Sequence[Sample], *, shards: int = 3) -> Path:
        """Write a set; return its folder, which is made if it is missing.

        Args:
            folder: of the set.
            samples: in order. In MDS and Parquet sets all have the parts of the first.
            shards: number of files; each has as many samples, the last one may have fewer.
        """
        folder.mkdir(parents=True, exist_ok=True)
        per_shard = -(-len(samples) // shards)
        if self.name == "mds":
            return self._write_mds(folder, samples, per_shard)
        for number, low in enumerate(range(0, len(samples), per_shard)):
            path = folder / f"train-{number:05}-of-{shards:05}.{self.name}"
            some = samples[low : low + per_shard]
            if self.name == "tar":
                write_tar(path, [member for sample in some for member in self._members(sample)])
            elif self.name == "tfrecord":
                write_tfrecord(path, [self._features(sample) for sample in some])
            else:
                self._write_parquet(path, some)
        return folder

    def _values(self, sample: Sample) -> dict[str, Any]:
        return {
            name: json.dumps(sample.json) if part == "json" else sample.__dict__[part]
            for part, name in self.names(sample).items()
        }

    def _members(self, sample: Sample) -> list[tuple[str, bytes]]:
        values = self._values(sample).items()
        return [
            (f"{sample.key}.{name}", value if isinstance(value, bytes) else str(value).encode())
            for name, value in values
        ]

    def _features(self, sample: Sample) -> dict[str, list[Any]]:
        values = self._values(sample).items()
        return {name: [value.encode() if isinstance(value, str) else value] for name, value in values}

    def _write_mds(self, folder: Path, samples: Sequence[Sample], per_shard: int) -> Path:
        encodings = dict(zip(PARTS, ("jpeg", "int", "str", "json", "jpeg", "bytes"), strict=True))
        columns = {name: encodings[part] for part, name in self.names(samples[0]).items()}
        rows = []
        for sample in samples:
            values = self._values(sample)
            rows.append(
                {
                    name: mds_sets.number(value)
                    if isinstance(value, int)
                    else value.encode()
                    if isinstance(value, str)
                    else value
                    for name, value in values.items()
                }
            )
        return mds_sets.write_set(folder, columns, rows, per_shard=per_shard)

    def _write_parquet(self, path: Path, samples: Sequence[Sample]) -> None:
        values = [self._values(sample) for sample in samples]
        columns = {name: [each[name] for each in values] for name in self.names(samples[0]).values()}
        write_parquet(path, columns, images=[self.image, self.second], label=self.label)

    def open(self, folder: Path, **options: Any) -> ShardDataset:
        """Open a set that `write` wrote."""
        found = aioloader.open_dataset(folder, **options)
        assert isinstance(found, ShardDataset)
        return found


TAR = SetFormat("tar", "jpg", "cls", "txt", "json", "right.jpg", "bin")
TFRECORD = SetFormat(
    "tfrecord", "image/encoded", "image/class/label", "image/caption", "meta", "image/right", "data"
)
MDS = SetFormat("mds", "image", "label", "caption", "meta", "right", "data")
PARQUET = SetFormat("parquet", "image", "label", "caption", "meta", "right", "data")


def _marks(made: SetFormat) -> list[pytest.MarkDecorator]:
    no_pyarrow = made is PARQUET and find_spec("pyarrow") is None
    return [pytest.mark.skip(reason="needs pip install 'aioloader[parquet]'")] if no_pyarrow else []


FORMATS = [pytest.param(made, id=made.name, marks=_marks(made)) for made in (TAR, TFRECORD, MDS, PARQUET)]
"""Parameters of a test of every format."""


def is_readable(made: SetFormat) -> bool:
    """Return False for a format that cannot be read here."""
    return not _marks(made)


# -- files of each format ----------------------------------------------------------------------------------------------


def _feature(values: Sequence[Any]) -> bytes:
    if values and isinstance(values[0], bytes):
        return tfrecords.bytes_list(*values)
    if values and isinstance(values[0], float):
        return tfrecords.float_list(*values)
    return tfrecords.int64_list(*values)


def write_tfrecord(path: Path, samples: Iterable[Mapping[str, Sequence[Any]]]) -> Path:
    """Write a TFRecord file of examples: lists of bytes, of floats or of integers by the names of features."""
    examples = [{name: _feature(values) for name, values in features.items()} for features in samples]
    return tfrecords.write_records(path, map(tfrecords.example, examples))


def write_parquet(
    path: Path,
    columns: Mapping[str, Sequence[Any]],
    *,
    images: Sequence[str] = ("image",),
    label: str = "label",
    classes: Sequence[str] = (),
) -> Path:
    """Write a Parquet file as Hugging Face's `datasets` writes one, with row groups of four rows, not compressed.

    Args:
        path: of the file.
        columns: values by the names of columns.
        images: names of the columns of encoded images, if there are such columns.
        label: name of the column of labels.
        classes: names of the classes.
    """
    import pyarrow as pa

    features: dict[str, Any] = {name: {"_type": "Image"} for name in images if name in columns}
    if classes:
        features[label] = {"_type": "ClassLabel", "names": list(classes)}
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    arrays = {
        name: pa.array([{"bytes": value, "path": None} for value in values], kind)
        if name in images
        else pa.array(values)
        for name, values in columns.items()
    }
    # Without statistics each value is there once, so that it can be found and damaged.
    plain = {"compression": "none", "use_dictionary": False, "write_statistics": False}
    return parquet_files.write(path, arrays, group=4, features=features, **plain)


# -- damage ------------------------------------------------------------------------------------------------------------


def damage(folder: Path, body: bytes) -> tuple[Path, int]:
    """Overwrite the first bytes of an encoded image in the files of a set.

    Returns:
        the file, and the offset of the image in it.
    """
    for path in sorted(each for each in folder.rglob("*") if each.is_file()):
        place = path.read_bytes().find(body)
        if place >= 0:
            with path.open("r+b") as file:
                file.seek(place)
                file.write(bytes(20))
            return path, place
    raise AssertionError(f"no file of {folder} contains the image")
