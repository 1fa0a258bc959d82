"""Tests of the contract of transforms: `out` changes only the place, the input is unchanged, copies behave alike."""

import pickle
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioloader import transforms
from aioloader.abc import Transform as TransformProtocol
from aioloader.foundation.types import ArraySpec
from aioloader.rng import Rng
from aioloader.transforms import (
    Compose,
    CropResize,
    RandomHorizontalFlip,
    RandomVerticalFlip,
    Resize,
    ToTensor,
    is_native,
)
from tests.aioloader.transforms.chains import BYTES_ONLY, TRANSFORMS, H, W
from tests.cases import with_cases

DTYPES = {"uint8": np.uint8, "float32": np.float32}


def image(dtype=np.uint8, channels=3, height=H, width=W):
    values = np.random.default_rng(5).integers(0, 256, (height, width, channels))
    return values.astype(dtype)


def draws(index=0):
    return Rng(11, 0, index)


@with_cases(
    ("transform", "dtype"),
    [
        pytest.param(transform, dtype, id=f"{name}-{kind}")
        for name, transform in TRANSFORMS.items()
        for kind, dtype in DTYPES.items()
        if kind == "uint8" or name not in BYTES_ONLY
    ],
)
class TestOne:
    def test_the_input_is_not_altered(self, transform, dtype):
        x = image(dtype)
        x.flags.writeable = False
        for index in range(6):
            transform(x, rng=draws(index))
        assert np.array_equal(x, image(dtype))

    def test_out_holds_the_same_result(self, transform, dtype):
        for index in range(6):
            expected = transform(image(dtype), rng=draws(index))
            x = image(dtype)
            out = np.full(expected.shape, 99, expected.dtype)
            result = transform.apply(x, draws(index), out)
            assert result.dtype == expected.dtype
            assert np.array_equal(result, expected)
            assert np.array_equal(x, image(dtype))

    def test_out_of_another_kind_is_left_alone(self, transform, dtype):
        expected = transform(image(dtype), rng=draws())
        for shape, kind in (
            ((*expected.shape, 1), expected.dtype),
            (expected.shape, np.float64),
            ((0,), np.uint8),
        ):
            out = np.full(shape, 99, kind)
            result = transform.apply(image(dtype), draws(), out)
            assert np.array_equal(result, expected)
            assert (out == 99).all()

    def test_out_may_be_the_input(self, transform, dtype):
        for index in range(6):
            expected = transform(image(dtype), rng=draws(index))
            x = image(dtype)
            assert np.array_equal(transform.apply(x, draws(index), x), expected)

    def test_out_may_overlap_the_input(self, transform, dtype):
        expected = transform(image(dtype), rng=draws())
        room = np.zeros((H + 1, W, 3), dtype)
        room[:H] = image(dtype)
        assert np.array_equal(transform.apply(room[:H], draws(), room[1:]), expected)

    def test_views_and_contiguous_images_give_the_same(self, transform, dtype):
        room = np.zeros((H + 4, W + 6, 3), dtype)
        room[2:-2, 1:-5] = image(dtype)
        mirrored = np.ascontiguousarray(image(dtype)[::-1, ::-1])[::-1, ::-1]
        for view in (room[2:-2, 1:-5], mirrored):
            for index in range(3):
                expected = transform(image(dtype), rng=draws(index))
                assert np.array_equal(transform(view, rng=draws(index)), expected)

    def test_a_pickled_copy_does_the_same(self, transform, dtype):
        copy = pickle.loads(pickle.dumps(transform))
        assert repr(copy) == repr(transform)
        assert np.array_equal(copy(image(dtype), rng=draws()), transform(image(dtype), rng=draws()))

    def test_out_spec_is_correct(self, transform, dtype):
        spec = transform.out_spec(ArraySpec((H, W, 3), np.dtype(dtype)))
        if spec is not None:
            result = transform(image(dtype), rng=draws())
            assert spec == ArraySpec(result.shape, result.dtype)
        loose = transform.out_spec(ArraySpec((None, None, 3), np.dtype(dtype)))
        if loose is not None and loose.fixed:
            for height, width in ((H, W), (50, 60)):
                x = image(dtype, height=height, width=width)
                assert transform(x, rng=draws()).shape == loose.shape


