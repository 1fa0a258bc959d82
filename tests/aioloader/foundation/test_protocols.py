"""Tests of the question whether an object has the methods of a protocol."""

from __future__ import annotations

from typing import Any, Protocol

from aioloader.foundation.protocols import implements
from tests.cases import with_cases


class Many(Protocol):
    def __call__(self, x: Any, /) -> Any: ...

    def many(self, x: Any, count: int = 1) -> Any: ...


class Sized(Protocol):
    @property
    def size(self) -> int: ...


class Both:
    def __call__(self, x: Any) -> None: ...

    def many(self, values: Any, n: int, more: int = 0) -> None: ...


class Neither(Both):
    pass


class OverridesCall(Both):
    def __call__(self, x: Any) -> None: ...


class OverridesBoth(OverridesCall):
    def many(self, *values: Any) -> None: ...


class Fewer(Both):
    def many(self, x: Any) -> None: ...  # type: ignore[override]


class More(Both):
    def many(self, x: Any, n: int, more: int) -> None: ...  # type: ignore[override]


class Attribute(Both):
    many = (1, 2)  # type: ignore[assignment]


class Computed(Both):
    @property
    def many(self) -> Any:  # type: ignore[override]
        raise AssertionError("read without need")


class PassesOn:
    def __call__(self, x: Any) -> None: ...

    def __getattr__(self, name: str) -> Any:
        return getattr(Both(), name)


@with_cases("cls", [Both, Neither, OverridesCall, OverridesBoth])
def test_methods_with_the_arguments_of_the_protocol(cls: type) -> None:
    assert implements(cls(), Many)
    # No derived class overrides the other method alone.
    assert implements(cls(), Many, instead_of="__call__") is (cls is not OverridesCall)


@with_cases("cls", [Fewer, More, Attribute, Computed, PassesOn, object])
def test_what_only_has_the_name(cls: type) -> None:
    assert not implements(cls(), Many)


def test_attributes_are_those_of_the_object() -> None:
    value: Any = Both()
    assert not implements(value, Sized)
    assert not implements(PassesOn(), Sized)
    value.size = 3
    assert implements(value, Sized)
    value.many = [1, 2]  # hides the method
    assert not implements(value, Many)
