"""Indexes of tars: the one that is kept, that of another program, or that of a scan of their headers."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from aioloader.errors import SampleFormatError
from aioloader.formats.tar_members import TarChain
from aioloader.formats.tar_samples import TarSamples, group_members, samples_of_arrays
from aioloader.formats.tar_scan import TarScan
from aioloader.sample_index.layout import SampleIndex
from aioloader.sample_index.listed_tar import members_of_lists
from aioloader.sample_index.store import open_index
from aioloader.storage.local.descriptors import open_regular, read_at
from aioloader.storage.urls import redact_url

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioloader.formats.tar_members import TarMembers
    from aioloader.storage.remote.transport import Version

# Earlier kinds lack the places of the data of hard links.
KIND: Final = "tar-4"
# The header of a label behind an image, its data and the next header.
_LEAST_READ_NBYTES: Final = 2048
_MOST_READ_NBYTES: Final = 256 << 10
# Copying a gap of this size takes about as long as another read.
_SMALL_GAP: Final = 8 << 10
_TICK_NBYTES: Final = 64 << 20


def tar_samples(
    path: str, version: Version | None, tick: Callable[[int], object] | None = None
) -> TarSamples:
    """Return the samples of a tar. Blocking.

    Args:
        path: the file, or its URL.
        version: of the object if `path` is a URL.
        tick: called now and then with the number of bytes whose samples are known, if there is no index.

    Raises:
        OSError: the file cannot be read.
        SampleFormatError: it is damaged, truncated or compressed.
    """

    def make() -> SampleIndex:
        listed = members_of_lists(path, version)
        return scan_tar(path, version, tick) if listed is None else _index(listed)

    index = open_index(path, version, KIND, make)
    # The checksum of the index shows damage, not that another program wrote something else.
    return samples_of_arrays(index.arrays) or group_members(tar_members(path, version, tick))


def scan_tar(path: str, version: Version | None, tick: Callable[[int], object] | None = None) -> SampleIndex:
    """Scan a tar for its samples and return their index. Blocking; only headers are read.

    Args:
        path, version, tick: as for `tar_samples`.

    Raises:
        OSError, SampleFormatError: as for `tar_samples`.
    """
    return _index(tar_members(path, version, tick))


def _index(members: TarMembers) -> SampleIndex:
    return SampleIndex(KIND, group_members(members)._asdict())


def tar_members(
    path: str, version: Version | None, tick: Callable[[int], object] | None = None
) -> TarMembers:
    """Scan a tar and return its members. Blocking; only headers are read.

    Args:
        path, version, tick: as for `tar_samples`.

    Raises:
        OSError, SampleFormatError: as for `tar_samples`.
    """
    if version is None:
        return _scan_file(path, tick)
    from aioloader.storage.remote.lanes import follow

    scan = TarScan(redact_url(path), version.nbytes)
    follow(scan, path, version, tick)
    return scan.members()


def _scan_file(path: str, tick: Callable[[int], object] | None) -> TarMembers:
    descriptor = open_regular(path)
    try:
        chain = TarChain(path, os.fstat(descriptor).st_size)
        usual, ticked = _LEAST_READ_NBYTES, 0
        while not chain.done:
            begin = chain.at
            nbytes = min(max(chain.needs, usual), chain.nbytes - begin)
            data = read_at(descriptor, nbytes, begin)
            if len(data) < nbytes:
                raise SampleFormatError(
                    "the file shrank while it was read",
                    path=path,
                    offset=begin,
                    expected=f"{nbytes} bytes",
                    found=f"{len(data)} bytes",
                )
            chain.take(data, begin)
            # Of small members, much is read at once.
            is_near = chain.at - begin - nbytes < _SMALL_GAP
            usual = min(2 * usual, _MOST_READ_NBYTES) if is_near else _LEAST_READ_NBYTES
            if tick is not None and chain.at - ticked >= _TICK_NBYTES:
                ticked = chain.at
                tick(ticked)
    finally:
        os.close(descriptor)
    chain.check()
    if chain.fault is not None:
        raise chain.fault
    return chain.members
