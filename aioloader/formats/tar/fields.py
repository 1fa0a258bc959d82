"""Arrays in NumPy's file format (.npy). Pure.

The source is NumPy's reference, "numpy.lib.format", versions 1.0 to 3.0 of the format. Arrays of objects, which are
pickled, and arrays with named fields are refused.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from aioloader.datasets.fields import FieldKind, field_value
from aioloader.errors import MissingFieldError, SampleFormatError
from aioloader.formats.tar.header import BLOCK, padded
from aioloader.formats.tar.members import HOLED, LINKED, TarChain
from aioloader.formats.tar.samples import MISSING, TWICE, TarSamples, group_members

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioloader.foundation.types import Array, IntArray, ItemLocation


_MAGIC: Final = b"\x93NUMPY"
_MOST_HEADER_NBYTES: Final = 1 << 14
_MOST_EXTENT: Final = 1 << 48
# NumPy writes the keys in this order.
_HEADER: Final = re.compile(
    rb"\{\s*'descr'\s*:\s*'([<>|=]?[A-Za-z?][0-9]*(?:\[[^'\]]*\])?)'\s*,\s*'fortran_order'\s*:\s*(True|False)\s*,"
    rb"\s*'shape'\s*:\s*\(([0-9, ]*)\)\s*,?\s*\}\s*"
)


def parse_npy(data: memoryview) -> Array:
    """Return the array in a .npy file, a copy.

    The size in the header is compared with the bytes before memory is allocated.

    Args:
        data: the whole file.

    Raises:
        ValueError: it is not such a file, is damaged or cut, or has Python objects or named fields.
    """
    if bytes(data[:6]) != _MAGIC:
        raise ValueError(f"it begins with {bytes(data[:6])!r}")
    version = bytes(data[6:7])
    if version not in (b"\x01", b"\x02", b"\x03"):
        raise ValueError(f"its version of the format is {version.hex() or 'missing'}")
    begin = 10 if version == b"\x01" else 12
    end = begin + int.from_bytes(data[8:begin], "little")
    if end > min(len(data), _MOST_HEADER_NBYTES):
        raise ValueError("its header is cut, or too long")
    dtype, by_columns, shape = _parse_header(bytes(data[begin:end]))
    if not dtype.itemsize or max(shape, default=0) > _MOST_EXTENT:
        raise ValueError(f"an array of {dtype} {shape} is impossible")
    count, rest = math.prod(shape), data[end:]
    if count * dtype.itemsize > len(rest):
        raise ValueError(
            f"an array of {dtype} {shape} has {count * dtype.itemsize} bytes, and there are {len(rest)}"
        )
    values = np.frombuffer(rest, dtype, count) if count else np.empty(0, dtype)
    array: Array = values.reshape(shape, order="F" if by_columns else "C").copy(order="K")
    return array


def _parse_header(text: bytes) -> tuple[np.dtype[Any], bool, tuple[int, ...]]:
    found = _HEADER.fullmatch(text)
    if found is None:
        raise ValueError(f"its header is damaged, or describes named fields: {text[:80]!r}")
    descr, by_columns, extents = found.groups()
    try:
        dtype: np.dtype[Any] = np.dtype(descr.decode())
    except TypeError as error:
        raise ValueError(str(error)) from None
    if dtype.hasobject:
        raise ValueError(
            "it has Python objects, which are pickled: unpickling runs code that the data contain"
        )
    return dtype, by_columns == b"True", tuple(int(extent) for extent in extents.replace(b",", b" ").split())


KEY: Final = "__key__"
"""Name of the field that is the key of the sample."""
IMAGES: Final = (
    *("jpg", "jpeg", "png", "webp", "avif", "bmp", "gif"),
    *("jp2", "tif", "tiff", "ppm", "pgm", "pbm", "pnm"),
)
"""Extensions of images that are decoded, in the order in which they are searched."""

_KINDS: Final = {
    **dict.fromkeys(IMAGES, FieldKind.IMAGE),
    **dict.fromkeys(("json", "jsn"), FieldKind.JSON),
    **dict.fromkeys(("txt", "text", "transcript"), FieldKind.TEXT),
    **dict.fromkeys(("cls", "cls2", "index", "inx", "id", "count"), FieldKind.INTEGER),
    "npy": FieldKind.VALUE,
}
_NPY: Final = "npy"
# Places that a sample does not have, or whose bytes are not the data of the field.
_UNREADABLE: Final = (MISSING, HOLED, TWICE, LINKED)
REASONS: Final = {
    TWICE: "is there more than once",
    HOLED: "is a sparse file, which is stored without its holes: extract the tar and pack the files again without "
    "--sparse",
    LINKED: "is a hard link to a member that cannot be read: one that is not in front of it in the tar, or is a sparse "
    "file or no file at all. Extract the tar and pack the files again with --hard-dereference",
}
"""Reasons why a member that is there cannot be read, by its state."""
# Zeros behind the sample, so that its last member is not the last of the file.
_BEHIND: Final = 2 * BLOCK


def extension_kind(name: str) -> FieldKind:
    """Return the kind of a member by the last part of its extension: "seg.png" is an image."""
    return _KINDS.get(name.rpartition(".")[2].lower(), FieldKind.BYTES)


def alternatives(name: str) -> tuple[str, ...]:
    """Return the extensions that a field may have, "jpg;png": the first that a sample has counts."""
    return tuple(name.split(";"))


def compact_places(samples: TarSamples, groups: Sequence[tuple[str, ...]]) -> Array:
    """Return where fields are in the samples, for `TarFieldReader.read`.

    Args:
        samples: of a tar.
        groups: extensions of each field; the first that a sample has counts.

    Returns:
        int32 or int64 (n, groups, 2): offset in the bytes of the sample as it is read, and bytes. A field that cannot
        be read has a negative offset, ``-1 - i`` for the i-th of the reasons `MISSING`, `HOLED`, `TWICE` and `LINKED`.
    """
    found = samples.places(_all_encoded(groups))
    places, state = found[:, :, :2], found[:, :, 2]
    for number, reason in enumerate(_UNREADABLE):
        places[:, :, 0][state == reason] = -1 - number
    small = len(samples) == 0 or int(samples.read_length.max()) < 1 << 31
    return places.astype(np.int32 if small else np.int64)


def stored_places(samples: TarSamples, groups: Sequence[tuple[str, ...]]) -> IntArray:
    """Return where the data of fields are in the file, also those of links, int64 (n, groups); see `compact_places`."""
    return samples.as_stored().places(_all_encoded(groups))[:, :, 0] + samples.offset[:, None]


def _all_encoded(groups: Sequence[tuple[str, ...]]) -> list[list[bytes]]:
    return [[_encoded(name) for name in names] for names in groups]


def _encoded(name: str) -> bytes:
    return name.lower().encode("utf-8", "surrogateescape")


@dataclass(frozen=True)
class TarFieldReader:
    """Reader of the members of samples; see `aioloader.datasets.fields.FieldReader`.

    The extra of a sample has the places of the fields that were asked for (`compact_places` of `groups`), so that no
    header is parsed for them. Other fields are found by the headers, which are in the bytes of the sample.

    Attributes:
        fields: names of the fields whose places are the extra.
        images: names of fields that are images, for every extension.
    """

    fields: tuple[str, ...]
    images: frozenset[str] = frozenset()

    @cached_property
    def groups(self) -> tuple[tuple[str, ...], ...]:
        """Return the extensions of each place: those of one kind together, so that the place shows the kind."""
        return tuple(names for field in self.fields for names in self._groups_of(field))

    def _groups_of(self, field: str) -> list[tuple[str, ...]]:
        if field == KEY:
            return []
        names = alternatives(field)
        if field in self.images:
            return [names]
        return [tuple(group) for _, group in groupby(names, self._decoding)]

    @cached_property
    def _columns(self) -> dict[str, tuple[int, ...]]:
        """Return the numbers of the places of each field."""
        found: dict[str, tuple[int, ...]] = {}
        number = 0
        for field in self.fields:
            count = len(self._groups_of(field))
            found[field] = tuple(range(number, number + count))
            number += count
        return found

    def columns(self, field: str) -> tuple[int, ...]:
        """Return the numbers of the places of a field in the extra."""
        return self._columns[field]

    def _decoding(self, name: str) -> tuple[FieldKind, bool]:
        """Return the kind of a member, and whether it is an array in NumPy's format."""
        return extension_kind(name), name.rpartition(".")[2].lower() == _NPY

    def kind(self, name: str) -> FieldKind:
        """Return the kind of a field; `VALUE` for one whose alternatives have several kinds."""
        found = self._kinds.get(name)
        return self._kind_of(name) if found is None else found

    @cached_property
    def _kinds(self) -> dict[str, FieldKind]:
        # Called for each sample; small images are decoded in some microseconds.
        return {field: self._kind_of(field) for field in self.fields}

    def _kind_of(self, name: str) -> FieldKind:
        if name in self.images:
            return FieldKind.IMAGE
        kinds = {extension_kind(each) for each in alternatives(name)}
        return kinds.pop() if len(kinds) == 1 and name != KEY else FieldKind.VALUE

    def read(self, data: memoryview, extra: Any, location: ItemLocation, names: tuple[str, ...]) -> list[Any]:
        """Return the values of some fields.

        Raises:
            MissingFieldError: the sample does not have the field.
            SampleFormatError: the field cannot be read: it is a sparse file or a hard link to none, is there twice
                or is not an array; or the bytes are not those of a sample.
        """
        places = None if extra is None else extra.tolist()
        values: list[Any] = []
        for name in names:
            columns = self._columns.get(name)
            if columns is None or places is None or not columns:
                values.append(self._found(data, location, name))
                continue
            for column in columns:
                begin, nbytes = places[column]
                if begin != -1:
                    break
            if begin < 0:
                raise self._unreadable(data, location, name, _UNREADABLE[-1 - begin])
            values.append(self._value(data[begin : begin + nbytes], name, self._decodings[column], location))
        return values

    @cached_property
    def _decodings(self) -> tuple[tuple[FieldKind, bool], ...]:
        return tuple(self._decoding(names[0]) for names in self.groups)

    def _value(
        self, data: memoryview, name: str, decoding: tuple[FieldKind, bool], location: ItemLocation
    ) -> Any:
        """Return the value of a field: its bytes, or the decoded value of one whose kind is `VALUE`.

        Args:
            data: its bytes.
            name: of the field.
            decoding: of its member, see `_decoding`.
            location: of the sample, for errors.
        """
        if self.kind(name) is not FieldKind.VALUE:
            return data
        kind, is_array = decoding
        if kind is FieldKind.IMAGE:  # an alternative to a text, for example
            return bytes(data)
        if not is_array:
            return field_value(data, kind, name, location)
        try:
            return parse_npy(data)
        except (ValueError, OverflowError, RecursionError, MemoryError) as error:
            raise SampleFormatError(
                f"the field {name!r} is not an array in NumPy's format: {error}",
                **location._asdict(),
            ) from None

    def _unreadable(
        self, data: memoryview, location: ItemLocation, name: str, state: int
    ) -> MissingFieldError | SampleFormatError:
        if state == MISSING:
            found = self.names(data, None, location) if len(data) else ()
            return MissingFieldError(name, found, path=location.path, key=location.key)
        return SampleFormatError(
            f"the field {name!r} {REASONS[state]}",
            **location._asdict(),
        )

    # -- headers -------------------------------------------------------------------------------------------------------

    def names(self, data: memoryview, extra: Any, location: ItemLocation) -> tuple[str, ...]:
        """Return the names of all fields, by the headers.

        Raises:
            SampleFormatError: the bytes are not those of a sample.
        """
        return _extensions(self._members(data, location))

    def _found(self, data: memoryview, location: ItemLocation, name: str) -> Any:
        """Return the value of a field that is found by the headers."""
        samples = self._members(data, location)
        if name == KEY:
            return samples.key_text.tobytes().decode("utf-8", "surrogateescape")
        for names in self._groups_of(name):
            ((begin, nbytes, state),) = samples.places([[_encoded(each) for each in names]])[0].tolist()
            if state in _UNREADABLE[1:]:
                raise self._unreadable(data, location, name, state)
            if state != MISSING:
                return self._value(data[begin : begin + nbytes], name, self._decoding(names[0]), location)
        raise MissingFieldError(name, _extensions(samples), path=location.path, key=location.key)

    def _members(self, data: memoryview, location: ItemLocation) -> TarSamples:
        """Return the sample whose headers and data these bytes are."""
        chain = TarChain(location.path or "", padded(len(data)) + _BEHIND, end=len(data))
        while not chain.done:
            # The data of the last member are not padded here, as they are in the file.
            chain.take(bytes(data[chain.at : chain.at + chain.needs]).ljust(chain.needs, b"\0"), chain.at)
        chain.check()
        chain.members.links.clear()  # those that can be followed are files here
        samples = group_members(chain.members)
        if chain.fault is not None or len(samples) != 1:
            raise SampleFormatError(
                "these bytes are not a sample of a tar"
                + ("" if chain.fault is None else f": {chain.fault.reason}")
                + "; the file was written after its index was made, so open it again",
                **location._asdict(),
            )
        return samples


def _extensions(samples: TarSamples) -> tuple[str, ...]:
    words = [word.decode("utf-8", "surrogateescape") for word in samples.extensions()]
    return tuple(words[number] for number in samples.extension.tolist())