@with_cases("transform", TRANSFORMS.values(), ids=TRANSFORMS)
class TestKind:
    def test_it_is_native_and_fulfils_the_protocol(self, transform):
        assert is_native(transform)
        assert isinstance(transform, TransformProtocol)

    def test_it_works_without_rng(self, transform):
        assert isinstance(transform(image()), np.ndarray)

    def test_an_unknown_input_has_no_spec(self, transform):
        assert transform.out_spec(None) is None

    def test_the_draws_do_not_depend_on_the_pixels(self, transform):
        after = set()
        bytes_only = any(transform is TRANSFORMS[name] for name in BYTES_ONLY)
        for x in (image(), np.zeros_like(image()), image(np.uint8 if bytes_only else np.float32)):
            rng = draws()
            transform(x, rng=rng)
            after.add(rng.random())
        assert len(after) == 1

    def test_repr_makes_it_again(self, transform):
        made = eval(repr(transform), vars(transforms))
        assert repr(made) == repr(transform)


def run(call):
    try:
        return call()
    except (TypeError, ValueError) as error:
        return str(error)


PAIRS = [
    pytest.param(TRANSFORMS[first], TRANSFORMS[second], id=f"{first}-{second}")
    for first in TRANSFORMS
    for second in TRANSFORMS
]


@with_cases(("first", "second"), PAIRS[::2])  # their number is odd, so each transform is first and second
def test_composing_a_pair_is_calling_both(first, second):
    compare_composed(first, second, [0])


@pytest.mark.slow
@with_cases(("first", "second"), PAIRS)
def test_composing_any_pair_is_calling_both(first, second):
    compare_composed(first, second, [0, 1])


def compare_composed(first, second, indices):
    for index in indices:
        rng = draws(index)
        expected = run(lambda rng=rng: second(first(image(), rng=rng).copy(), rng=rng))
        for out in (None, "result", "input", "first"):
            x = image()
            if out == "result" and not isinstance(expected, str):
                place = np.full(expected.shape, 99, expected.dtype)
            elif out == "input":
                place = x
            elif out == "first":
                place = first(image(), rng=draws(index)).copy()
            else:
                place = None
            found = run(partial(Compose([first, second]).apply, x, draws(index), place))
            if isinstance(expected, str):
                assert found == expected
            else:
                assert found.dtype == expected.dtype
                assert np.array_equal(found, expected)
            if out != "input":
                assert np.array_equal(x, image())


CHAIN = st.lists(st.sampled_from([t for t in TRANSFORMS.values() if not isinstance(t, Compose)]), max_size=5)


@given(CHAIN, st.integers(0, 1000), st.booleans())
def test_composing_any_chain_is_calling_all(chain, index, tensor):
    chain = [t for t in chain if not isinstance(t, ToTensor)] + [ToTensor()] * tensor

    def one_by_one():
        x, rng = image(), draws(index)
        for transform in chain:
            x = transform(x.copy(), rng=rng)
        return x

    expected = run(one_by_one)
    x = image()
    place = None if isinstance(expected, str) else np.empty(expected.shape, expected.dtype)
    for out in (None, place):
        found = run(lambda out=out: Compose(chain).apply(x, draws(index), out))
        assert np.array_equal(found, expected)
        assert np.array_equal(x, image())


@with_cases("channels", [1, 4])
@with_cases(
    "name",
    [
        name
        for name in TRANSFORMS
        if name.split("-")[0] in ("cast", "resize", "pad", "center", "random", "crop", "flip", "to")
    ],
)
def test_geometry_takes_any_number_of_channels(name, channels):
    transform = TRANSFORMS[name]
    three = image()
    x = np.repeat(three[..., :1], channels, axis=2)
    expected = transform(np.repeat(three[..., :1], 3, axis=2), rng=draws())
    result = transform(x, rng=draws())
    place = np.empty(result.shape, result.dtype)
    written = transform.apply(x, draws(), place)
    axis = 0 if name == "to-tensor" else 2
    for found in (result, written):
        assert found.shape[axis] == channels
        assert np.array_equal(found.take([0], axis), expected.take([0], axis))


@with_cases(
    "transform",
    [
        Resize((9, 8)),
        CropResize(2, 1, 6, 5, 7),
        RandomHorizontalFlip(1.0),
        RandomVerticalFlip(1.0),
        ToTensor(),
    ],
    ids=repr,
)
@with_cases("channels", [1, 3])
def test_some_take_many_images_at_once(transform, channels):
    many = np.stack([image(channels=channels), image(channels=channels)[::-1]])
    expected = np.stack([transform(x, rng=draws()) for x in many])
    assert np.array_equal(transform(many, rng=draws()), expected)
    place = np.empty(expected.shape, expected.dtype)
    assert transform.apply(many, draws(), place) is place
    assert np.array_equal(place, expected)
