"""`mx.gluon.contrib`: its data part."""

from aioloader.mxnet.gluon.contrib import data

__all__ = ("data",)
