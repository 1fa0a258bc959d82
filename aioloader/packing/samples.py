"""Samples of a dataset as images to be packed: their bytes as stored, their labels, and chosen other fields."""

from __future__ import annotations

import base64
import json
import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.abc import Decoder
from aioloader.crop_index.layout import FOLDER
from aioloader.datasets.decoding import parser_of
from aioloader.datasets.fields import FieldKind, FieldReader, as_label, field_value
from aioloader.datasets.redecoded import RedecodedDataset, own_extra
from aioloader.datasets.resolve import fingerprint
from aioloader.datasets.shards import files_of
from aioloader.errors import SampleFormatError
from aioloader.packing.lists import Listed, label_fault
from aioloader.sample_index import shard_state
from aioloader.storage.urls import is_url, name_of, redact_url

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import TypeAlias

    from aioloader.datasets.decoding import ImageDecoder
    from aioloader.datasets.files import FileDataset
    from aioloader.datasets.shard_dataset import ShardDataset
    from aioloader.foundation.types import Array, IntArray, ItemLocation
    from aioloader.packing.encoding import Encoded, Encoding

    # Image, labels, and other fields as JSON.
    _Parts: TypeAlias = tuple[Any, tuple[float, ...], str | None]

_UNLABELLED = (0.0,)
_ADVICE = (
    "pass a field with numbers as label (--label); no_label (--no-label) packs all images with the label 0"
)
_LOOKED_AT = 4096
_USUAL_NBYTES = 1 << 17
_IN_LISTS = str.maketrans("\t\n\r", "   ")


class EncodedSample:
    """Image to be packed. No dataclass, so that a loader takes it as one object and does not copy its parts.

    Args:
        number: of the image in the source.
        image: the encoded image.
    """

    __slots__ = ("image", "number")

    def __init__(self, number: int, image: Encoded) -> None:
        self.number = number
        self.image = image


class Samples:
    """Samples of a dataset, which are read while they are packed.

    Args:
        dataset: over shards, record files or a folder.
        labelled: False: every image gets the label 0, and labels are not read.
        fields: names of the fields that are kept next to the images.

    Raises:
        TypeError: samples of this dataset have no fields.
    """

    def __init__(
        self,
        dataset: FileDataset,
        *,
        labelled: bool = True,
        fields: tuple[str, ...] = (),
    ) -> None:
        self._parts: _FieldParts | _ParsedParts
        shards: ShardDataset | None = dataset.as_shards()
        self._dataset = dataset if shards is None else shards
        if shards is not None:
            label = shards.label_field if labelled else None
            self._parts = _FieldParts(shards.reader, shards.image_field, label, fields)
        else:
            if fields:
                raise TypeError(
                    f"samples of {type(dataset).__name__} have an image and a label, and no other fields"
                )
            self._parts = _ParsedParts(parser_of(dataset), labelled)

    def __len__(self) -> int:
        return len(self._dataset)

    @property
    def classes(self) -> tuple[str, ...]:
        """Return the names of the classes, in the order of the labels, if the dataset has names."""
        return tuple(self._dataset.class_names())

    def listed(self, number: int) -> Listed:
        """Return the name of a sample; its labels are known when it is read."""
        key, path, _ = self._dataset.location(number)
        name = path or ""
        if key is None:  # an image file: its class and its name
            name = "/".join(name.split("/")[-2:])
        else:
            name = f"{name_of(name)}/{key}"
        return Listed(None, (), name.translate(_IN_LISTS))

    def place(self, number: int) -> str:
        """Return the name of a sample for error messages: its file and its key."""
        key, path, _ = self._dataset.location(number)
        return str(path) if key is None else f"{path}:{key}"

    def facts(self) -> Iterator[object]:
        """Yield facts that change with the samples: the state of each file, and the order of the samples."""
        yield fingerprint(self._dataset)
        if self._dataset.crop_files().kind == FOLDER:
            for number, label in enumerate(self._dataset.labels().tolist()):
                yield self.place(number), label, self._dataset.file_nbytes(number)
            return
        paths = self._dataset.crop_files().paths
        versions: Sequence[Any] = (None,) * len(paths)
        if any(map(is_url, paths)):
            from aioloader.storage.remote.opening import describe_all

            versions = describe_all(paths)
        for path, version in zip(paths, versions, strict=True):
            yield redact_url(path), *(shard_state(each, version) for each in files_of(path))

    def mean_nbytes(self) -> int:
        """Return the approximate mean size of a sample in bytes."""
        count = len(self)
        looked = np.unique(np.linspace(0, max(0, count - 1), min(count, _LOOKED_AT)).astype(np.int64))
        length = self._dataset.spans(looked).length
        known = length[length >= 0]
        return int(known.mean()) if len(known) else _USUAL_NBYTES

    def overlaps(self, path: str | os.PathLike[str]) -> bool:
        """Return True if a path is one of the files of the samples."""
        paths = self._dataset.crop_files().paths
        return os.path.exists(path) and any(
            not is_url(each) and os.path.samefile(each, path) for each in paths
        )

    def encoded(self, encode: Encoding) -> FileDataset:
        """Return the dataset whose samples are `EncodedSample`.

        Args:
            encode: encodes each image.
        """
        return RedecodedDataset(self._dataset, _SampleEncoder(self._parts, encode), _number)


