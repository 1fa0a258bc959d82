"""Tests of decompression: the same bytes, of a bounded size, and errors for damage."""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioloader.storage.cache.unpacked import BlockStream, DecompressionError, decompressed
from tests.aioloader.formats.mds_sets import compress

CODECS = ("br", "bz2", "gz", "snappy", "zstd")


def unpack(codec: str, data: bytes, nbytes: int, step: int = 1000) -> bytes:
    """Return the decompressed bytes."""
    blocks = (data[at : at + step] for at in range(0, len(data), step))
    return b"".join(decompressed(BlockStream(blocks, len), codec, nbytes, extra="mds"))


@pytest.mark.parametrize("codec", CODECS)
@settings(max_examples=20)
@given(data=st.binary(max_size=3000), step=st.integers(1, 100))
def test_bytes_are_those_that_were_compressed(codec: str, data: bytes, step: int) -> None:
    packed = compress(codec, data)
    assert unpack(codec, packed, len(data), step) == data
    with pytest.raises(DecompressionError):
        unpack(codec, packed, len(data) + 1, step)
    if data:
        with pytest.raises(DecompressionError):
            unpack(codec, packed, len(data) - 1, step)


@pytest.mark.parametrize("codec", CODECS)
@settings(max_examples=50)
@given(data=st.binary(max_size=300))
def test_any_bytes_are_decompressed_or_refused(codec: str, data: bytes) -> None:
    compress(codec, b"")
    try:
        assert len(unpack(codec, data, 5)) == 5
    except DecompressionError:
        pass


@pytest.mark.parametrize("codec", [codec for codec in CODECS if codec != "snappy"])
def test_a_bomb_takes_little_memory(codec: str) -> None:
    packed = compress(codec, bytes(48 << 20))
    unpack(codec, compress(codec, b"abc"), 3)  # what the library needs in any case
    tracemalloc.start()
    try:
        with pytest.raises(DecompressionError, match="more than the 1000000 bytes"):
            unpack(codec, packed, 1_000_000, 1 << 20)
        assert tracemalloc.get_traced_memory()[1] < 20 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("codec", ["gz", "bz2", "zstd"])
def test_several_streams_behind_one_another_are_one_file(codec: str) -> None:
    packed = compress(codec, b"one") + compress(codec, b"two")
    assert unpack(codec, packed, 6) == b"onetwo"


@pytest.mark.parametrize("codec", CODECS)
def test_an_error_of_the_file_is_not_one_of_the_codec(codec: str) -> None:
    packed = compress(codec, bytes(range(256)) * 100)

    def blocks() -> Iterator[bytes]:
        yield packed[:20]
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        list(decompressed(BlockStream(blocks(), len), codec, 25_600, extra="mds"))


@pytest.mark.parametrize("codec", ["br", "snappy", "zstd"])
def test_a_missing_package_is_named(codec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("brotli", "cramjam", "zstandard"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=r"pip install .aioloader\[mds\]"):
        unpack(codec, b"anything", 10)
