"""Tests of the estimate of the bytes that a function's result will take."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from aioloader.service.making import ResultSizes

PIXELS = st.lists(st.integers(1, 50_000_000), min_size=1, max_size=20)


def test_without_results_it_is_that_of_float32() -> None:
    assert ResultSizes().expect(1000) == 12_000


@given(PIXELS, st.integers(1, 48))
def test_results_that_grow_with_the_image_have_room_once_the_largest_was_seen(
    pixels: list[int], each: int
) -> None:
    sizes = ResultSizes()
    for count in pixels:
        sizes.learn(count, count * each)
    for count in pixels:
        assert count * each <= sizes.expect(count) <= count * max(each, 12)


@given(PIXELS, st.integers(1, 10_000_000))
def test_results_of_one_size_never_reserve_more_than_it_or_float32(pixels: list[int], nbytes: int) -> None:
    sizes = ResultSizes()
    for count in pixels:
        sizes.learn(count, nbytes)
    for count in [1, *pixels, 10**8]:
        assert sizes.expect(count) <= max(nbytes, 12 * count)


@given(PIXELS, st.lists(st.integers(0, 100_000_000), min_size=20, max_size=20))
def test_any_result_has_room_the_second_time(pixels: list[int], found: list[int]) -> None:
    sizes = ResultSizes()
    results = list(zip(pixels, found, strict=False))
    for count, nbytes in results:
        sizes.learn(count, nbytes)
    for count, nbytes in results:
        assert sizes.expect(count) >= min(nbytes, 12 * count)
        assert sizes.expect(count) + 1 >= nbytes  # a quotient that was rounded
