"""Tests of `Ragged`: what it puts together comes out again, and what does not fit is named."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from aioloader.batchify import Group, Ragged, RaggedBatch, Stack
from aioloader.errors import BatchDtypeError, BatchShapeError, LoaderError
from aioloader.foundation.pytree import flatten, map_leaves
from tests.cases import with_cases

DTYPES = st.sampled_from([np.uint8, np.float32, np.int64, np.bool_, np.complex64])


def numbered(*shape: int, dtype: Any = np.uint8, start: int = 0) -> Any:
    return (np.arange(np.prod(shape)) + start).astype(dtype).reshape(shape)


def assert_same(found: Any, expected: Any) -> None:
    """Compare nested lists of arrays: structure, shapes, dtypes and values."""
    if isinstance(expected, list):
        assert isinstance(found, list)
        assert len(found) == len(expected)
        for each, other in zip(found, expected, strict=True):
            assert_same(each, other)
        return
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype
    assert found.tobytes() == expected.tobytes()  # NaNs too


@st.composite
def arrays_of_one_kind(draw: Any, rows: bool = False) -> Any:
    """Strategy of the strategy of arrays with one dtype and number of axes."""
    dtype, axes = draw(DTYPES), draw(st.integers(1, 3))
    if rows:
        rest = draw(hnp.array_shapes(min_dims=axes - 1, max_dims=axes - 1, min_side=0, max_side=3))
        shapes = st.integers(0, 4).map(lambda count: (count, *rest))
    else:
        shapes = hnp.array_shapes(min_dims=axes, max_dims=axes, min_side=0, max_side=4)
    return hnp.arrays(dtype, shapes)


@given(data=st.data())
def test_samples_come_out_as_they_went_in(data: Any) -> None:
    rows = data.draw(st.booleans())
    arrays = data.draw(arrays_of_one_kind(rows))
    samples = data.draw(st.lists(arrays, min_size=1, max_size=5))

    batch = Ragged(rows)(samples)

    assert isinstance(batch, RaggedBatch)
    assert len(batch) == len(samples)
    assert_same(batch.to_list(), samples)
    assert_same([batch[place - len(samples)] for place in range(len(samples))], samples)
    if rows:
        expected = np.concatenate(samples)
        counts = [len(sample) for sample in samples]
    else:
        expected = np.concatenate([sample.ravel() for sample in samples])
        counts = [sample.size for sample in samples]
    assert_same(batch.values, expected)
    assert batch.offsets.dtype == batch.shapes.dtype == np.int64
    assert batch.offsets.tolist() == [0, *np.cumsum(counts)]
    assert batch.shapes.tolist() == [list(sample.shape) for sample in samples]


def nested(arrays: Any, levels: int) -> Any:
    return arrays if levels == 0 else st.lists(nested(arrays, levels - 1), max_size=3)


@given(data=st.data(), levels=st.integers(1, 3))
def test_nested_samples_come_out_as_they_went_in(data: Any, levels: int) -> None:
    samples = data.draw(st.lists(nested(data.draw(arrays_of_one_kind()), levels), min_size=1, max_size=4))

    batch = Ragged(levels=levels)(samples)

    assert len(batch.nesting) == levels
    assert len(batch) == len(samples)
    assert_same(list(batch), samples)
    assert batch.nesting[0].tolist() == [0, *np.cumsum([len(sample) for sample in samples])]


def test_views_share_the_memory_of_the_batch() -> None:
    batch = Ragged()([numbered(2, 3), numbered(4)[None]])

    batch[0][1, 2] = 99
    assert batch.values.tolist() == [0, 1, 2, 3, 4, 99, 0, 1, 2, 3]


def test_the_levels_of_a_batch_are_those_of_its_deepest_sample() -> None:
    batch = Ragged()([[], [numbered(2)], [numbered(3), numbered(1)]])

    assert [each.tolist() for each in batch.nesting] == [[0, 0, 1, 3]]
    assert [len(sample) for sample in batch] == [0, 1, 2]


def test_fields_are_collated_by_what_they_hold() -> None:
    samples = [
        {"images": [numbered(n, 2)] * n, "ids": list(range(n)), "label": n, "text": f"{n}", "pair": (n, None)}
        for n in (2, 0, 1)
    ]
    batch = Ragged()(samples)

    assert [len(images) for images in batch["images"]] == [2, 0, 1]
    assert [ids.tolist() for ids in batch["ids"]] == [[0, 1], [], [0]]
    assert batch["ids"].values.dtype == np.int64
    assert batch["label"].tolist() == [2, 0, 1]
    assert batch["text"] == ["2", "0", "1"]
    assert batch["pair"][0].tolist() == [2, 0, 1]
    assert batch["pair"][1] == [None, None, None]


@with_cases(
    ("samples", "dtype", "expected"),
    [
        ([[1, 2], []], None, np.int64),
        ([[], [0.5]], None, np.float64),
        ([[], []], None, np.float64),
        ([[], np.zeros(2, np.float32)], None, np.float32),
        ([np.zeros((0, 4), np.int8), np.zeros((2, 4), np.int8)], None, np.int8),
        ([[1], [0.5]], np.float32, np.float32),
        ([np.zeros(2, np.uint8), np.zeros(2, np.int64)], np.int64, np.int64),
    ],
)
def test_the_dtype_is_that_of_the_numbers(samples: Any, dtype: Any, expected: Any) -> None:
    batch = Ragged(dtype=dtype)(samples)
    assert batch.values.dtype == expected
    assert [len(sample) for sample in batch] == [len(sample) for sample in samples]


def test_different_dtypes_are_named() -> None:
    samples = [numbered(2), numbered(3), numbered(2, dtype=np.float32)]
    with pytest.raises(BatchDtypeError, match="sample 2 has dtype float32, those before it uint8") as caught:
        Ragged()(samples)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.place, again.dtype, again.expected) == (2, "float32", "uint8")
    assert str(again) == str(caught.value)
    assert isinstance(again, LoaderError)


@with_cases(
    ("ragged", "samples", "place", "text"),
    [
        (Ragged(), [numbered(2), numbered(2, 2)], 1, "equally many axes"),
        (Ragged(), [[numbered(2)], numbered(2)], 1, "fewer than 1 levels"),
        (Ragged(levels=0), [numbered(2), [numbered(2)]], 1, "more than 0 levels"),
        (Ragged(levels=2), [[numbered(2)]], 0, "fewer than 2 levels"),
        (Ragged(rows=True), [numbered(2, 3), numbered(2, 4)], 1, r"shape \(3,\), rows of sample 1 \(4,\)"),
    ],
)
def test_a_shape_that_does_not_fit_is_named(ragged: Any, samples: Any, place: int, text: str) -> None:
    with pytest.raises(BatchShapeError, match=text) as caught:
        ragged(samples)
    assert caught.value.place == place


@with_cases(
    ("samples", "text"),
    [
        ([], "no samples"),
        ([np.zeros(2), 3], "no axes"),
        ([(1, 2), (1,)], "different structures"),
        ([np.zeros(2), np.zeros(2, "M8[s]")], "dtype datetime64"),
    ],
)
def test_other_samples_that_do_not_fit_are_named(samples: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Ragged()(samples)


def test_numbers_that_a_dtype_cannot_hold_are_refused() -> None:
    with pytest.raises(TypeError, match="same_kind"):
        Ragged(dtype=np.int32)([[1.5]])


def test_negative_levels_and_out_are_refused() -> None:
    with pytest.raises(ValueError, match="levels must not be negative"):
        Ragged(levels=-1)
    with pytest.raises(ValueError, match="takes no out"):
        Ragged()([np.zeros(2)], out=np.zeros(2))  # type: ignore[arg-type]


@with_cases("index", [2, -3])
def test_an_index_outside_of_the_batch_is_refused(index: int) -> None:
    with pytest.raises(IndexError, match="this batch has 2 samples"):
        Ragged()([numbered(1), numbered(2)])[index]


def test_a_batch_is_a_tree_of_its_arrays() -> None:
    batch = Ragged()([[numbered(2, 2)], [numbered(3, 1), numbered(1, 1)]])

    assert len(flatten(batch)[1]) == 4
    doubled = map_leaves(lambda leaf: leaf * 1, batch)
    assert isinstance(doubled, RaggedBatch)
    assert_same(list(doubled), list(batch))
    assert_same(list(pickle.loads(pickle.dumps(batch))), list(batch))


def test_group_passes_the_memory_on() -> None:
    asked = []

    def allocate(shape: Any, dtype: Any) -> Any:
        asked.append((shape, dtype))
        return np.empty(shape, dtype)

    batch = Group(Ragged(), Stack()).collate([(numbered(2), 0), (numbered(3), 1)], allocate)

    assert asked == [((5,), np.uint8), ((2,), np.int64)]
    assert [sample.tolist() for sample in batch[0]] == [[0, 1], [0, 1, 2]]
    assert batch[1].tolist() == [0, 1]
