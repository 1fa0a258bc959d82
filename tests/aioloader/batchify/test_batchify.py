"""Tests of batchify functions: they keep structure, dtype and values, and name samples that do not fit."""

import dataclasses
import pickle
from collections import namedtuple
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

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
    ids=[
        "str",
        "bytes",
        "np.str_",
        "np.bytes_",
        "None",
        "None-int",
        "int-str",
        "object",
        "set",
        "huge",
        "object-array",
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


@pytest.mark.parametrize(
    "batchify", [Stack(), Stack(use_shared_mem=True), default_batchify_fn], ids=["Stack", "shared", "default"]
)
def test_every_field_is_collated_by_itself(batchify: Any) -> None:
    samples = [
        {
            "image": np.full((2, 2), n),
            "more": (n, [float(n), "x"]),
            "point": Point(n, None),
            "box": Box(n, "b"),
        }
        for n in range(3)
    ]

    batch = batchify(samples)

    assert list(batch) == ["image", "more", "point", "box"]
    assert batch["image"].shape == (3, 2, 2)
    assert isinstance(batch["more"], tuple)
    assert batch["more"][0].tolist() == [0, 1, 2]
    assert isinstance(batch["more"][1], list)
    assert batch["more"][1][0].dtype == np.float64
    assert batch["more"][1][1] == ["x", "x", "x"]
    assert isinstance(batch["point"], Point)
    assert batch["point"].y == [None, None, None]
    assert isinstance(batch["box"], Box)
    assert batch["box"].name == ["b", "b", "b"]


def test_tuples_become_a_tuple() -> None:
    images, labels = Stack()([(np.zeros((4, 4, 3), np.uint8), 1), (np.ones((4, 4, 3), np.uint8), 2)])

    assert images.shape == (2, 4, 4, 3)
    assert images.dtype == np.uint8
    assert labels.dtype == np.int64


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        ([(1, 2), (1, 2), (1,)], r"sample 0 is \(value, value\), sample 2 is \(value,\)"),
        ([(1, 2), [1, 2]], r"sample 0 is \(value, value\), sample 1 is \[value, value\]"),
        ([{"a": 1}, {"b": 1}], r"sample 0 is {'a': value}, sample 1 is {'b': value}"),
        ([Point(1, 2), (1, 2)], r"sample 0 is Point\(value, value\), sample 1 is \(value, value\)"),
        ([1, (1,)], r"sample 0 is value, sample 1 is \(value,\)"),
    ],
    ids=["length", "kind", "keys", "named", "leaf"],
)
def test_samples_of_different_structure_are_named(samples: list[Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Stack()(samples)


def test_dicts_may_differ_in_the_order_of_their_keys() -> None:
    batch = Stack()([({"a": 1, "b": [2, {"c": 3, "d": 4}]},), ({"b": [20, {"d": 40, "c": 30}], "a": 10},)])

    assert batch[0]["a"].tolist() == [1, 10]
    assert batch[0]["b"][1]["d"].tolist() == [4, 40]


@pytest.mark.parametrize(
    "batchify", [Stack(), Pad(), Append(), Group(Stack())], ids=lambda fn: type(fn).__name__
)
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
    ids=["rows", "scalars", "list", "structure", "pad", "append", "aslist", "group"],
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
    ids=["grow", "val", "round", "round-exact", "two-axes", "empty", "all-empty", "scalars", "zero-extent"],
)
def test_pad_fills_every_axis_to_the_longest(pad: Pad, samples: list[Any], expected: Any) -> None:
    assert np.array_equal(pad(samples), np.asarray(expected))


@pytest.mark.parametrize(
    ("pad", "samples", "dtype"),
    [
        (Pad(), [[1, 2], [3]], np.int64),
        (Pad(), [[], [3]], np.int64),
        (Pad(), [[1], [0.5, 1]], np.float64),
        (Pad(dtype="float16"), [[1, 2], [3]], np.float16),
        (Pad(), [np.zeros(2, np.uint8), np.zeros(1, np.uint8)], np.uint8),
        (Pad(), [np.zeros(2, np.uint8), np.zeros(1, np.float32)], np.float32),
    ],
    ids=["ints", "empty-list", "mixed", "given", "uint8", "promoted"],
)
def test_pad_promotes_dtypes(pad: Pad, samples: list[Any], dtype: Any) -> None:
    assert pad(samples).dtype == dtype


@given(
    st.lists(
        hnp.arrays(np.int16, hnp.array_shapes(min_dims=2, max_dims=2, min_side=0, max_side=4)),
        min_size=1,
        max_size=4,
    ),
    st.sampled_from([None, 1, 3]),
)
def test_pad_keeps_every_value_in_its_place(samples: list[Any], round_to: int | None) -> None:
    batch = Pad(val=77, round_to=round_to)(samples)

    assert all(extent % (round_to or 1) == 0 for extent in batch.shape[1:])
    for row, sample in zip(batch, samples, strict=True):
        inner = tuple(slice(extent) for extent in sample.shape)
        assert np.array_equal(row[inner], sample)
        outside = np.ones(row.shape, bool)
        outside[inner] = False
        assert np.all(row[outside] == 77)


def test_pad_writes_into_a_given_array() -> None:
    out = np.full((2, 3), 9, np.float32)

    assert Pad(val=0.5)([np.ones(3), np.ones(1)], out=out) is out
    assert out.tolist() == [[1, 1, 1], [1, 0.5, 0.5]]


def test_pad_takes_dicts_by_field() -> None:
    batch = Pad()([{"a": np.ones(2), "b": np.ones(1)}, {"a": np.ones(1), "b": np.ones(3)}])

    assert batch["a"].shape == (2, 2)
    assert batch["b"].shape == (2, 3)


def test_pad_leaves_tuples_to_group() -> None:
    with pytest.raises(NotImplementedError, match=r"use Group\(Pad\(\), Pad\(\), \.\.\.\) instead"):
        Pad()([([1], [2])])


@pytest.mark.parametrize(
    ("pad", "samples", "message"),
    [
        (Pad(val=-1), [np.zeros(2, np.uint8), np.zeros(1, np.uint8)], "val -1 does not fit dtype uint8"),
        (Pad(val=0.5), [[1], [1, 2]], "val 0.5 does not fit dtype int64"),
        (Pad(val=float("nan")), [[1], [1, 2]], "val nan does not fit dtype int64"),
        (Pad(), [np.zeros((2, 2)), np.zeros(2)], r"sample 0 has shape \(2, 2\), sample 1 has shape \(2,\)"),
        (Pad(), [["a"], ["b"]], "sample 0 has dtype"),
    ],
    ids=["negative", "fraction", "nan", "axes", "strings"],
)
def test_pad_says_what_does_not_fit(pad: Pad, samples: list[Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        pad(samples)


@pytest.mark.parametrize(
    ("append", "shapes"),
    [
        (Append(), [(1, 2), (1, 3)]),
        (Append(expand=False), [(2,), (3,)]),
        (Append(batch_axis=1), [(2, 1), (3, 1)]),
    ],
    ids=["expand", "as-is", "axis-1"],
)
def test_append_keeps_samples_apart(append: Append, shapes: list[tuple[int, ...]]) -> None:
    assert [array.shape for array in append([np.zeros(2), np.zeros(3)])] == shapes


def test_append_works_by_field() -> None:
    images, labels = Append()([(np.zeros(2), 1), (np.zeros(3), 2)])

    assert [image.shape for image in images] == [(1, 2), (1, 3)]
    assert [label.tolist() for label in labels] == [[1], [2]]


@pytest.mark.parametrize("group", [Group(Stack(), Pad()), Group([Stack(), Pad()])], ids=["arguments", "list"])
@pytest.mark.parametrize("kind", [tuple, list])
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


@pytest.mark.parametrize(
    "arguments", [(3,), (Stack(), 3), ([Stack()], Stack())], ids=["one", "second", "both-forms"]
)
def test_group_wants_functions(arguments: Any) -> None:
    with pytest.raises(AssertionError, match=r"Group\(\)"):
        Group(*arguments)


def test_as_list_touches_nothing() -> None:
    samples = ((1, "a"), (2, "b"))

    assert AsList()(samples) == [(1, "a"), (2, "b")]


@pytest.mark.parametrize(
    "batchify",
    [Stack(), Pad(val=1), Append(), Group(Stack(), Pad()), AsList()],
    ids=lambda fn: type(fn).__name__,
)
def test_batchify_functions_can_be_pickled(batchify: Any) -> None:
    assert type(pickle.loads(pickle.dumps(batchify))) is type(batchify)


class _Labelled(NamedTuple):
    image: Any
    target: Any


@pytest.mark.parametrize(
    ("first", "second", "field", "advice"),
    [
        (
            np.zeros((2, 3, 3)),
            np.zeros((3, 2, 3)),
            "",
            "or use aioloader.batchify.Pad(), of tuples as in Group(Pad(), Stack())",
        ),
        (
            (1, np.zeros(2)),
            (1, np.zeros(3)),
            "[1]",
            "in a transform, or use aioloader.batchify.Pad() or Ragged(), of tuples as in Group(Pad(), Stack())",
        ),
        ((1, 2), (1, np.zeros(3)), "[1]", "in a transform, or use aioloader.batchify.AsList()"),
        (
            {"a": 1, "b": [1, np.zeros(2)]},
            {"b": [1, np.zeros(3)], "a": 1},
            "['b'][1]",
            "Group(Pad(), Stack())",
        ),
        (
            _Labelled(1, {"x": np.zeros(2)}),
            _Labelled(1, {"x": np.zeros(3)}),
            ".target['x']",
            "Group(Pad(), Stack())",
        ),
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
