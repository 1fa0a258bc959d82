"""Tests of batchify functions: they keep structure, dtype and values, and name samples that do not fit."""

import dataclasses
import pickle
from collections import namedtuple
from typing import Any

import numpy as np
import pytest

from aioloader.batchify import Append, AsList, Group, Pad, Stack, default_batchify_fn, stack_leaves
from aioloader.errors import BatchShapeError
from tests.cases import with_cases

Point = namedtuple("Point", ["x", "y"])


@dataclasses.dataclass(frozen=True)
class Box:
    corner: Any
    name: str

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise TypeError("a box has one name")


class Tensor:
    """Object that numpy can read, like torch's tensors."""

    def __init__(self, values: Any) -> None:
        self.values = values
        self.shape = np.shape(values)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.asarray(self.values, dtype)


@with_cases(
    ("values", "dtype"),
    [
        ([1, 2], np.int64),
        ([1, 2.5], np.float64),
        ([1.0, 2.0], np.float64),
        ([True, False], np.bool_),
        ([1j, 2], np.complex128),
        ([np.float32(1), np.float32(2)], np.float32),
        ([np.float32(1), np.float64(2)], np.float64),
        ([np.uint8(1), np.uint8(2)], np.uint8),
        ([np.zeros(2, np.uint8)] * 2, np.uint8),
        ([np.zeros(2, np.uint8), np.zeros(2, np.float32)], np.float32),
        ([np.array(1, np.int32), np.array(2, np.int32)], np.int32),
        ([Tensor([1, 2]), Tensor([3, 4])], np.int64),
    ],
)
def test_numbers_and_arrays_follow_numpys_dtypes(values: list[Any], dtype: Any) -> None:
    stacked = stack_leaves(values)

    assert isinstance(stacked, np.ndarray)
    assert stacked.dtype == dtype
    assert np.array_equal(stacked, [np.asarray(value) for value in values])


@with_cases(
    "values",
    [
        ["a", "bc"],
        [b"a\0", b""],
        [np.str_("a"), np.str_("b")],
        [np.bytes_(b"a"), np.bytes_(b"b")],
        [None, None],
        [None, 1],
        [1, "a"],
        [object(), object()],
        [{1}, {2}],
        [2**70, 1],
        [np.array([None]), np.array([None])],
    ],
)
def test_everything_else_stays_a_list(values: list[Any]) -> None:
    collated = stack_leaves(values)

    assert type(collated) is list
    assert all(one is other for one, other in zip(collated, values, strict=True))


def test_ragged_arrays_name_both_shapes_and_the_sample() -> None:
    with pytest.raises(
        ValueError, match=r"sample 0 has shape \(2, 3\), sample 2 has shape \(2, 4\).*batchify\.Pad"
    ):
        stack_leaves([np.zeros((2, 3)), np.zeros((2, 3)), np.zeros((2, 4))])


@with_cases("batchify", [Stack(), Stack(use_shared_mem=True), default_batchify_fn])
def test_every_field_is_collated_by_itself(batchify: Any) -> None:
    def sample(n: int) -> Any:
        more = (n, [float(n), "x"])
        return {"image": np.full((2, 2), n), "more": more, "point": Point(n, None), "box": Box(n, "b")}

    batch = batchify([sample(n) for n in range(3)])

    assert list(batch) == ["image", "more", "point", "box"]
    assert batch["image"].shape == (3, 2, 2)
    assert [type(each) for each in batch.values()][1:] == [tuple, Point, Box]
    numbers, (floats, texts) = batch["more"]
    assert (numbers.tolist(), type(batch["more"][1])) == ([0, 1, 2], list)
    assert (floats.dtype, texts) == (np.float64, ["x", "x", "x"])
    assert batch["point"].y == [None, None, None]
    assert batch["box"].name == ["b", "b", "b"]


