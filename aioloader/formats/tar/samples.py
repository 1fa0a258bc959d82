"""Samples of a tar in WebDataset's layout: runs of members with one key. Pure.

The name of a member is its key, a dot and its extension; the key ends before the first dot of its last part.
Members that follow one another and have the same key are a sample. The source is WebDataset's documentation, "The
WebDataset Format", and `base_plus_ext` and `group_by_keys` of its module `tariterators`. As there, extensions are in
lower case, members without a dot are ignored, as are those whose first part begins and ends with ``__``, and a key that
comes again later is another sample. Unlike there, hidden files, whose last part begins with a dot, are ignored; and an
extension that comes twice in a sample is an error of that field of that sample only.

A hard link is read as a file with the data of the member that it refers to, as by Python's tarfile: the last one with
that name in front of the link. A sample that contains such links is read in pieces, into the bytes that
`tar --hard-dereference` writes for it.
"""

from __future__ import annotations

import re
from posixpath import normpath
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import numpy as np

from aioloader.formats.tar.header import BLOCK, as_file, padded
from aioloader.formats.tar.members import (
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

    from aioloader.formats.tar.members import TarMembers
    from aioloader.foundation.types import Array, IntArray

TWICE: Final = 4
"""State of a member whose extension another member of its sample has, too."""
FOLLOWED: Final = 9
"""State of a hard link whose data were found."""
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
_STATES: Final = (PLAIN, EXTENDED, HOLED, TWICE, LINKED, FOLLOWED)
# Links in one sample to one file may have many times its data; see `_follow`.
_MOST_REPEATED_NBYTES: Final = 1 << 30


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
        data: int64 (m,), offset of its data in the file; of a link, of the end of its header.
        size: int64 (m,), bytes of its data.
        state: int8 (m,), `PLAIN`, `EXTENDED`, `HOLED`, `TWICE`, `LINKED` or `FOLLOWED`.
        target: int64 (f,), offset of the data of each `FOLLOWED` link in the file.
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
    target: IntArray
    outside: IntArray

    def __len__(self) -> int:
        return len(self.offset)

    def extensions(self) -> list[bytes]:
        """Return the different extensions."""
        ends = self.extension_ends.tolist()
        text = self.extension_text.tobytes()
        return [text[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]

    @property
    def read_length(self) -> IntArray:
        """Return the bytes of each sample as it is read, int64 (n,): with the data of its links."""
        if not len(self.target):
            return self.length
        added, last = self._added, self.first[1:] - 1
        found = self.length + added[self.first[1:]] - added[self.first[:-1]]
        # Nothing follows the data of the last member, so they are not padded.
        ends = (self.state[last] == FOLLOWED) & (self.data[last] == self.offset + self.length)
        return found - np.where(ends, -self.size[last] % BLOCK, 0)

    @property
    def _added(self) -> IntArray:
        """Return the bytes that the links in front of each member, and in front of the end, add: int64 (m + 1,)."""
        rooms = np.where(self.state == FOLLOWED, self.size + -self.size % BLOCK, 0)
        return np.concatenate(([0], np.cumsum(rooms)))

    def replaced(self, **arrays: Array) -> TarSamples:
        """Return the samples with other arrays."""
        # `_replace` takes the length for the number of arrays.
        return TarSamples(**{**self._asdict(), **arrays})

    def as_stored(self) -> TarSamples:
        """Return the samples with the places of the data in the file, also of links, for `places`."""
        data = self.data.copy()
        data[self.state == FOLLOWED] = self.target
        return self.replaced(data=data, target=self.target[:0])

    def places(self, names: Sequence[Sequence[bytes]]) -> IntArray:
        """Return where fields are in the samples.

        Args:
            names: for each field the extensions that it may have; the first that a sample has counts.

        Returns:
            int64 (n, fields, 3): offset of the data in the bytes of the sample as it is read, their bytes, and the
            state; `MISSING` without them.
        """
        found = np.zeros((len(self), len(names), 3), np.int64)
        found[:, :, 2] = MISSING
        numbers = {name: number for number, name in enumerate(self.extensions())}
        samples = np.repeat(np.arange(len(self)), np.diff(self.first))
        data = self.data
        if len(self.target):
            added = self._added
            data = data + added[:-1] - added[self.first[samples]]
        for column, alternatives in enumerate(names):
            for name in reversed(alternatives):
                if name not in numbers:
                    continue
                members = np.flatnonzero(self.extension == numbers[name])
                rows = samples[members]
                found[rows, column, 0] = data[members] - self.offset[rows]
                found[rows, column, 1] = self.size[members]
                found[rows, column, 2] = self.state[members]
        return found


Pieces: TypeAlias = "list[tuple[int, int, int]]"
"""Pieces of a sample: (place in the sample, offset in the file, bytes) of each."""


class SamplePieces:
    """Pieces of the samples of a tar that contain links: stretches of the file that are read one behind the other.

    Args:
        samples: of the tar.
    """

    def __init__(self, samples: TarSamples) -> None:
        self._samples = samples
        self._length = samples.read_length
        self._followed = np.flatnonzero(samples.state == FOLLOWED)
        self._bounds = np.searchsorted(self._followed, samples.first)

    def find(self, offset: IntArray, length: IntArray) -> list[tuple[int, Pieces]]:
        """Return the place among some spans, and the pieces, of each sample with links; others are parts of samples.

        Args:
            offset, length: int64 (n,), of the spans; the length is that of the whole sample.
        """
        rows = np.searchsorted(self._samples.offset, offset).clip(max=len(self._samples) - 1)
        same = (self._samples.offset[rows] == offset) & (self._length[rows] == length)
        same &= self._bounds[rows] < self._bounds[rows + 1]
        return [(place, self._pieces(int(rows[place]))) for place in np.flatnonzero(same).tolist()]

    def _pieces(self, row: int) -> Pieces:
        samples = self._samples
        place, begin = 0, int(samples.offset[row])
        stop = begin + int(samples.length[row])
        pieces: Pieces = []
        for number in range(*self._bounds[row : row + 2].tolist()):
            member = self._followed[number]
            end, size = int(samples.data[member]), int(samples.size[member])
            pieces.append((place, begin, end - begin))
            place += end - begin
            pieces.append((place, int(samples.target[number]), size))
            place, begin = place + padded(size), end
        return [*pieces, (place, begin, stop - begin)] if stop > begin else pieces

    @staticmethod
    def finish(item: memoryview, pieces: Pieces) -> None:
        """Make the headers of links those of files, in a sample whose pieces are in their places."""
        for place, _, size in pieces[1::2]:  # the others begin with a header of the sample
            item[place - BLOCK : place] = as_file(bytes(item[place - BLOCK : place]), size)


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
    samples = TarSamples(
        offset,
        np.array(ends, np.int64) - offset,
        *_texts(keys),
        *_texts(list(numbers)),
        np.array(first, np.int64),
        np.array(extension, np.int32),
        np.array(data, np.int64),
        np.array(sizes, np.int64),
        np.array(states, np.int8),
        np.empty(0, np.int64),
        np.array(list(outside.values()), np.int64),
    )
    return _follow(samples, members) if members.links else samples


def _follow(samples: TarSamples, members: TarMembers) -> TarSamples:
    """Return the samples with the data of the hard links that refer to a file in front of them.

    Links may refer to links. Those to sparse files, folders and the like are not followed.
    """
    wanted = set(map(normpath, members.links.values()))
    known: dict[bytes, tuple[int, int] | None] = {}
    found: dict[int, tuple[int, int]] = {}  # by the end of the header of the link
    for number, (name, _, at, size, state) in enumerate(zip(*members.columns, strict=True)):
        file = (at, size) if state in (PLAIN, EXTENDED) else None
        if number in members.links:
            file = known.get(normpath(members.links[number]))
            if file is not None:
                found[at] = file
        path = normpath(name)
        if path in wanted:
            known[path] = file
    linked = np.flatnonzero(samples.state == LINKED)
    followed = linked[[at in found for at in samples.data[linked].tolist()]]
    targets = np.array([found[at] for at in samples.data[followed].tolist()], np.int64).reshape(-1, 2)
    samples.state[followed], samples.size[followed] = FOLLOWED, targets[:, 1]
    samples = samples.replaced(target=targets[:, 0])
    # A tar of some megabytes could make samples of any size.
    most = max(_MOST_REPEATED_NBYTES, members.data[-1] + members.sizes[-1])
    excess = samples.read_length - samples.length > most
    refused = np.repeat(excess, np.diff(samples.first))[followed]
    samples.state[followed[refused]], samples.size[followed[refused]] = LINKED, 0
    return samples.replaced(target=samples.target[~refused])


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
        (samples.target, np.int64, np.count_nonzero(samples.state == FOLLOWED)),
        (samples.outside, np.int64, len(OUTSIDE)),
    )
    if any(array.dtype != dtype or array.shape != (length,) for array, dtype, length in shapes):
        return False
    first, followed = samples.first, samples.state == FOLLOWED
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
        for array in (samples.data, samples.size, samples.target, samples.outside)
    ):
        return False
    # They are searched by their offsets.
    if (samples.offset[1:] <= samples.offset[:-1]).any():
        return False
    linked = samples.size[followed]
    if (samples.target + linked > samples.data[followed]).any() or linked.sum(dtype=float) > _MOST_NBYTES:
        return False
    rows = np.repeat(np.arange(count), np.diff(first))
    begin = samples.data - samples.offset[rows]
    size = np.where(followed, 0, samples.size)
    return bool(((begin >= BLOCK) & (begin + size <= samples.length[rows])).all())


_MOST_NBYTES: Final = 1 << 60


def _ascend(ends: IntArray, text: Array) -> bool:
    # Compared and not subtracted: differences of damaged numbers may overflow.
    fits = bool((ends[1:] >= ends[:-1]).all())
    return fits and (ends[0] >= 0 and int(ends[-1]) == len(text) if len(ends) else not len(text))
