"""Tests of mx.nd.image: MXNet's operators on images."""

import numpy as np
import pytest

from aioloader.mxnet import gluon, nd
from aioloader.mxnet.base import MXNetError

IMAGE = nd.array(np.random.default_rng(1).integers(0, 256, (30, 20, 3)), dtype="uint8")


def test_values():
    data = IMAGE.asnumpy()
    assert np.array_equal(nd.image.flip_left_right(IMAGE).asnumpy(), data[:, ::-1])
    assert np.array_equal(nd.image.flip_top_bottom(IMAGE).asnumpy(), data[::-1])
    assert np.array_equal(nd.image.crop(IMAGE, 2, 3, 10, 5).asnumpy(), data[3:8, 2:12])
    tensor = nd.image.to_tensor(IMAGE)
    assert np.allclose(tensor.asnumpy(), data.transpose(2, 0, 1) / 255)
    assert np.allclose(nd.image.normalize(tensor, 0.5, 2).asnumpy(), (tensor.asnumpy() - 0.5) / 2)
    assert nd.image.resize(IMAGE, (8, 9)).shape == (9, 8, 3)
    for flip in (nd.image.random_flip_left_right, nd.image.random_flip_top_bottom):
        assert np.array_equal(flip(IMAGE, 0.0).asnumpy(), data)
    with pytest.raises(MXNetError):
        nd.image.crop(IMAGE, 0, 0, 100, 5)


class Halves(gluon.HybridBlock):
    def hybrid_forward(self, F, x):
        return F.image.resize(x, (10, 15))


def test_a_block_calls_them_by_name():
    assert Halves()(IMAGE).shape == (15, 10, 3)
