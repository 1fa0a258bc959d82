"""Samples of a tar in WebDataset's layout: runs of members with one key. Pure.

The name of a member is its key, a dot and its extension; the key ends before the first dot of its last part.
Members that follow one another and have the same key are a sample. The source is WebDataset's documentation, "The
WebDataset Format", and `base_plus_ext` and `group_by_keys` of its module `tariterators`. As there, extensions are in
lower case, members without a dot are ignored, as are those whose first part begins and ends with ``__``, and a key that
comes again later is another sample. Unlike there, hidden files, whose last part begins with a dot, are ignored; and an
extension that comes twice in a sample is an error of that field of that sample only.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from aioloader.formats.tar import BLOCK
from aioloader.formats.tar_members import (
    EXTENDED,
    FOLDER,
    HOLED,
    IGNORED,
    LINKED,
    PLAIN,
    SPECIAL,
    SYMLINKED,
    UNKNOWN,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aioloader.formats.tar_members import TarMembers
    from aioloader.foundation.types import Array, IntArray

TWICE: Final = 4
"""State of a member whose extension another member of its sample has, too."""
MISSING: Final = -1
"""State of a member that a sample does not have."""

OUTSIDE: Final = {
    PLAIN: "files",
    LINKED: "hard links",
    SYMLINKED: "symbolic links",
    SPECIAL: "devices and pipes",
    UNKNOWN: "members of unknown types",
}
"""Kinds of the members that belong to no sample and are counted, by a state of each. Directories are not counted."""

_META: Final = re.compile(rb"__[^/]*__($|/)")
_STATES: Final = (PLAIN, EXTENDED, HOLED, TWICE, LINKED)


def split_name(name: bytes) -> tuple[bytes, bytes] | None:
    """Return key and extension of a member; None if it belongs to no sample.

    Args:
        name: of the member.

    Returns:
        the key with the folders; the extension without its first dot, in lower case.
    """
    slash = name.rfind(b"/") + 1
    dot = name.find(b".", slash)
    if dot <= slash or (name.startswith(b"__") and _META.match(name)):
        return None
    extension = name[dot + 1 :]
    if extension.isascii():
        return name[:dot], extension.lower()
    text = extension.decode("utf-8", "surrogateescape").lower()
    return name[:dot], text.encode("utf-8", "surrogateescape")


class TarSamples(NamedTuple):
    """Samples of a tar, and their members; the arrays of its index.

    Attributes:
        offset: int64 (n,), where the first header of each sample begins.
        length: int64 (n,), bytes up to the end of the data of its last member.
        key_text, key_ends: uint8 and int64 (n,), the keys one behind the other, and where each ends.
        extension_text, extension_ends: uint8 and int64 (e,), the different extensions, in the same way.
        first: int64 (n + 1,), number of the first member of each sample, and the number of members.
        extension: int32 (m,), number of the extension of each member.
        data: int64 (m,), offset of its data in the file.
        size: int64 (m,), bytes of its data.
        state: int8 (m,), `PLAIN`, `EXTENDED`, `HOLED`, `TWICE` or `LINKED`.
        outside: int64 (5,), numbers of the members that belong to no sample, by the kinds of `OUTSIDE`.
    """

    offset: IntArray
    length: IntArray
    key_text: Array
    key_ends: IntArray
    extension_text: Array
    extension_ends: IntArray
    first: IntArray
    extension: Array
    data: IntArray
    size: IntArray
    state: Array
    outside: IntArray

    def __len__(self) -> int:
        return len(self.offset)

    def extensions(self) -> list[bytes]:
        """Return the different extensions."""
        ends = self.extension_ends.tolist()
        text = self.extension_text.tobytes()
        return [text[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]

    def places(self, names: Sequence[Sequence[bytes]]) -> IntArray:
        """Return where fields are in the samples.

        Args:
            names: for each field the extensions that it may have; the first that a sample has counts.

        Returns:
            int64 (n, fields, 3): offset of the data in the sample, their bytes, and the state; `MISSING` without them.
        """
        found = np.zeros((len(self), len(names), 3), np.int64)
        found[:, :, 2] = MISSING
        numbers = {name: number for number, name in enumerate(self.extensions())}
        samples = np.repeat(np.arange(len(self)), np.diff(self.first))
        for column, alternatives in enumerate(names):
            for name in reversed(alternatives):
                if name not in numbers:
                    continue
                members = np.flatnonzero(self.extension == numbers[name])
                rows = samples[members]
                found[rows, column, 0] = self.data[members] - self.offset[rows]
                found[rows, column, 1] = self.size[members]
                found[rows, column, 2] = self.state[members]
        return found


def group_members(members: TarMembers) -> TarSamples:
    """Return the samples that the members of a tar belong to, in the order of the file."""
    keys: list[bytes] = []
    begins: list[int] = []
    ends: list[int] = []
    first: list[int] = []
    numbers: dict[bytes, int] = {}
    extension: list[int] = []
    data: list[int] = []
    sizes: list[int] = []
    states: list[int] = []
    last: bytes | None = None
    here: dict[int, int] = {}
    outside = dict.fromkeys(OUTSIDE, 0)
    for name, begin, at, size, state in zip(*members.columns, strict=True):
        split = None if state in IGNORED else split_name(name)
        if split is None:
            if state != FOLDER:
                outside[state if state in OUTSIDE else PLAIN] += 1
            continue
        key, word = split
        if key != last:
            last, here = key, {}
            keys.append(key)
            begins.append(begin)
            ends.append(at + size)
            first.append(len(data))
        number = numbers.setdefault(word, len(numbers))
        ends[-1] = at + size
        if number in here:
            states[here[number]] = TWICE
            continue
        here[number] = len(data)
        extension.append(number)
        data.append(at)
        sizes.append(size)
        states.append(state)
    first.append(len(data))
    offset = np.array(begins, np.int64)
    return TarSamples(
        offset,
        np.array(ends, np.int64) - offset,
        *_texts(keys),
        *_texts(list(numbers)),
        np.array(first, np.int64),
        np.array(extension, np.int32),
        np.array(data, np.int64),
        np.array(sizes, np.int64),
        np.array(states, np.int8),
        np.array(list(outside.values()), np.int64),
    )


def _texts(words: Sequence[bytes]) -> tuple[Array, IntArray]:
    """Return words one behind the other, and where each ends."""
    ends: IntArray = np.cumsum([len(word) for word in words], dtype=np.int64)
    return np.frombuffer(b"".join(words), np.uint8), ends


def samples_of_arrays(arrays: Mapping[str, Array]) -> TarSamples | None:
    """Return the samples of an index; None if its arrays contradict each other.

    Args:
        arrays: of the index, named as the attributes of `TarSamples`.
    """
    try:
        found = TarSamples(**{name: arrays[name] for name in TarSamples._fields})
    except KeyError:
        return None
    return found if _agree(found) else None


def _agree(samples: TarSamples) -> bool:
    count, members = len(samples.offset), len(samples.data)
    shapes = (
        (samples.offset, np.int64, count),
        (samples.length, np.int64, count),
        (samples.key_ends, np.int64, count),
        (samples.key_text, np.uint8, samples.key_text.size),
        (samples.extension_ends, np.int64, samples.extension_ends.size),
        (samples.extension_text, np.uint8, samples.extension_text.size),
        (samples.first, np.int64, count + 1),
        (samples.extension, np.int32, members),
        (samples.data, np.int64, members),
        (samples.size, np.int64, members),
        (samples.state, np.int8, members),
        (samples.outside, np.int64, len(OUTSIDE)),
    )
    if any(array.dtype != dtype or array.shape != (length,) for array, dtype, length in shapes):
        return False
    first = samples.first
    if first[0] != 0 or first[-1] != members or (first[1:] <= first[:-1]).any():
        return False
    if not (
        _ascend(samples.key_ends, samples.key_text)
        and _ascend(samples.extension_ends, samples.extension_text)
    ):
        return False
    if ((samples.extension < 0) | (samples.extension >= len(samples.extension_ends))).any():
        return False
    if not np.isin(samples.state, _STATES).all():
        return False
    # Differences of offsets and lengths cannot overflow once both are within the largest file.
    if any(((array < 0) | (array > _MOST_NBYTES)).any() for array in (samples.offset, samples.length)):
        return False
    if any(
        ((array < 0) | (array > _MOST_NBYTES)).any()
        for array in (samples.data, samples.size, samples.outside)
    ):
        return False
    rows = np.repeat(np.arange(count), np.diff(first))
    begin = samples.data - samples.offset[rows]
    return bool(((begin >= BLOCK) & (begin + samples.size <= samples.length[rows])).all())


_MOST_NBYTES: Final = 1 << 60


def _ascend(ends: IntArray, text: Array) -> bool:
    # Compared and not subtracted: differences of damaged numbers may overflow.
    fits = bool((ends[1:] >= ends[:-1]).all())
    return fits and (ends[0] >= 0 and int(ends[-1]) == len(text) if len(ends) else not len(text))