@with_cases(
    ("samples", "message"),
    [
        ([(1, 2), (1, 2), (1,)], r"sample 0 is \(value, value\), sample 2 is \(value,\)"),
        ([(1, 2), [1, 2]], r"sample 0 is \(value, value\), sample 1 is \[value, value\]"),
        ([{"a": 1}, {"b": 1}], r"sample 0 is {'a': value}, sample 1 is {'b': value}"),
        ([Point(1, 2), (1, 2)], r"sample 0 is Point\(value, value\), sample 1 is \(value, value\)"),
        ([1, (1,)], r"sample 0 is value, sample 1 is \(value,\)"),
    ],
)
def test_samples_of_different_structure_are_named(samples: list[Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Stack()(samples)


def test_dicts_may_differ_in_the_order_of_their_keys() -> None:
    batch = Stack()([({"a": 1, "b": [2, {"c": 3, "d": 4}]},), ({"b": [20, {"d": 40, "c": 30}], "a": 10},)])

    assert batch[0]["a"].tolist() == [1, 10]
    assert batch[0]["b"][1]["d"].tolist() == [4, 40]


@with_cases("batchify", [Stack(), Pad(), Append(), Group(Stack())])
def test_no_samples_make_no_batch(batchify: Any) -> None:
    with pytest.raises(ValueError, match="no samples"):
        batchify([])


def test_stack_writes_into_given_arrays() -> None:
    out = (np.empty((2, 3), np.float32), np.empty(2, np.int64), None)

    batch = Stack()([(np.ones(3, np.float32), 1, "a"), (np.zeros(3, np.float32), 2, "b")], out=out)

    assert batch[0] is out[0]
    assert batch[1] is out[1]
    assert batch[2] == ["a", "b"]
    assert out[0].tolist() == [[1, 1, 1], [0, 0, 0]]
    assert out[1].tolist() == [1, 2]


@with_cases(
    ("batchify", "samples", "out"),
    [
        (Stack(), [np.zeros(3), np.zeros(3)], np.empty((3, 3))),
        (Stack(), [1, 2], np.empty(3)),
        (Stack(), [1, 2], [1]),
        (Stack(), [(1, 2)], (np.empty(1),)),
        (Pad(), [[1, 2], [1]], np.empty((2, 3))),
        (Append(), [1], np.empty(1)),
        (AsList(), [1], np.empty(1)),
        (Group(Stack(), Stack()), [(1, 2)], (np.empty(1),)),
    ],
)
def test_arrays_that_do_not_fit_are_refused(batchify: Any, samples: list[Any], out: Any) -> None:
    with pytest.raises(ValueError, match="out"):
        batchify(samples, out=out)


@with_cases(
    ("pad", "samples", "expected"),
    [
        (Pad(), [[1, 2, 3], [4]], [[1, 2, 3], [4, 0, 0]]),
        (Pad(val=-1), [[1, 2, 3], [4]], [[1, 2, 3], [4, -1, -1]]),
        (Pad(round_to=2), [[1, 2, 3], [4]], [[1, 2, 3, 0], [4, 0, 0, 0]]),
        (Pad(round_to=2), [[1, 2], [4]], [[1, 2], [4, 0]]),
        (Pad(), [[[1, 2], [3, 4]], [[5]]], [[[1, 2], [3, 4]], [[5, 0], [0, 0]]]),
        (Pad(), [[], [4]], [[0], [4]]),
        (Pad(), [[], []], np.zeros((2, 0))),
        (Pad(), [3, 4], [3, 4]),
        (Pad(round_to=4), [np.zeros((0, 2)), np.ones((1, 1))], [np.zeros((4, 4)), np.pad([[1]], (0, 3))]),
    ],
)
def test_pad_fills_every_axis_to_the_longest(pad: Pad, samples: list[Any], expected: Any) -> None:
    assert np.array_equal(pad(samples), np.asarray(expected))


@with_cases(
    ("pad", "samples", "dtype"),
    [
        (Pad(), [[1, 2], [3]], np.int64),
        (Pad(), [[], [3]], np.int64),
        (Pad(), [[1], [0.5, 1]], np.float64),
        (Pad(dtype="float16"), [[1, 2], [3]], np.float16),
        (Pad(), [np.zeros(2, np.uint8), np.zeros(1, np.uint8)], np.uint8),
        (Pad(), [np.zeros(2, np.uint8), np.zeros(1, np.float32)], np.float32),
    ],
)
def test_pad_promotes_dtypes(pad: Pad, samples: list[Any], dtype: Any) -> None:
    assert pad(samples).dtype == dtype


def test_pad_takes_dicts_by_field() -> None:
    batch = Pad()([{"a": np.ones(2), "b": np.ones(1)}, {"a": np.ones(1), "b": np.ones(3)}])

    assert batch["a"].shape == (2, 2)
    assert batch["b"].shape == (2, 3)


def test_pad_leaves_tuples_to_group() -> None:
    with pytest.raises(NotImplementedError, match=r"use Group\(Pad\(\), Pad\(\), \.\.\.\) instead"):
        Pad()([([1], [2])])


@with_cases(
    ("pad", "samples", "message"),
    [
        (Pad(val=-1), [np.zeros(2, np.uint8), np.zeros(1, np.uint8)], "val -1 does not fit dtype uint8"),
        (Pad(val=0.5), [[1], [1, 2]], "val 0.5 does not fit dtype int64"),
        (Pad(val=float("nan")), [[1], [1, 2]], "val nan does not fit dtype int64"),
        (Pad(), [np.zeros((2, 2)), np.zeros(2)], r"sample 0 has shape \(2, 2\), sample 1 has shape \(2,\)"),
        (Pad(), [["a"], ["b"]], "sample 0 has dtype"),
    ],
)
def test_pad_says_what_does_not_fit(pad: Pad, samples: list[Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        pad(samples)


@with_cases(
    ("append", "shapes"),
    [
        (Append(), [(1, 2), (1, 3)]),
        (Append(expand=False), [(2,), (3,)]),
        (Append(batch_axis=1), [(2, 1), (3, 1)]),
    ],
)
def test_append_keeps_samples_apart(append: Append, shapes: list[tuple[int, ...]]) -> None:
    assert [array.shape for array in append([np.zeros(2), np.zeros(3)])] == shapes


def test_append_works_by_field() -> None:
    images, labels = Append()([(np.zeros(2), 1), (np.zeros(3), 2)])

    assert [image.shape for image in images] == [(1, 2), (1, 3)]
    assert [label.tolist() for label in labels] == [[1], [2]]


@with_cases("group", [Group(Stack(), Pad()), Group([Stack(), Pad()])])
@with_cases("kind", [tuple, list])
def test_group_has_a_function_for_each_field(group: Group, kind: Any) -> None:
    batch = group([kind([1, [1, 2]]), kind([2, [3]])])

    assert type(batch) is tuple
    assert batch[0].tolist() == [1, 2]
    assert batch[1].tolist() == [[1, 2], [3, 0]]


def test_group_hands_arrays_to_its_functions() -> None:
    out = (np.empty(2, np.int64), np.empty((2, 2), np.int64))

    batch = Group(Stack(), Pad())([(1, [1, 2]), (2, [3])], out=out)

    assert batch[0] is out[0]
    assert batch[1] is out[1]


def test_group_counts_the_fields_of_every_sample() -> None:
    with pytest.raises(
        AssertionError, match="each sample must be a tuple or list of 2 elements; sample 1 has 3"
    ):
        Group(Stack(), Stack())([(1, 2), (1, 2, 3)])


@with_cases("arguments", [(3,), (Stack(), 3), ([Stack()], Stack())])
def test_group_wants_functions(arguments: Any) -> None:
    with pytest.raises(AssertionError, match=r"Group\(\)"):
        Group(*arguments)


OF_TUPLES = "of tuples as in Group(Pad(), Stack())"


@with_cases(
    ("first", "second", "field", "advice"),
    [
        (np.zeros((2, 3, 3)), np.zeros((3, 2, 3)), "", f"or use aioloader.batchify.Pad(), {OF_TUPLES}"),
        (
            (1, np.zeros(2)),
            (1, np.zeros(3)),
            "[1]",
            f"or use aioloader.batchify.Pad() or Ragged(), {OF_TUPLES}",
        ),
        ((1, 2), (1, np.zeros(3)), "[1]", "in a transform, or use aioloader.batchify.AsList()"),
        ({"a": 1, "b": [1, np.zeros(2)]}, {"b": [1, np.zeros(3)], "a": 1}, "['b'][1]", OF_TUPLES),
        (Point(1, {"x": np.zeros(2)}), Point(1, {"x": np.zeros(3)}), ".y['x']", OF_TUPLES),
    ],
)
def test_the_field_of_unequal_arrays_is_named(first: Any, second: Any, field: str, advice: str) -> None:
    with pytest.raises(BatchShapeError) as caught:
        Stack()([first, first, second])
    error = pickle.loads(pickle.dumps(caught.value))
    assert (error.field, error.place) == (field, 2)
    begin = f"field {field}: samples" if field else "samples"
    assert str(error).startswith(f"{begin} of different shapes cannot be stacked: sample 0 has shape ")
    assert str(error).endswith(advice)


def test_group_names_the_field() -> None:
    with pytest.raises(BatchShapeError, match=r"^field \[1\]\['x'\]: samples"):
        Group(Stack(), Stack())([(1, {"x": np.zeros(2)}), (1, {"x": np.zeros(3)})])
