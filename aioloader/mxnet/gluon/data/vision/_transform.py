"""Common part of `vision.transforms`: the call on NDArrays, and access to the transform that a loader runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.mxnet.base import MXNetError
from aioloader.mxnet.gluon.block import Block, HybridBlock
from aioloader.mxnet.gluon.data._ndarray_stage import as_nd, plain

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ("HybridTransform", "Transform", "TransformTypeError", "TransformValueError")


class TransformValueError(MXNetError, ValueError):
    """Error raised when a transform cannot be applied with its arguments, or to this image."""


class TransformTypeError(MXNetError, TypeError):
    """Error raised when a transform cannot be applied to this kind of array."""


class Transform(Block):
    """Transform that wraps one of `aioloader.transforms`."""

    # Set instead of the transform: MXNet refuses bad sizes of some transforms when they are first applied.
    _refused: ValueError | None = None

    def __init__(
        self, made: Callable[..., Any] | None = None, later: Callable[[], Callable[..., Any]] | None = None
    ) -> None:
        super().__init__()
        self._made = made
        if later is not None:
            try:
                self._made = later()
            except ValueError as error:
                self._refused = error

    def native_transform(self) -> Callable[..., Any] | None:
        """Return the transform that a loader runs instead of this one; None if a derived class overrides the call."""
        if type(self).forward is not Transform.forward or type(self).__call__ is not Transform.__call__:
            return None
        return self._ready()

    def _ready(self) -> Callable[..., Any]:
        if self._made is None:
            raise TransformValueError(str(self._refused)) from self._refused
        return self._made

    def __call__(self, x: Any, *args: Any) -> Any:
        """Return the transformed image; with further arguments (labels) a tuple of it and them, unchanged.

        Args:
            x: the image; not altered.
            *args: passed on.

        Raises:
            TransformValueError: the arguments or the image's shape do not allow it.
            TransformTypeError: the image's dtype does not.
        """
        out = self.forward(x)
        return (out, *args) if args else out

    def forward(self, *args: Any) -> Any:
        """Return the transformed image."""
        (x,) = args
        made = self._ready()
        source = plain(x)
        try:
            result = made(source)
        except (ValueError, TypeError) as error:
            # Errors of the caller's own functions have their own classes, or derive from these.
            kind = {ValueError: TransformValueError, TypeError: TransformTypeError}.get(type(error))
            if kind is None:
                raise
            raise kind(str(error)) from error
        if isinstance(result, np.ndarray) and isinstance(source, np.ndarray):
            # If the result were a view, its owner could alter the image.
            result = result.copy() if np.may_share_memory(result, source) else result
        return as_nd(result)

    def __repr__(self) -> str:
        return f"<{self._refused}>" if self._made is None else repr(self._made)


class HybridTransform(Transform, HybridBlock):
    """Transform that is a HybridBlock in MXNet."""
