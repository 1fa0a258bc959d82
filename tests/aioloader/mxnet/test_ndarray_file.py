"""Tests of `mx.nd.load` and `save`: MXNet's bytes, and damage."""

import hashlib
import json
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import aioloader.mxnet as mx

GOLDEN = Path(__file__).parents[2] / "data" / "mxnet"
# The array [[[1, 2], [3, 4]]] under the name mean_img, as MXNet 1.9.1 writes it.
MEASURED = bytes.fromhex(
    "1201000000000000 0000000000000000 0100000000000000 c9fa93f9 00000000"
    "03000000 0100000000000000 0200000000000000 0200000000000000 01000000 00000000 00000000"
    "0000803f 00000040 00004040 00008040 0100000000000000 0800000000000000 6d65616e5f696d67"
)


def test_a_mean_image_of_mxnet():
    facts = json.loads((GOLDEN / "manifest.json").read_text())["files"]["mean_img.bin"]
    (name, image), *rest = mx.nd.load(GOLDEN / "mean_img.bin").items()
    assert (name, rest) == ("mean_img", [])
    assert list(image.shape) == facts["shape"]
    assert hashlib.sha256(image.tobytes()).hexdigest() == facts["raw_f32_sha256"]
    assert image.reshape(3, -1).mean(1).tolist() == pytest.approx(facts["mean_per_channel"], rel=1e-5)


def test_mxnet_s_bytes(tmp_path):
    found = mx.nd.load_frombuffer(MEASURED)
    assert {name: array.tolist() for name, array in found.items()} == {"mean_img": [[[1, 2], [3, 4]]]}
    mx.nd.save(tmp_path / "a", {"mean_img": mx.nd.array([[[1, 2], [3, 4]]])})
    assert (tmp_path / "a").read_bytes() == MEASURED


def test_other_versions_of_the_format():
    def file_of(array):
        return struct.pack("<3Q", 0x112, 0, 1) + array + struct.pack("<Q", 0)

    value = struct.pack("<3i2f", 1, 0, 0, 5, 6)
    versions = (
        struct.pack("<IiiQ", 0xF993FACA, 0, 1, 2) + value,
        struct.pack("<IiQ", 0xF993FAC8, 1, 2) + value,
        struct.pack("<II", 1, 2) + value,
    )
    for version in versions:
        assert [array.tolist() for array in mx.nd.load_frombuffer(file_of(version))] == [[5, 6]]
    scalar = struct.pack("<Iii", 0xF993FACA, 0, 0) + struct.pack("<3if", 1, 0, 0, 7)
    assert mx.nd.load_frombuffer(file_of(scalar))[0].asscalar() == 7
    never_filled = struct.pack("<Iii", 0xF993FAC9, 0, 0)
    assert mx.nd.load_frombuffer(file_of(never_filled))[0].size == 0


@given(
    st.lists(
        arrays.arrays(
            st.sampled_from([np.float16, np.float32, np.float64, np.uint8, np.int8, np.int32, np.int64]),
            arrays.array_shapes(min_side=0),
        ),
        max_size=3,
    ),
    st.booleans(),
)
def test_what_is_saved_is_loaded(tmp_path_factory, saved, named):
    path = tmp_path_factory.mktemp("saved") / "a.params"
    given_data = {f"name {n}": array for n, array in enumerate(saved)} if named else saved
    mx.nd.save(path, given_data)
    loaded = mx.nd.load(path)
    if named and saved:
        assert list(loaded) == list(given_data)
        loaded = list(loaded.values())
    assert len(loaded) == len(saved)
    for one, other in zip(loaded, saved, strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        assert np.array_equal(one, other, equal_nan=other.dtype.kind == "f")
        assert one.flags.writeable


@given(st.integers(0, len(MEASURED) - 1))
def test_a_file_that_is_cut_off(length):
    with pytest.raises(mx.MXNetError, match="not a file of arrays"):
        mx.nd.load_frombuffer(MEASURED[:length])


@given(st.integers(0, 71), st.integers(0, 255))
def test_damage_is_reported_or_loads_something(place, value):
    damaged = bytearray(MEASURED)
    damaged[place] = value
    try:
        found = mx.nd.load_frombuffer(bytes(damaged))
    except mx.MXNetError as error:
        assert "not a file of arrays" in str(error)
    else:
        assert len(found) <= 1


def test_what_cannot_be_loaded_or_saved(tmp_path):
    with pytest.raises(mx.MXNetError, match="cannot be opened"):
        mx.nd.load(tmp_path / "none")
    sparse = struct.pack("<3Q", 0x112, 0, 1) + struct.pack("<Ii", 0xF993FAC9, 2)
    with pytest.raises(mx.MXNetError, match="sparse"):
        mx.nd.load_frombuffer(sparse)
    for array in (np.zeros(2, complex), np.float32(3)):
        with pytest.raises(mx.MXNetError, match="cannot be saved"):
            mx.nd.save(tmp_path / "a", [array])


def test_extents_beyond_all_bounds_are_reported_even_without_values():
    head = struct.pack("<3Q", 0x112, 0, 1) + struct.pack("<Iii", 0xF993FAC9, 0, 3)
    shape = struct.pack("<3q", 0, 2**62, 2**62)
    with pytest.raises(mx.MXNetError, match="cannot have the shape"):
        mx.nd.load_frombuffer(head + shape + struct.pack("<3i", 1, 0, 0) + bytes(8))
