"""`mx.np.ndarray`: the array of `mx.np`, with numpy's methods and comparisons."""

from __future__ import annotations

from typing import Any

import numpy

from aioloader.mxnet.ndarray import NDArray

__all__ = ("ndarray",)


def _numpys(name: str) -> Any:
    """Return the method for a reduction, with numpy's dtype of the result."""
    reduction = getattr(numpy.ndarray, name)

    def reduce(self: ndarray, *args: Any, **kwargs: Any) -> Any:
        found = reduction(numpy.asarray(self), *args, **kwargs)
        return (found if isinstance(found, numpy.ndarray) else numpy.array([found])).view(ndarray)

    reduce.__name__, reduce.__qualname__ = name, f"ndarray.{name}"
    reduce.__doc__ = f"Return numpy's `{name}`; over all axes its shape is (1,)."
    return reduce


class ndarray(NDArray):  # MXNet's name
    """NDArray whose comparisons are bool, and whose methods that numpy has too are numpy's.

    An element and a full reduction have shape (1,), as those of an NDArray.
    """

    def as_nd_ndarray(self) -> NDArray:
        """Return the array as an NDArray, over the same memory."""
        return self.view(NDArray)

    def as_np_ndarray(self) -> NDArray:
        """Return the array itself."""
        return self

    argmax: Any = _numpys("argmax")
    argmin: Any = _numpys("argmin")
    argsort: Any = numpy.ndarray.argsort
    clip: Any = numpy.ndarray.clip
    dot: Any = numpy.ndarray.dot
    flatten: Any = numpy.ndarray.flatten
    repeat: Any = numpy.ndarray.repeat
    round: Any = numpy.ndarray.round
    sort: Any = numpy.ndarray.sort
    squeeze: Any = numpy.ndarray.squeeze
    swapaxes: Any = numpy.ndarray.swapaxes
    take: Any = numpy.ndarray.take
    transpose: Any = numpy.ndarray.transpose
    T: Any = numpy.ndarray.T
    sum: Any = _numpys("sum")
    prod: Any = _numpys("prod")
    __eq__: Any = numpy.ndarray.__eq__
    __ne__: Any = numpy.ndarray.__ne__
    __lt__: Any = numpy.ndarray.__lt__
    __le__: Any = numpy.ndarray.__le__
    __gt__: Any = numpy.ndarray.__gt__
    __ge__: Any = numpy.ndarray.__ge__
    __hash__ = NDArray.__hash__
