"""What a transform does: `out` changes only the place, the input is unchanged, copies behave alike."""

import pickle

import numpy as np

from aioloader.foundation.types import ArraySpec
from aioloader.rng import Rng
from tests.aioloader.transforms.chains import H, W


def image(dtype=np.uint8, channels=3, height=H, width=W):
    values = np.random.default_rng(5).integers(0, 256, (height, width, channels))
    return values.astype(dtype)


def draws(index=0):
    return Rng(11, 0, index)


def places(dtype, expected):
    """Yield images and rows for the result: rows of its kind and of others, overlapping ones, none for views."""
    yield image(dtype), np.full_like(expected, 99)
    for shape, kind in (
        ((*expected.shape, 1), expected.dtype),
        (expected.shape, np.float64),
        ((0,), np.uint8),
    ):
        yield image(dtype), np.full(shape, 99, kind)
    x = image(dtype)
    yield x, x
    room = np.zeros((H + 1, W, 3), dtype)
    room[:H] = image(dtype)
    yield room[:H], room[1:]
    room = np.zeros((H + 4, W + 6, 3), dtype)
    room[2:-2, 1:-5] = image(dtype)
    yield room[2:-2, 1:-5], None
    yield np.ascontiguousarray(image(dtype)[::-1, ::-1])[::-1, ::-1], None


class Contract:
    """Tests of a transform with images of one dtype."""

    def test_results_do_not_depend_on_places_and_copies_and_no_input_is_altered(self, transform, dtype):
        copy = pickle.loads(pickle.dumps(transform))
        assert repr(copy) == repr(transform)
        for index in range(4):
            source, rng = image(dtype), draws(index)
            source.flags.writeable = False
            expected = transform(source, rng=rng)
            after = rng.random()
            assert np.array_equal(source, image(dtype))
            for x, out in places(dtype, expected):
                rng = draws(index)
                found = copy.apply(x, rng, out)
                assert found.dtype == expected.dtype
                assert np.array_equal(found, expected)
                assert rng.random() == after
                if out is not None and not np.shares_memory(x, out):
                    assert np.array_equal(x, image(dtype))
                    fits = (out.shape, out.dtype) == (expected.shape, expected.dtype)
                    assert fits or (out == 99).all()

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
