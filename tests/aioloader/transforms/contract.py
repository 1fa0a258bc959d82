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


class Contract:
    """Tests of a transform with images of one dtype."""

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
