"""`mx.gluon.contrib.data.sampler`."""

from aioloader.mxnet.gluon.data.sampler import IntervalSampler

__all__ = ("IntervalSampler",)
