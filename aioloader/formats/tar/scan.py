"""Scan of a tar for its members with few bytes and many reads at a time. Pure: the caller reads.

The members of a tar are a chain of headers, so each read would wait for the one before. The scan cuts the file into
parts, searches a header near the beginning of each by its mark and its checksum, and follows the chains from there at
the same time. Data may contain headers, too, for example those of another tar. So the chain of a part counts only from
the header on at which the chain before it arrives; a chain that arrives at none goes on through the next part.

The bytes that are read are kept below a share of the file where its members allow it: after the first members the scan
decides how much one read fetches, and how many bytes the searches may take, which decides the number of parts. Searches
may always take 1 MiB, so that a small file is cut into parts, too.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from aioloader.formats.tar.header import BLOCK, find_header
from aioloader.formats.tar.members import TarChain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioloader.formats.tar.members import TarMembers

_SHARE: Final = 0.0098
"""Bytes that are read, as a share of the file, where this is possible."""
_SEARCHED_NBYTES: Final = 1 << 20
"""Bytes that searches may take in any file: fetching them takes no longer than a few steps of a chain."""
_SEARCHED_SHARE: Final = 0.1
"""Bytes that searches may take, as a share of those of the headers, where these alone exceed `_SHARE`."""
# Reading a gap of this size takes about as long as a further request.
_SMALL_GAP: Final = 24 << 10
_FIRST_NBYTES: Final = 4096
_LEARNED_NBYTES: Final = 1 << 20
_MOST_NBYTES: Final = 1 << 20
_MOST_RUN_NBYTES: Final = 64 << 10
_SEARCH_NBYTES: Final = 16 << 10
_SEARCHED_STRIDES: Final = 8
_MOST_LANES: Final = 64
_LEAST_RUNS: Final = 8
_MOST_TRUST: Final = 4


class Reads(NamedTuple):
    """Reads at the beginning of a run of small members, such as the label behind each image.

    Attributes:
        nbytes: of one read.
        run: distances between the headers of a run, for reading them at the same time where they should be; empty: the
            whole run is one read.
        share: bytes that are read, as a share of the file.
    """

    nbytes: int
    run: tuple[int, ...] = ()
    share: float = 1.0


def choose_reads(strides: Sequence[int]) -> Reads:
    """Choose how the headers of a file are read.

    Args:
        strides: the distance of each of its first headers to the next one.
    """
    runs: list[tuple[int, ...]] = [()]
    for stride in strides:
        if stride < _SMALL_GAP:
            runs[-1] += (stride,)
        else:
            runs.append(())
    if len(runs) == 1:
        return Reads(_MOST_RUN_NBYTES)
    run = max(runs, key=sum)
    nbytes = min(sum(run) + BLOCK, _MOST_RUN_NBYTES)
    total = sum(strides)
    together, apart = nbytes * (len(runs) - 1) / total, BLOCK * len(strides) / total
    if together <= _SHARE or apart > _SHARE:
        return Reads(nbytes, share=together)
    return Reads(BLOCK, run, apart)


class TarLane:
    """Part of a file that is read one step after the other: the search for a header in it, and the chain from there.

    Args:
        chain: begins where the part does.
        searched: bytes in which a header is searched; 0: the part begins with one.
        reads: how headers are read.

    Attributes:
        chain: as passed.
        begin: offset of the part.
        closed: it is not followed any further.
        read_nbytes: bytes that were read.
    """

    def __init__(self, chain: TarChain, *, searched: int = 0, reads: Reads) -> None:
        self.chain = chain
        self.begin = chain.at
        self.closed = False
        self.read_nbytes = 0
        self._searching = searched > 0
        self._last = min(chain.at + searched, chain.end)
        self.plan(reads)

    def plan(self, reads: Reads) -> None:
        """Change how headers are read."""
        self._reads = reads
        self._nbytes = reads.nbytes
        self._run: list[int] | None = (
            None  # distances of the present run; None where its beginning is not known
        )
        self._usual = reads.run
        self._trust = _MOST_TRUST if reads.run else 0
        self._guessed: list[int] = []

    @property
    def done(self) -> bool:
        """Return whether nothing is left to read."""
        return self.closed or self.chain.done

    @property
    def reached(self) -> int:
        """Return the bytes of the part up to which it is known."""
        return max(0, min(self.chain.at, self.chain.end) - self.begin)

    @property
    def wants(self) -> list[tuple[int, int]]:
        """Return offset and length of the ranges to read next, all at the same time; empty at the end."""
        self._guessed = []
        if self.done:
            return []
        chain, at = self.chain, self.chain.at
        if self._searching:
            return [(at, min(_SEARCH_NBYTES, chain.nbytes - at))]
        ranges = [(at, min(max(chain.needs, self._nbytes), chain.nbytes - at))]
        if self._trust > 0 and self._run == [] and chain.needs == self._nbytes == BLOCK:
            for stride in self._usual:
                at += stride
                if at + BLOCK > chain.nbytes:
                    break
                self._guessed.append(at)
                ranges.append((at, BLOCK))
        return ranges

    def take(self, parts: Sequence[bytes]) -> None:
        """Take the bytes of the ranges that were wanted."""
        self.read_nbytes += sum(map(len, parts))
        if self.closed:
            return
        chain, data, begin = self.chain, parts[0], self.chain.at
        if self._searching:
            place = find_header(data)
            if place is None:
                chain.at += len(data)
                # Without a header the chain before leads through this part.
                self.closed = chain.at >= self._last or chain.nbytes - chain.at < BLOCK
                return
            self._searching = False
            chain.at += place
        before, at = len(chain.members), chain.at
        chain.take(data, begin)
        hits = 0
        for guess, part in zip(self._guessed, parts[1:], strict=True):
            if chain.done or chain.at != guess:
                break
            chain.take(part, guess)
            hits += 1
        chain.check()
        if self._guessed:
            right = hits == len(self._guessed)
            self._trust = min(self._trust + 1, _MOST_TRUST) if right else self._trust - 1
        if len(chain.members) > before:
            self._learn([*chain.members.begins[before:], chain.at])
        gap = chain.at - begin - len(data)
        small = gap < _SMALL_GAP and chain.at > at and not hits
        self._nbytes = min(2 * self._nbytes, _MOST_NBYTES) if small else self._reads.nbytes

    def _learn(self, begins: list[int]) -> None:
        """Note the distances of the last headers.

        Args:
            begins: where these headers begin, and the next one.
        """
        for begin, after in pairwise(begins):
            if after - begin >= _SMALL_GAP:
                if self._run is not None and self._reads.run:
                    self._usual = tuple(self._run[: 2 * len(self._reads.run)])
                self._run = []
            elif self._run is not None:
                self._run.append(after - begin)


class TarScan:
    """Scan of a whole tar.

    Args:
        path: of the file, for errors.
        nbytes: of the file.
        most_lanes: parts of the file that are followed at a time, at most.

    Attributes:
        read_nbytes: bytes that were read.
    """

    def __init__(self, path: str, nbytes: int, *, most_lanes: int = _MOST_LANES) -> None:
        self._chain = TarChain(path, nbytes, end=min(nbytes, _LEARNED_NBYTES))
        self._first = TarLane(self._chain, reads=Reads(_FIRST_NBYTES))
        self._others: list[TarLane] = []
        self._all = [self._first]
        self._most_lanes = most_lanes

    @property
    def reached(self) -> int:
        """Return the bytes of the file whose members are known, about."""
        return self._first.reached + sum(lane.reached for lane in self._others)

    @property
    def read_nbytes(self) -> int:
        """Return the bytes that were read."""
        return sum(lane.read_nbytes for lane in self._all)

    def take_first(self, data: bytes) -> int:
        """Take the first bytes of the file; return the usual distance of headers in them, 0 if there are no two."""
        if not self._first.done:
            self._first.take([data])
        return self._usual_stride()

    def _usual_stride(self) -> int:
        """Return the usual distance of the first headers; large ones count more, as more bytes are in them."""
        strides = self._strides()
        return sum(stride * stride for stride in strides) // sum(strides) if strides else 0

    def _strides(self) -> list[int]:
        chain = self._chain
        return [after - begin for begin, after in pairwise([*chain.members.begins, chain.at])]

    def begin(self) -> list[TarLane]:
        """Return the parts that have to be followed first."""
        return self._unfinished() or self.settle()

    def _unfinished(self) -> list[TarLane]:
        return [] if self._first.done else [self._first]

    def settle(self) -> list[TarLane]:
        """Return the parts that have to be followed, too, now that one is done."""
        if not self._first.done:
            return []
        if self._chain.end < self._chain.nbytes and len(self._all) == 1:
            return self._cut()
        self._join()
        return self._unfinished()

    def members(self) -> TarMembers:
        """Return the members of the file, once all parts are done.

        Raises:
            SampleFormatError: the file is damaged, truncated or compressed; the error is that of the first fault.
        """
        self._chain.check()
        if self._chain.fault is not None:
            raise self._chain.fault
        return self._chain.members

    def _cut(self) -> list[TarLane]:
        """Cut the rest of the file into parts, now that the first members are known."""
        chain = self._chain
        if chain.fault is not None or chain.ended:
            return []
        chain.end = chain.nbytes
        strides = self._strides()
        rest = chain.nbytes - chain.at
        if not strides or rest < BLOCK:
            return [] if chain.done else [self._first]
        reads = choose_reads(strides)
        self._first.plan(reads)
        usual = self._usual_stride()
        share = _SHARE - reads.share if reads.share < _SHARE else _SEARCHED_SHARE * reads.share
        # A search ends at half of a member, in the mean.
        searching = max(share * chain.nbytes, _SEARCHED_NBYTES)
        most = int(searching / (usual / 2 + _SEARCH_NBYTES / 2))
        run = max(sum(strides) / max(1, sum(stride >= _SMALL_GAP for stride in strides)), _MOST_RUN_NBYTES)
        count = max(1, min(1 + most, self._most_lanes, int(rest / (_LEAST_RUNS * run))))
        begins = [chain.at + number * (rest // count) // BLOCK * BLOCK for number in range(1, count)]
        searched = int(_SEARCHED_STRIDES * usual) + _SEARCH_NBYTES
        for begin, end in pairwise([*begins, chain.nbytes]):
            self._others.append(
                TarLane(TarChain(chain.path, chain.nbytes, begin, end), searched=searched, reads=reads)
            )
        if begins:
            chain.end = begins[0]
        self._all += self._others
        return [self._first, *self._others]

    def _join(self) -> None:
        """Add the members of the next parts to the chain, as far as it has arrived at them."""
        chain = self._chain
        while self._others and self._first.done:
            if chain.fault is not None or chain.ended:
                for lane in self._others:
                    lane.closed = True
                self._others.clear()
                return
            lane = self._others[0]
            if not lane.done:
                return
            later = lane.chain
            place = bisect_left(later.members.begins, chain.at)
            if lane.closed or place == len(later.members):
                del self._others[0]
                chain.end = self._others[0].begin if self._others else chain.nbytes
            elif later.members.begins[place] != chain.at:
                chain.end = later.members.begins[place]
            else:
                chain.join(later, place)
                del self._others[0]
