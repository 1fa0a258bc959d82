"""Descriptor of an attribute that is computed at each access, unless the object has one of that name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class Derived(Generic[T]):
    """Descriptor like `property`, except that a subclass may simply assign the attribute in its constructor.

    Args:
        compute: takes the object and returns the value.
    """

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute = compute
        self.__doc__ = compute.__doc__

    @overload
    def __get__(self, instance: None, owner: type) -> Derived[T]: ...

    @overload
    def __get__(self, instance: object, owner: type) -> T: ...

    def __get__(self, instance: object | None, owner: type) -> T | Derived[T]:
        return self if instance is None else self._compute(instance)
