"""Devices by MXNet's names. Arrays are numpy arrays in the memory of this host, for every device name."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from aioloader.mxnet.base import MXNetError, exported

if TYPE_CHECKING:
    from types import TracebackType

_TYPE_IDS = {"cpu": 1, "gpu": 2, "cpu_pinned": 3, "cpu_shared": 5}
_current = threading.local()


class Context:
    """Name and number of a device, such as `cpu(0)`.

    Args:
        device_type: "cpu", "gpu", "cpu_pinned", "cpu_shared", or another `Context` to copy.
        device_id: number of the device, from 0.

    Attributes:
        device_type, device_id: as given.
        device_typeid: MXNet's number of the type.

    Raises:
        ValueError: there is no such type of device.
    """

    __slots__ = ("_before", "device_id", "device_type")

    def __init__(self, device_type: str | Context, device_id: int = 0) -> None:
        if isinstance(device_type, Context):
            device_id = device_type.device_id
            device_type = device_type.device_type
        if device_type not in _TYPE_IDS:
            raise ValueError(f"device_type must be one of {', '.join(_TYPE_IDS)}, not {device_type!r}")
        self.device_type: str = device_type
        self.device_id: int = device_id
        self._before: list[Context] = []

    @property
    def device_typeid(self) -> int:
        """Return MXNet's number of the type: cpu 1, gpu 2, cpu_pinned 3, cpu_shared 5."""
        return _TYPE_IDS[self.device_type]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Context) and (self.device_type, self.device_id) == (
            other.device_type,
            other.device_id,
        )

    def __hash__(self) -> int:
        return hash((self.device_type, self.device_id))

    def __repr__(self) -> str:
        return f"{self.device_type}({self.device_id})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Context, (self.device_type, self.device_id)

    def __enter__(self) -> Context:
        self._before.append(current_context())
        _current.context = self
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _current.context = self._before.pop()

    def empty_cache(self) -> None:
        """Do nothing: no device memory is held."""


def cpu(device_id: int = 0) -> Context:
    """Return the context of this host's memory."""
    return Context("cpu", device_id)


def cpu_pinned(device_id: int = 0) -> Context:
    """Return the context of this host's memory; your framework pins it (`pin_memory=True`)."""
    return Context("cpu_pinned", device_id)


def gpu(device_id: int = 0) -> Context:
    """Return the name of a GPU. No array can be placed on it: see `num_gpus`."""
    return Context("gpu", device_id)


def num_gpus() -> int:
    """Return 0: aioloader puts no array on a GPU, your framework does.

    So ``mx.gpu() if mx.context.num_gpus() else mx.cpu()`` names the host.
    """
    return 0


def gpu_memory_info(device_id: int = 0) -> tuple[int, int]:
    """Refuse: the memory of a GPU belongs to your framework.

    Raises:
        MXNetError: always, as in MXNet without CUDA.
    """
    raise MXNetError(
        f"there is no gpu({device_id}) here: ask your framework, for example torch.cuda.mem_get_info({device_id})"
    )


def current_context() -> Context:
    """Return the context of the innermost ``with``, else `cpu(0)`."""
    found: Context | None = getattr(_current, "context", None)
    return cpu() if found is None else found


def host_context(context: Context | None) -> Context:
    """Return `context`, by default the current one, if arrays can be placed there.

    Raises:
        MXNetError: it is a GPU.
    """
    if context is None:
        context = current_context()
    if context.device_type == "gpu":
        raise MXNetError(
            f"no array can be placed on {context}: aioloader's arrays are numpy arrays in host memory. Use mx.cpu() "
            f'and move batches with your framework, for example torch.from_numpy(x).to("cuda:{context.device_id}"), '
            'or let the loader do it: aioloader.DataLoader(..., output="torch", pin_memory=True)'
        )
    return context


__all__ = exported(globals(), module=__name__)
