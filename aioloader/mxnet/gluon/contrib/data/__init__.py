"""`mx.gluon.contrib.data`: where MXNet 1.x keeps `IntervalSampler`."""

from aioloader.mxnet.gluon.contrib.data import sampler
from aioloader.mxnet.gluon.contrib.data.sampler import IntervalSampler

__all__ = ("IntervalSampler", "sampler")
