"""Tests of the contract of transforms: `out` changes only the place, the input is unchanged, copies behave alike."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioloader import transforms as t
from aioloader.abc import Transform as TransformProtocol
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
def test_every_transform_is_native_draws_alike_for_all_pixels_and_is_made_again_by_its_repr(transform):
    assert t.is_native(transform)
    assert isinstance(transform, TransformProtocol)
    assert isinstance(transform(image()), np.ndarray)  # without draws
    assert transform.out_spec(None) is None
    assert repr(eval(repr(transform), vars(t))) == repr(transform)
    after = set()
    bytes_only = any(transform is TRANSFORMS[name] for name in BYTES_ONLY)
    for x in (image(), np.zeros_like(image()), image(np.uint8 if bytes_only else np.float32)):
        rng = draws()
        transform(x, rng=rng)
        after.add(rng.random())
    assert len(after) == 1


def run(call):
    try:
        return call()
    except (TypeError, ValueError) as error:
        return str(error)


CHAIN = st.lists(
    st.sampled_from([each for each in TRANSFORMS.values() if not isinstance(each, t.Compose)]), max_size=5
)


@given(CHAIN, st.integers(0, 1000), st.booleans())
def test_composing_any_chain_is_calling_all(chain, index, tensor):
    compare_composed(
        [each for each in chain if not isinstance(each, t.ToTensor)] + [t.ToTensor()] * tensor, index
    )


def compare_composed(chain, index):
    """Compare the results without a row for it, and with one: a new row, the input, the first result."""

    def one_by_one():
        x, rng = image(), draws(index)
        for transform in chain:
            x = transform(x.copy(), rng=rng)
        return x

    expected, x = run(one_by_one), image()
    rows = [None, x, *(transform(image(), rng=draws(index)).copy() for transform in chain[:1])]
    if not isinstance(expected, str):
        rows.append(np.full(expected.shape, 99, expected.dtype))
    for row in rows:
        source = row if row is x else image()
        found = run(lambda source=source, row=row: t.Compose(chain).apply(source, draws(index), row))
        assert row is x or np.array_equal(source, image())
        if isinstance(expected, str):
            assert found == expected
        else:
            assert found.dtype == expected.dtype
            assert np.array_equal(found, expected)


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
        t.Resize((9, 8)),
        t.CropResize(2, 1, 6, 5, 7),
        t.RandomHorizontalFlip(1.0),
        t.RandomVerticalFlip(1.0),
        t.ToTensor(),
    ],
)
@with_cases("channels", [1, 3])
def test_some_take_many_images_at_once(transform, channels):
    many = np.stack([image(channels=channels), image(channels=channels)[::-1]])
    expected = np.stack([transform(x, rng=draws()) for x in many])
    assert np.array_equal(transform(many, rng=draws()), expected)
    place = np.empty(expected.shape, expected.dtype)
    assert transform.apply(many, draws(), place) is place
    assert np.array_equal(place, expected)
