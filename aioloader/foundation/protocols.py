"""Test whether an object of any class has the methods of a protocol.

`isinstance` asks for names only. Objects of other libraries have attributes of any name: a list called like a method,
a method with other arguments, or all names of another object that they wrap.

And mark methods that a subclass may define otherwise.
"""

from __future__ import annotations

import functools
import inspect
from types import FunctionType
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeGuard, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

# Of the functions that Python adds to protocols, none is one of these.
_SPECIAL = ("__aiter__", "__call__", "__getitem__", "__iter__", "__len__")


def redefinable(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method as it is. For type checkers, a subclass may define it with other arguments and results.

    `aioloader.formats.EncodedDataset` asks a subclass for ``labels(indices)``, of which loaders and samplers want
    all, and takes texts for locations.
    """
    return method


def implements(value: object, protocol: Callable[..., T], *, instead_of: str | None = None) -> TypeGuard[T]:
    """Return True if an object's class has the methods of a protocol, and the object its attributes.

    A method has to take the positional arguments that the protocol's takes. What only ``__getattr__`` finds does not
    count.

    Args:
        value: any object.
        protocol: a Protocol, a class; not annotated as a type, because type checkers refuse abstract classes there.
        instead_of: name of a method that those of the protocol take the place of: no class derived from theirs
            overrides it alone.
    """
    cls = type(value)
    methods, attributes = _members(protocol)
    for name, arguments in methods.items():
        if not callable(getattr(cls, name, None)):
            return False
        if name in _SPECIAL:
            continue
        if instead_of is not None and not defines_first(cls, name, instead_of):
            return False
        if not _takes(getattr(value, name), arguments):
            return False
    return all(has_attribute(value, name) for name in attributes)


def has_method(value: object, name: str, arguments: int) -> bool:
    """Return True if the class of an object has a method that takes a number of positional arguments."""
    return callable(getattr(type(value), name, None)) and _takes(getattr(value, name), arguments)


@functools.cache
def _members(protocol: Any) -> tuple[dict[str, int], tuple[str, ...]]:
    """Return the methods of a protocol with their numbers of positional arguments, and its other attributes."""
    methods: dict[str, int] = {}
    attributes: list[str] = []
    for base in reversed(protocol.__mro__):
        if base in (object, Protocol, Generic):
            continue
        members = {**dict.fromkeys(vars(base).get("__annotations__", ())), **vars(base)}
        for name, member in members.items():
            if name.startswith("_") and name not in _SPECIAL:
                continue
            if isinstance(member, FunctionType):
                kinds = [each.kind for each in inspect.signature(member).parameters.values()]
                positional = [kind for kind in kinds if kind <= inspect.Parameter.POSITIONAL_OR_KEYWORD]
                methods[name] = len(positional) - 1
            else:
                attributes.append(name)
    return methods, tuple(attributes)


def has_attribute(value: object, name: str) -> bool:
    """Return True if an object or its class has an attribute; its value is not computed."""
    try:
        inspect.getattr_static(value, name)
    except AttributeError:
        return False
    return True


def _takes(method: Any, arguments: int) -> bool:
    """Return False if it is certain that an object cannot be called with a number of positional arguments."""
    if not callable(method):
        return False
    try:
        inspect.signature(method).bind(*range(arguments))
    except TypeError:
        return False
    except ValueError:  # a builtin function without a signature
        return True
    return True


def defines_first(cls: type, name: str, other: str) -> bool:
    """Return whether the method `name` was written for a class: no class derived from its own overrides `other` alone.

    Args:
        cls: the class.
        name: the method that may take the place of the other one.
        other: the method whose results both return.
    """
    for each in cls.__mro__:
        if name in vars(each):
            return True
        if other in vars(each):
            return False
    return False
