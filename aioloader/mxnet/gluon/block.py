"""`Block` and `HybridBlock` to the extent that transforms need them: a call is `forward`, without parameters."""

from __future__ import annotations

from typing import Any, NoReturn

from aioloader.mxnet import ndarray
from aioloader.mxnet.base import OutsideError

__all__ = ("Block", "HybridBlock")


class Block:
    """Base of transforms that scripts define. A subclass defines `forward`.

    Args:
        prefix, params: accepted for compatibility with MXNet and ignored.
    """

    def __init__(self, prefix: str | None = None, params: Any = None) -> None:
        del prefix, params

    def __call__(self, *args: Any) -> Any:
        """Return the result of `forward`."""
        return self.forward(*args)

    def forward(self, *args: Any) -> Any:
        """Return the transformed arguments."""
        raise NotImplementedError(f"{type(self).__name__} defines no forward()")

    def hybridize(self, active: bool = True, **kwargs: Any) -> None:
        """Do nothing: there is no graph to compile."""

    def initialize(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raise OutsideError: a block here has no parameters."""
        raise OutsideError(f"{type(self).__name__}.initialize()")

    collect_params = initialize


class HybridBlock(Block):
    """`Block` whose subclass may define ``hybrid_forward(F, x, ...)`` instead; F is `mx.nd`."""

    def forward(self, *args: Any) -> Any:
        """Return the result of ``hybrid_forward``."""
        return self.hybrid_forward(ndarray, *args)

    def hybrid_forward(self, F: Any, *args: Any) -> Any:
        """Return the transformed arguments.

        Args:
            F: the module `mx.nd`.
            *args: those of `forward`.
        """
        raise NotImplementedError(f"{type(self).__name__} defines neither forward() nor hybrid_forward()")
