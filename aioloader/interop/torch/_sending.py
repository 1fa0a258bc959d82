"""Functions of a script as worker processes receive them, and the reason why one of them cannot be sent.

Torch's workers are forks, so that a collate function may be a method of anything. A method of an object that cannot be
pickled, such as a LightningDataModule that knows its trainer, is sent without the attributes that prevent it.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any

import torch

from aioloader.errors import WorkerError
from aioloader.executors.file_maps import dumps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_DEPTH = 8
_WEIGHTS = ("_modules", "_parameters", "_buffers")
_LIGHTNING = ("lightning", "pytorch_lightning")
_TRAINERS = ("trainer", "_trainer", "_fabric")
_CALLER = "move what it needs to a function of a module or to a small object"
_SHARE = "to pass values to running workers, share a tensor (share_memory_())"
_ADVICE = {
    "dataset": "make it in __getitem__ at its first use",
    "collate_fn": _CALLER,
    "worker_init_fn": _CALLER,
}


def _error_of(value: Any) -> Exception | None:
    """Return the error of pickling an object; None if there is none."""
    try:
        dumps(value, lambda _: None)
    except Exception as error:  # pickling a foreign object can raise any exception
        return error
    return None


class LeftOut:
    """Replacement of an attribute that was not sent to a worker process. Every use of it is an error that says so.

    Args:
        name: the attribute, with its owner's class.
        reason: why it was not sent.
    """

    __slots__ = ("_name", "_reason")

    def __init__(self, name: str, reason: str) -> None:
        self._name = name
        self._reason = reason

    def __reduce__(self) -> tuple[Any, ...]:
        return LeftOut, (self._name, self._reason)

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise WorkerError(
            f"{self._name} was not sent to the worker processes with the method that uses it, because {self._reason}; "
            f"{_CALLER}, or set num_workers=0"
        )

    __getattr__ = __call__ = __getitem__ = __setitem__ = __contains__ = __iter__ = __next__ = _refuse
    __len__ = __bool__ = __enter__ = __exit__ = __int__ = __float__ = __index__ = __matmul__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __lt__ = __gt__ = __le__ = __ge__ = _refuse


@dataclass(frozen=True)
class DetachedMethod:
    """Method of an object of which only some attributes are sent.

    Attributes:
        function: the method's function.
        owner: class of the object.
        attributes: the object's attributes.
    """

    function: Callable[..., Any]
    owner: type
    attributes: dict[str, Any]

    @functools.cached_property
    def _method(self) -> MethodType:
        make: Any = self.owner.__new__
        made = make(self.owner)
        vars(made).update(self.attributes)
        return MethodType(self.function, made)

    def __getstate__(self) -> dict[str, Any]:
        return {"function": self.function, "owner": self.owner, "attributes": self.attributes}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self._method(*args, **options)


def detached(function: Any) -> Any:  # the caller's, of any class
    """Return a function in a form that can be sent to worker processes, if there is one; else the function itself.

    A method, or an object that is called, is sent without the attributes that cannot be pickled. A module or data
    module of Lightning is sent without its trainer, which refers to everything, and without weights, which change all
    the time and may be on a device.
    """
    if type(function) is functools.partial:
        return functools.partial(detached(function.func), *function.args, **function.keywords)
    if function is None or isinstance(function, FunctionType):
        return function
    owner = function.__self__ if isinstance(function, MethodType) else function
    called = function if isinstance(function, MethodType) else vars(type(owner)).get("__call__")
    if isinstance(owner, type) or called is None or not hasattr(owner, "__dict__"):
        return function
    kind = type(owner)
    kept_back = _kept_back(owner)
    if not kept_back.keys() & vars(owner).keys() and _error_of(function) is None:
        return function
    attributes = {}
    for name, value in vars(owner).items():
        reason = kept_back.get(name)
        if reason is None and (error := _error_of(value)) is not None:
            reason = f"it cannot be pickled ({error})"
        attributes[name] = value if reason is None else LeftOut(f"{kind.__name__}.{name}", reason)
    made = DetachedMethod(called.__func__ if isinstance(called, MethodType) else called, kind, attributes)
    return made if _error_of(made) is None else function


def can_be_sent(function: Any) -> bool:
    """Return whether all that a function refers to may be sent to worker processes, if it can be pickled."""
    called = function.func if type(function) is functools.partial else function
    owner = called.__self__ if isinstance(called, MethodType) else called
    return not _kept_back(owner)


def _kept_back(owner: Any) -> dict[str, str]:
    """Return the attributes of an object that are not sent even if they can be pickled, and why."""
    if not any(base.__module__.partition(".")[0] in _LIGHTNING for base in type(owner).__mro__):
        return {}
    found = dict.fromkeys(_TRAINERS, "the trainer is not sent")
    if isinstance(owner, torch.nn.Module):
        found.update(dict.fromkeys(_WEIGHTS, "the weights of a LightningModule are not sent"))
    return found


def unsendable(parts: dict[str, Any]) -> str | None:
    """Return which part of a loader cannot be sent to worker processes, why, and what to do; None if all can.

    Args:
        parts: the parts, by the name of their argument.
    """
    for name, part in parts.items():
        error = _error_of(part)
        if error is not None:
            way, value, why = _culprit(part, error)
            advice = _SHARE if _is_of_multiprocessing(value) else _ADVICE[name]
            where = f"{way} is a {type(value).__name__}, which cannot be pickled ({why})"
            return f"the {name} cannot be sent to worker processes: {where}; {advice}, or set num_workers=0"
    return None


def _is_of_multiprocessing(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] == "multiprocessing"


def _culprit(part: Any, error: Exception) -> tuple[str, Any, Exception]:
    """Return the innermost object that cannot be pickled, after the way to it and before the error.

    Locks, queues and values of multiprocessing are not looked into: scripts do not know what they are made of.
    """
    way, value = _name_of(part), part
    seen = {id(part)}
    for _ in range(_DEPTH):
        if _is_of_multiprocessing(value):
            break
        for step, inner in _parts_of(value):
            found = None if id(inner) in seen else _error_of(inner)
            if found is not None:
                seen.add(id(inner))
                way, value, error = way + step, inner, found
                break
        else:
            break
    return way, value, error


def _name_of(value: Any) -> str:
    if isinstance(value, MethodType):
        return f"{type(value.__self__).__name__}.{value.__name__}"
    return str(getattr(value, "__qualname__", type(value).__name__))


def _parts_of(value: Any) -> Iterator[tuple[str, Any]]:
    """Iterate over the parts of an object, each with the text that leads to it."""
    if isinstance(value, MethodType):
        yield ".__self__", value.__self__
    elif isinstance(value, functools.partial):
        yield ".func", value.func
        yield from ((f".args[{place}]", each) for place, each in enumerate(value.args))
        yield from ((f".keywords[{name!r}]", each) for name, each in value.keywords.items())
    elif isinstance(value, FunctionType):
        cells: Sequence[Any] = value.__closure__ or ()
        for name, cell in zip(value.__code__.co_freevars, cells, strict=True):
            yield f"'s variable {name}", cell.cell_contents
        yield from (
            (f"'s global {name}", value.__globals__[name])
            for name in value.__code__.co_names
            if name in value.__globals__
        )
    elif isinstance(value, dict):
        yield from ((f"[{key!r}]", each) for key, each in value.items())
    elif isinstance(value, (list, tuple)):
        yield from ((f"[{place}]", each) for place, each in enumerate(value))
    elif hasattr(value, "__dict__") and not isinstance(value, type):
        yield from ((f".{name}", each) for name, each in vars(value).items())
