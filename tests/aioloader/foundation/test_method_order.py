"""Tests of the order in which classes define two methods."""

from __future__ import annotations

from aioloader.foundation.method_order import defines_first


class Both:
    def __call__(self) -> None: ...

    def many(self) -> None: ...


class OverridesCall(Both):
    def __call__(self) -> None: ...


class OverridesBoth(OverridesCall):
    def many(self) -> None: ...


class Neither(Both):
    pass


def test_a_method_counts_where_no_derived_class_overrides_the_other_alone() -> None:
    found = [
        defines_first(cls, "many", "__call__")
        for cls in (Both, Neither, OverridesCall, OverridesBoth, object)
    ]
    assert found == [True, True, False, True, False]
