"""Tests of `max_pending`: whoever waits for an image or reads a header has a place, and nobody else gets it."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aioloader
from aioloader import AsyncImageService
from aioloader.errors import ServiceClosedError, ServiceOverloadedError
from aioloader.service.dispatcher import Admission
from aioloader.service.jobs import Request
from aioloader.service.references import Reference
from aioloader.service.stats import ServiceCounters
from tests.aioloader.service.images import Gate, fails, jpeg, number_of, numbered, service_of, until
from tests.cases import on_both_loops, with_cases

URL = "http://example.com/"


class Server:
    """Function for `fetch=` that answers with the number at the end of a URL, once it is open.

    Attributes:
        reading: requests that wait for an answer.
        most: the most that waited at a time.
    """

    def __init__(self) -> None:
        self.reading = 0
        self.most = 0
        self._opened = anyio.Event()

    async def __call__(self, url: str) -> bytes:
        self.reading += 1
        self.most = max(self.most, self.reading)
        try:
            await self._opened.wait()
        finally:
            self.reading -= 1
        return numbered(int(url.rpartition("/")[2]))

    def open(self) -> None:
        self._opened.set()


service_with = partial(service_of, allow=("bytes", "http"))
Ask = Callable[[AsyncImageService, int], Awaitable[Any]]


async def join(service: AsyncImageService, number: int) -> Any:
    return await service.get(f"{URL}0")


async def probe(service: AsyncImageService, number: int) -> Any:
    return await service.probe(f"{URL}{number}")


@pytest.fixture(params=[join, probe], ids=["join", "probe"])
def ask(request: pytest.FixtureRequest) -> Ask:
    """Return a function that asks for an image that is in work already, or for a header."""
    made: Ask = request.param
    return made


@on_both_loops
async def test_a_place_is_taken_by_each_call_that_waits(ask: Ask) -> None:
    server = Server()
    async with service_with(fetch=server, max_pending=3) as service:
        async with anyio.create_task_group() as tasks:
            for number in range(10):
                tasks.start_soon(ask, service, number)
            await until(lambda: service.stats().waiting_for_admission == 7)
            assert service.stats().admitted == 3
            # A place is taken before reading.
            await until(lambda: server.reading == (1 if ask is join else 3))
            server.open()
        assert server.most <= 3
        stats = service.stats()
        assert (stats.admitted, stats.waiting_for_admission, stats.pending) == (0, 0, 0)


@with_cases(
    ("max_pending", "admitted", "share", "text"),
    [(2, 2, None, "max_pending=2: try again"), (8, 5, 5, "5 at most of one server")],
)
@on_both_loops
async def test_overflow_raises_a_named_error_for_each_call(
    max_pending: int, admitted: int, share: int | None, text: str, ask: Ask
) -> None:
    server = Server()
    async with (
        service_with(fetch=server, max_pending=max_pending, overflow="raise") as service,
        anyio.create_task_group() as tasks,
    ):
        for number in range(admitted):
            tasks.start_soon(ask, service, number)
        await until(lambda: service.stats().admitted == admitted)
        for each in (join, probe):
            with pytest.raises(ServiceOverloadedError, match=text) as caught:
                await each(service, admitted)
            error = caught.value
            assert (error.pending, error.max_pending, error.share) == (admitted, max_pending, share)
        server.open()


@on_both_loops
async def test_a_call_without_a_place_in_time_says_so(ask: Ask) -> None:
    async with service_with(fetch=Server(), max_pending=1, timeout=0.1) as service:
        dispatcher: Any = service._engine.dispatcher
        endless = dispatcher.request(priority=0, timeout=None)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(dispatcher.visit, Reference("bytes", b"", "x"), endless, anyio.sleep_forever)
            await until(lambda: service.stats().admitted == 1)
            with pytest.raises(aioloader.ImageTimeoutError) as caught:
                await ask(service, 1)
            assert caught.value.phase == "admission"
            assert service.stats().timed_out == 1
            tasks.cancel_scope.cancel()
        assert service.stats().admitted == 0


@on_both_loops
async def test_a_call_that_is_cancelled_gives_its_place_to_the_next(ask: Ask) -> None:
    server = Server()
    scopes: list[anyio.CancelScope] = []
    async with service_with(fetch=server, max_pending=1) as service:

        async def cancellable(number: int) -> None:
            with anyio.CancelScope() as scope:
                scopes.append(scope)
                await ask(service, number)

        async with anyio.create_task_group() as tasks:
            for number in range(4):
                tasks.start_soon(cancellable, number)
                await until(
                    lambda number=number: (
                        service.stats().admitted + service.stats().waiting_for_admission == number + 1
                    )
                )
            for place in (1, 0):  # one that waits, and one that has a place
                scopes[place].cancel()
            await until(lambda: service.stats().waiting_for_admission == 1)
            assert service.stats().admitted == 1
            server.open()
        assert service.stats().admitted == 0


@with_cases("way", ["get", "probe", "gather", "map", "waiting", "large"])
@on_both_loops
async def test_closing_the_service_ends_every_call(way: str, leftovers: Any) -> None:
    server = Server()
    raised: list[str] = []

    async def call(service: AsyncImageService) -> None:
        try:
            match way:
                case "get":
                    await service.get(f"{URL}1")
                case "probe":
                    await service.probe(f"{URL}1")
                case "gather":
                    await service.gather([f"{URL}1", numbered(2)])
                case "map":
                    await anext(service.map([1], refs=lambda n: f"{URL}{n}"))
                case "waiting":
                    async with anyio.create_task_group() as tasks:
                        tasks.start_soon(service.probe, f"{URL}1")
                        await service.probe(f"{URL}2")
                case "large":  # its digest is computed in a thread
                    await service.get(numbered(1, side=3000))
        except* ServiceClosedError as errors:
            raised.extend(type(error).__name__ for error in errors.exceptions)

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            async with service_with(fetch=server, max_pending=1 if way == "waiting" else 8) as service:
                tasks.start_soon(call, service)
                if way == "large":
                    await anyio.lowlevel.checkpoint()
                else:
                    await until(lambda: server.reading)
    assert set(raised) == {"ServiceClosedError"}
    assert server.reading == 0


@on_both_loops
async def test_places_are_never_more_than_the_limit_under_load(leftovers: Any) -> None:
    """Identical and different images, headers, errors and cancelled calls at random."""
    draw = random.Random(7)

    async def fetch(url: str) -> bytes:
        await anyio.sleep(draw.random() * 0.002)
        return numbered(int(url.rpartition("/")[2]))

    async with service_with(fails, fetch=fetch, max_pending=5) as service:
        right = 0
        ended = False

        async def watch() -> None:
            while not ended:
                assert service.stats().admitted <= 5
                assert service.stats().pending <= 5
                await anyio.sleep(0)

        async def one() -> None:
            nonlocal right
            number = draw.randrange(8)
            ref: Any = f"{URL}{number}" if draw.random() < 0.5 else numbered(number)
            with anyio.move_on_after(draw.choice([0.0, 0.001, 0.01, 30])):
                try:
                    if draw.random() < 0.4:
                        assert (await service.probe(ref)).size == (1, 1)
                    else:
                        assert await service.get(ref) == number
                except aioloader.ImageError as error:
                    assert "is odd" in str(error)
                right += 1

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch)
            async with anyio.create_task_group() as calls:
                for _ in range(400):
                    calls.start_soon(one)
            ended = True
        assert right > 50
        await until(lambda: service.stats().admitted == service.stats().pending == 0)
        assert await service.get(numbered(2)) == 2


@on_both_loops
async def test_a_request_of_more_images_than_places_is_served() -> None:
    async with service_with(number_of, max_pending=3) as service:
        refs = [numbered(n % 7) for n in range(50)]
        assert await service.gather(refs) == [n % 7 for n in range(50)]
        assert service.stats().admitted == 0


@on_both_loops
async def test_an_image_that_was_kept_meanwhile_needs_no_place() -> None:
    gate = Gate(closed=(1, 2))

    async with service_with(gate, max_pending=1, cache_limit=1 << 20) as service:
        found: list[int] = []

        async def get() -> None:
            found.append(await service.get(numbered(1)))

        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(get)
            await until(lambda: service.stats().waiting_for_admission == 4)
            gate.open()
        assert found == [1] * 5
        assert gate.begun == [1]
        assert service.stats().admitted == 0


@settings(deadline=None)
@given(
    most=st.integers(1, 4), moves=st.lists(st.tuples(st.sampled_from("elc"), st.integers(0, 9)), max_size=40)
)
def test_places_go_to_those_who_wait_in_their_order(most: int, moves: list[tuple[str, int]]) -> None:
    """Enter, leave and cancel at random, against a model: a list of those inside, and a list of those who wait."""

    async def main() -> None:
        admission = Admission(most=most, overflow="wait", counters=ServiceCounters(), trace=None)
        inside: list[int] = []
        scopes: dict[int, anyio.CancelScope] = {}
        expected_inside: list[int] = []
        expected_waiting: list[int] = []
        reference = Reference("bytes", b"", "x")

        async def enter(name: int) -> None:
            with anyio.CancelScope() as scope:
                scopes[name] = scope
                if not admission.try_enter(reference):
                    request = Request(name, priority=0, first_round=0, timeout=None, fail_fast=True)
                    await admission.wait(reference, request, None)
                inside.append(name)

        async with anyio.create_task_group() as tasks:
            for number, (move, place) in enumerate(moves):
                if move == "e":
                    tasks.start_soon(enter, number)
                    (expected_inside if len(expected_inside) < most else expected_waiting).append(number)
                elif move == "l" and inside:
                    inside.pop(place % len(inside))
                    expected_inside.pop(place % len(expected_inside))
                    admission.leave(reference)
                    if expected_waiting:
                        expected_inside.append(expected_waiting.pop(0))
                elif move == "c" and expected_waiting:
                    scopes[expected_waiting.pop(place % len(expected_waiting))].cancel()
                await anyio.wait_all_tasks_blocked()
                assert inside == expected_inside
                assert admission.taken == len(inside) <= most
            tasks.cancel_scope.cancel()

    anyio.run(main)


@with_cases("way", ["map", "pack"])
@on_both_loops
async def test_map_and_pack_wait_for_places_where_other_calls_are_refused(way: str) -> None:
    """Their caller cannot ask for less at a time."""
    photos = [jpeg(30, 30, seed=number) for number in range(12)]
    processor = aioloader.transforms.Qwen2VLImageProcessor(max_pixels=28 * 28 * 4)

    async with service_with(processor, max_pending=2, overflow="raise") as service:
        if way == "map":
            found = [prompt async for prompt, _ in service.map(photos, refs=list_of, ordered=True)]
        else:
            packing = service.pack(photos, refs=list_of, max_tokens=8)
            found = [prompt async for batch in packing for prompt in batch.prompts]
        assert found == photos


def list_of(photo: bytes) -> list[bytes]:
    return [photo]
