"""Tests of the contract of transforms: `out` changes only the place, the input is unchanged, copies behave alike."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioloader import transforms
from aioloader.abc import Transform as TransformProtocol
from aioloader.transforms import (
    Compose,
    CropResize,
    RandomHorizontalFlip,
    RandomVerticalFlip,
    Resize,
    ToTensor,
    is_native,
)
from tests.aioloader.transforms.chains import BYTES_ONLY, TRANSFORMS
from tests.aioloader.transforms.contract import Contract, draws, image
from tests.cases import with_cases

DTYPES = {"uint8": np.uint8, "float32": np.float32}


@with_cases(
    ("transform", "dtype"),
    [
        pytest.param(transform, dtype, id=f"{name}-{kind}")
        for name, transform in TRANSFORMS.items()
        for kind, dtype in DTYPES.items()
        if kind == "uint8" or name not in BYTES_ONLY
    ],
)
class TestOne(Contract):
    """All transforms, with both dtypes."""


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
