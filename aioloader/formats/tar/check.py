"""Check of a whole tar: its headers, its end, and the members of every sample."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioloader.errors import SampleFormatError
from aioloader.formats.tar.fields import REASONS
from aioloader.formats.tar.header import BLOCK, find_header
from aioloader.formats.tar.members import TarChain, TarMembers
from aioloader.formats.tar.samples import TarSamples, group_members

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator


def check_tar(
    blocks: Iterable[bytes], path: str, nbytes: int, tick: Callable[[int], object] | None
) -> Generator[SampleFormatError, None, int]:
    """Read a tar once, and yield each fault of it; see `aioloader.datasets.shard_dataset.ShardDataset.check_shard`.

    Behind a damaged header the next header is searched, so that faults further on are found, too.

    Args:
        blocks: of the whole file.
        path: of the file, for errors.
        nbytes: of the file.
        tick: called after each block with the number of bytes so far.
    """
    walk = _Walk(path, nbytes)
    reached = 0
    for block in blocks:
        reached += len(block)
        yield from walk.feed(block)
        if tick is not None:
            tick(reached)
    if reached < nbytes:
        yield SampleFormatError(
            "the file shrank while it was read",
            path=path,
            expected=f"{nbytes} bytes",
            found=f"{reached} bytes",
        )
    elif not nbytes:
        yield from walk.feed(b"")
    return (yield from _check_samples(walk.finish(), path))


class _Walk:
    """Walk along the headers of a tar that arrives in blocks. Holds little more than a block and the members so far.

    Args:
        path: of the file, for errors.
        nbytes: of the file.
    """

    def __init__(self, path: str, nbytes: int) -> None:
        self._path = path
        self._nbytes = nbytes
        self._members = TarMembers()
        self._chain: TarChain | None = TarChain(path, nbytes)
        self._held = b""
        self._begin = 0  # place of the held bytes in the file
        self._searched = 0  # place from which on the next header is searched

    def feed(self, block: bytes) -> Iterator[SampleFormatError]:
        """Yield the faults of the headers in the bytes so far."""
        self._held += block
        while True:
            chain = self._chain
            if chain is None:
                if not self._search():
                    return
                continue
            end = self._begin + len(self._held)
            if not chain.done:
                if chain.at + chain.needs > end:
                    self._forget(min(chain.at, end))
                    return
                self._forget(chain.at)
                chain.take(self._held, self._begin)
                chain.check()  # now, while the bytes behind a fault are held
                continue
            if chain.fault is None:
                self._forget(end)
                return
            yield chain.fault
            self._members.join(chain.members)
            self._chain = None
            self._searched = chain.at + BLOCK

    def _search(self) -> bool:
        """Begin a chain at the next header in the held bytes, if there is one."""
        end = self._begin + len(self._held)
        self._forget(min(self._searched, end))
        if self._searched > end:
            return False
        place = find_header(self._held)
        if place is None:
            self._searched += len(self._held) // BLOCK * BLOCK
            self._forget(self._searched)
            return False
        self._forget(self._searched + place)
        self._chain = TarChain(self._path, self._nbytes, self._begin)
        return True

    def _forget(self, place: int) -> None:
        """Drop the held bytes up to a place in the file."""
        if place > self._begin:
            self._held = self._held[place - self._begin :]
            self._begin = place

    def finish(self) -> TarSamples:
        """Return the samples of all members."""
        if self._chain is not None:
            self._chain.check()
            self._members.join(self._chain.members)
            self._chain = None
        return group_members(self._members)


def _check_samples(samples: TarSamples, path: str) -> Generator[SampleFormatError, None, int]:
    """Yield the faults of the members of samples; return the number of samples without one."""
    seen: set[bytes] = set()
    valid = 0
    words = samples.extensions()
    text, begin = samples.key_text.tobytes(), 0
    bounds = samples.first.tolist()
    columns = (samples.extension.tolist(), samples.data.tolist(), samples.state.tolist())
    for row, end in enumerate(samples.key_ends.tolist()):
        key, begin = text[begin:end], end
        offset = int(samples.offset[row])
        name = key.decode("utf-8", "surrogateescape")
        faults: list[tuple[str, int]] = []
        if key in seen:
            faults.append(
                (
                    f"the sample {name!r} was there before: members of one sample that are not together are several "
                    "samples; pack the files again with `tar --sort=name`",
                    offset,
                )
            )
        seen.add(key)
        for number in range(bounds[row], bounds[row + 1]):
            extension, data, state = (column[number] for column in columns)
            if state in REASONS:
                field = words[extension].decode("utf-8", "surrogateescape")
                faults.append((f"the field {field!r} of the sample {name!r} {REASONS[state]}", data))
        for reason, at in faults:
            yield SampleFormatError(reason, path=path, offset=at, key=name)
        valid += not faults
    return valid
