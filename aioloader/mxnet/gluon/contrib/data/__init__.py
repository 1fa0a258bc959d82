"""`mx.gluon.contrib.data`: MXNet 1.x has `IntervalSampler` here."""

from aioloader.mxnet.gluon.contrib.data import sampler
from aioloader.mxnet.gluon.contrib.data.sampler import IntervalSampler

__all__ = ("IntervalSampler", "sampler")
