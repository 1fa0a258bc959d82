"""Tests of inherited descriptors: their numbers are never those of a standard stream."""

from __future__ import annotations

import os

from aioloader.foundation.descriptors import above_streams, fill_streams


def test_a_number_above_the_streams_stays() -> None:
    read, write = os.pipe()
    try:
        assert above_streams(write) == write > 2
    finally:
        os.close(read)
        os.close(write)


def test_a_number_of_a_stream_is_exchanged() -> None:
    kept = os.dup(0)
    other = os.open(os.devnull, os.O_WRONLY)
    os.dup2(other, 0)
    os.close(other)
    try:
        moved = above_streams(0)
        assert moved > 2
        assert not os.get_inheritable(moved)
        assert os.write(moved, b"x") == 1
        os.close(moved)
        fill_streams()  # the number was free
        os.fstat(0)
    finally:
        os.dup2(kept, 0)
        os.close(kept)
