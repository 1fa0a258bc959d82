"""Descriptors that processes inherit are never those of a standard stream."""

from __future__ import annotations

import os

from aioloader._descriptors import above_streams


def test_a_number_above_the_streams_stays() -> None:
    read, write = os.pipe()
    try:
        assert above_streams(write) == write > 2
    finally:
        os.close(read)
        os.close(write)


def test_a_number_of_a_stream_is_exchanged() -> None:
    kept = os.dup(0)
    try:
        os.write(write := os.open(os.devnull, os.O_WRONLY), b"x")
        os.dup2(write, 0)
        os.close(write)
        moved = above_streams(0)
        try:
            assert moved > 2
            assert not os.get_inheritable(moved)
            assert os.write(moved, b"x") == 1
        finally:
            os.close(moved)
    finally:
        os.dup2(kept, 0)
        os.close(kept)