# -- parts of a sample -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _ParsedParts:
    decoder: ImageDecoder
    labelled: bool

    def __call__(self, data: memoryview, extra: Any, location: ItemLocation) -> _Parts:
        image, label = self.decoder.parse(data, extra, location)
        return image, label_numbers(label, location) if self.labelled else _UNLABELLED, None


@dataclass(frozen=True)
class _FieldParts:
    reader: FieldReader
    image: str
    label: str | None
    fields: tuple[str, ...]

    def __call__(self, data: memoryview, extra: Any, location: ItemLocation) -> _Parts:
        labelled = () if self.label is None else (self.label,)
        image, *values = self.reader.read(data, extra, location, (self.image, *labelled, *self.fields))
        labels: tuple[float, ...] = _UNLABELLED
        if self.label is not None:
            found = field_value(values[0], self.reader.kind(self.label), self.label, location)
            labels = label_numbers(as_label(found, None, self.label, location, advice=_ADVICE), location)
        others = values[len(labelled) :]
        return image, labels, self._json(others, location) if self.fields else None

    def _json(self, values: Sequence[Any], location: ItemLocation) -> str:
        found = {}
        for name, value in zip(self.fields, values, strict=True):
            kind = self.reader.kind(name)
            found[name] = value if kind is FieldKind.IMAGE else field_value(value, kind, name, location)
        return json.dumps(found, default=_plain, separators=(",", ":"))


def _plain(value: Any) -> Any:
    """Return a value that JSON does not have as one that it has."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return {"base64": base64.b64encode(value).decode("ascii")}
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    return str(value)


def label_numbers(label: Any, location: ItemLocation) -> tuple[float, ...]:
    """Return a label as the numbers that a record stores.

    Args:
        label: a number, or numbers, (n,).
        location: of the sample, for errors.

    Raises:
        SampleFormatError: it has another shape, or a number that float32 does not have.
    """
    values = np.asarray(label)
    reason = ""
    if values.ndim > 1 or not values.size:
        reason = f"has the shape {values.shape}, but a record has one number, or one row of numbers"
    numbers: list[Any] = values.ravel().tolist()
    reason = next(filter(None, map(label_fault, numbers)), reason)
    if reason:
        raise SampleFormatError(f"its label {reason}", **location._asdict())
    return tuple(map(float, numbers))


# -- dataset of encoded samples ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _SampleEncoder(Decoder[EncodedSample]):
    """Decoder of the bytes of a sample to an `EncodedSample`.

    Attributes:
        parts: finds image, labels and fields.
        encode: encodes the image.
    """

    parts: _FieldParts | _ParsedParts
    encode: Encoding

    def __call__(self, data: memoryview, extra: Any, location: ItemLocation) -> EncodedSample:
        image, labels, fields = self.parts(data, own_extra(extra), location)
        if isinstance(image, np.ndarray):
            encoded = self._of_pixels(image, location)
        elif isinstance(image, list):
            raise SampleFormatError(
                f"it has {len(image)} images in one field, and a record has one",
                **location._asdict(),
            )
        else:
            encoded = self.encode(bytes(image))
        return EncodedSample(int(extra["number"]), replace(encoded, labels=labels, fields=fields))

    def _of_pixels(self, image: Array, location: ItemLocation) -> Encoded:
        if self.encode.name == "keep":
            raise SampleFormatError(
                "its image is stored as pixels, which have no encoding that could be kept: choose one, such as png",
                **location._asdict(),
            )
        return self.encode.of_pixels(np.array(image), image.nbytes)


def _number(indices: IntArray) -> dict[str, Array]:
    return {"number": indices}
