"""Tests of `Pad` with given extents, multiples and sizes, against a plain reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from aioloader.batchify import Group, Pad, PaddedBatch, Stack
from aioloader.errors import BatchShapeError
from tests.cases import with_cases


def padded(samples: list[Any], shape: tuple[int, ...], val: int) -> Any:
    """Pad each sample with numpy."""
    ends = [[(0, stop - extent) for extent, stop in zip(each.shape, shape, strict=True)] for each in samples]
    return np.stack([np.pad(each, end, constant_values=val) for each, end in zip(samples, ends, strict=True)])


SHAPES = st.integers(1, 3).flatmap(
    lambda axes: st.lists(
        hnp.array_shapes(min_dims=axes, max_dims=axes, min_side=0, max_side=5), min_size=1, max_size=4
    )
)
FACTORS = st.none() | st.integers(1, 4)


@given(shapes=SHAPES, multiple=FACTORS, extra=st.none() | st.integers(0, 3), val=st.integers(0, 255))
def test_every_sample_is_padded_at_its_end(
    shapes: Any, multiple: int | None, extra: int | None, val: int
) -> None:
    rng = np.random.default_rng(len(shapes))
    samples = [rng.integers(0, 256, shape, dtype=np.uint8) for shape in shapes]
    axes = len(shapes[0])
    spatial = axes - 1 if axes >= 3 else axes
    expected = [max(extents) for extents in zip(*shapes, strict=True)]
    if multiple is not None:
        expected[:spatial] = [-(-extent // multiple) * multiple for extent in expected[:spatial]]
    to = None if extra is None else max(1, *expected[:spatial], 0) + extra
    if to is not None:
        expected[:spatial] = [to] * spatial

    batch = Pad(val, to=to, multiple_of=multiple, sizes=True)(samples)

    assert isinstance(batch, PaddedBatch)
    assert batch.values.dtype == np.uint8
    assert np.array_equal(batch.values, padded(samples, tuple(expected), val))
    assert batch.sizes.dtype == np.int64
    assert batch.sizes.tolist() == [list(shape) for shape in shapes]


@with_cases(
    ("options", "shape"),
    [
        ({}, (2, 30, 50, 3)),
        ({"to": 64}, (2, 64, 64, 3)),
        ({"to": (40, 60)}, (2, 40, 60, 3)),
        ({"to": (None, 60)}, (2, 30, 60, 3)),
        ({"to": (40, 60, 4)}, (2, 40, 60, 4)),
        ({"multiple_of": 28}, (2, 56, 56, 3)),
        ({"multiple_of": (None, 32)}, (2, 30, 64, 3)),
        ({"to": (None, 60), "multiple_of": 28}, (2, 56, 60, 3)),
        ({"round_to": 4}, (2, 32, 52, 4)),
    ],
)
def test_extents_are_for_the_spatial_axes(options: Any, shape: Any) -> None:
    samples = [np.ones((30, 40, 3), np.uint8), np.ones((20, 50, 3), np.uint8)]
    batch = Pad(**options)(samples)
    assert batch.shape == shape
    assert int(batch.sum()) == sum(each.size for each in samples)


def test_a_larger_sample_is_named() -> None:
    samples = [np.zeros((3, 4, 3)), np.zeros((3, 9, 3))]
    with pytest.raises(BatchShapeError, match=r"sample 1 has shape \(3, 9, 3\).*axis 1 only 8") as caught:
        Pad(to=(8, 8))(samples)
    assert caught.value.place == 1
    assert caught.value.shape == (3, 9, 3)


def test_samples_with_fewer_axes_than_extents_are_named() -> None:
    with pytest.raises(BatchShapeError, match=r"Pad\(to=\(8, 8\)\) is for arrays with 2 axes"):
        Pad(to=(8, 8))([np.zeros(3)])


def test_fields_are_padded_and_have_sizes_where_they_have_axes() -> None:
    samples = [{"boxes": np.ones((n, 4)), "label": np.array(n)} for n in (2, 0)]
    batch = Pad(-1, multiple_of=(3,), sizes=True)([{"boxes": sample["boxes"]} for sample in samples])
    plain = Pad(sizes=True)(samples)
    assert plain["label"].tolist() == [2, 0]
    assert plain["boxes"].values.shape == (2, 2, 4)
    assert batch["boxes"].values.shape == (2, 3, 4)
    assert batch["boxes"].sizes.tolist() == [[2, 4], [0, 4]]
    assert batch["boxes"].values[1].max() == -1


def test_tuples_are_padded_by_group() -> None:
    samples = [(np.ones((2, 2)), 0), (np.ones((1, 3)), 1)]
    (images, sizes), labels = Group(Pad(sizes=True), Stack())(samples)
    assert images.shape == (2, 2, 3)
    assert sizes.tolist() == [[2, 2], [1, 3]]
    assert labels.tolist() == [0, 1]


@with_cases("options", [{"to": 0}, {"to": (4, -1)}, {"multiple_of": 0}])
def test_extents_below_one_are_refused(options: Any) -> None:
    with pytest.raises(ValueError, match="must be at least 1"):
        Pad(**options)


def test_options_that_exclude_each_other_are_refused() -> None:
    with pytest.raises(ValueError, match="not both"):
        Pad(round_to=2, multiple_of=2)
    with pytest.raises(ValueError, match="takes no out"):
        Pad(sizes=True)([np.zeros(2)], out=np.zeros((1, 2)))


def test_an_array_to_write_into_is_filled_with_the_value() -> None:
    out = np.full((2, 4), 7)
    assert Pad(-1, to=4)([np.zeros(4, int), np.zeros(1, int)], out=out) is out
    assert out.tolist() == [[0, 0, 0, 0], [0, -1, -1, -1]]
