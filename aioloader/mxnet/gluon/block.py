"""`Block` and `HybridBlock` to the extent that transforms need them: a call is `forward`, without parameters."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from aioloader.mxnet import ndarray
from aioloader.mxnet.base import OutsideError, names_in

__all__ = ("Block", "HybridBlock")


# Attributes of MXNet's blocks that need parameters or a graph.
_OF_PARAMETERS = names_in(
    "apply cast collect_params export infer_shape infer_type initialize load load_parameters load_params "
    "optimize_for params register_forward_hook register_forward_pre_hook register_op_hook reset_ctx save "
    "save_parameters save_params summary zero_grad"
)


class Block:
    """Base of transforms that scripts define. A subclass defines `forward`.

    Args:
        prefix, params: accepted for compatibility with MXNet and ignored.
    """

    def __init__(self, prefix: str | None = None, params: Any = None) -> None:
        del params
        self.prefix = prefix or ""
        self.name = self.prefix.rstrip("_")

    def __call__(self, *args: Any) -> Any:
        """Return the result of `forward`."""
        return self.forward(*args)

    def forward(self, *args: Any) -> Any:
        """Return the transformed arguments."""
        raise NotImplementedError(f"{type(self).__name__} defines no forward()")

    def name_scope(self) -> AbstractContextManager[None]:
        """Return a context without effect: names are those of parameters."""
        return nullcontext()

    def register_child(self, block: Any, name: str | None = None) -> None:
        """Do nothing: there are no parameters to collect."""

    def hybridize(self, active: bool = True, **kwargs: Any) -> None:
        """Do nothing: there is no graph to compile."""

    def __getattr__(self, name: str) -> Any:
        if name in _OF_PARAMETERS:
            raise OutsideError(f"{type(self).__name__}.{name}")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


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
