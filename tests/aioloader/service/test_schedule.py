"""Tests of the order in which images are made."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from aioloader.service.schedule import BURST, Schedule


def add(schedule: Schedule[tuple[int, int]], request: int, count: int, priority: int = 0) -> None:
    first = schedule.first_round(priority)
    for place in range(count):
        schedule.push((request, place), priority=priority, first_round=first, request=request, place=place)


def drain(schedule: Schedule[tuple[int, int]]) -> list[tuple[int, int]]:
    taken = []
    while (item := schedule.pop()) is not None:
        taken.append(item)
    return taken


def test_requests_of_a_few_images_come_in_the_order_of_their_arrival() -> None:
    schedule: Schedule[tuple[int, int]] = Schedule()
    for request in range(3):
        add(schedule, request, 4)
    assert drain(schedule) == [(request, place) for request in range(3) for place in range(4)]


def test_a_higher_priority_comes_first() -> None:
    schedule: Schedule[tuple[int, int]] = Schedule()
    add(schedule, 0, 2)
    add(schedule, 1, 2, priority=1)
    assert [request for request, _ in drain(schedule)] == [1, 1, 0, 0]


def test_a_request_of_thousands_delays_a_small_one_behind_it_by_one_round() -> None:
    schedule: Schedule[tuple[int, int]] = Schedule()
    add(schedule, 0, 5000)
    taken = [schedule.pop() for _ in range(100)]
    add(schedule, 1, 2)
    following = [schedule.pop() for _ in range(2 * BURST)]
    assert (1, 0) in following
    assert (1, 1) in following
    assert taken == [(0, place) for place in range(100)]


@given(st.lists(st.tuples(st.integers(1, 40), st.integers(-2, 2)), max_size=12))
def test_every_image_comes_once_and_those_of_a_request_in_their_order(
    requests: list[tuple[int, int]],
) -> None:
    schedule: Schedule[tuple[int, int]] = Schedule()
    for request, (count, priority) in enumerate(requests):
        add(schedule, request, count, priority)
    taken = drain(schedule)
    assert sorted(taken) == [
        (request, n) for request, (count, _) in enumerate(requests) for n in range(count)
    ]
    for request in range(len(requests)):
        places = [place for each, place in taken if each == request]
        assert places == sorted(places)
    priorities = [requests[request][1] for request, _ in taken]
    assert priorities == sorted(priorities, reverse=True)


@given(
    st.lists(st.tuples(st.integers(0, 9), st.sampled_from(["push", "discard", "pop"]), st.integers(-1, 1)))
)
def test_an_image_waits_once_and_comes_at_its_earliest_place(steps: list[tuple[int, str, int]]) -> None:
    schedule: Schedule[int] = Schedule()
    waiting: dict[int, int] = {}
    for item, step, priority in steps:
        if step == "push":
            schedule.push(item, priority=priority, first_round=0, request=item, place=0)
            waiting[item] = max(priority, waiting.get(item, -2))
        elif step == "discard":
            schedule.discard(item)
            waiting.pop(item, None)
        else:
            taken = schedule.pop()
            assert (taken is None) == (not waiting)
            if taken is not None:
                del waiting[taken]
        assert len(schedule) == len(waiting)
        assert all((each in schedule) == (each in waiting) for each in range(10))
    assert sorted(iter(schedule.pop, None)) == sorted(waiting)


def test_a_lane_in_which_none_fits_holds_no_other_and_falls_behind_none() -> None:
    schedule: Schedule[tuple[int, int]] = Schedule()
    first = schedule.first_round(0)
    for place in range(3):
        schedule.push((0, place), priority=9, first_round=first, request=0, place=place, lane="held")
    add(schedule, 1, 40)
    assert [schedule.pop(lambda item: item[0] != 0) for _ in range(40)] == [(1, n) for n in range(40)]
    assert schedule.pop(lambda item: item[0] != 0) is None
    add(schedule, 2, 1)
    assert drain(schedule) == [(0, 0), (0, 1), (0, 2), (2, 0)]
