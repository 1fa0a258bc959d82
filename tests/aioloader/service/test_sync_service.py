"""Tests of the blocking twin of the image service."""

from __future__ import annotations

import gc
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import aioloader
from aioloader import ImageService
from tests.aioloader.service.images import Gate, fails, jpeg, number_of, numbered


def test_many_threads_use_it_at_the_same_time() -> None:
    with ImageService(num_workers=2) as service:
        service.ready()
        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(lambda n: number_of(service.get(numbered(n))), range(64))) == list(range(64))
        assert service.gather({"a": [jpeg(30, 40)]})["a"][0].shape == (30, 40, 3)
        assert service.probe(jpeg(30, 40)).size == (30, 40)
        assert [prompt for prompt, _ in service.map(range(5), refs=numbered, ordered=True)] == list(range(5))
        assert service.stats().made > 64
        assert "images made" in service.explain()
    with pytest.raises(aioloader.ServiceClosedError):
        service.get(numbered(1))


def test_errors_arrive_where_they_belong() -> None:
    with ImageService(fails, num_workers=1, executor="thread") as service:
        with pytest.raises(aioloader.ImageError, match="3 is odd"):
            service.get(numbered(3))
        elements = service.map(range(3), refs=numbered, ordered=True)
        assert next(elements) == (0, 0)
        with pytest.raises(aioloader.ImageError):
            next(elements)
        assert next(elements) == (2, 2)
        assert list(elements) == []


def test_closing_gives_other_threads_an_error(leftovers: Any) -> None:
    gate = Gate(closed=(1,))
    errors = []
    with ImageService(gate, num_workers=1, executor="thread") as service:

        def get() -> None:
            try:
                service.get(numbered(1))
            except aioloader.ServiceClosedError as error:
                errors.append(error)

        thread = threading.Thread(target=get)
        thread.start()
        while not gate.begun:
            pass
        service.close()
        gate.open()
        thread.join(30)
    assert len(errors) == 1


def test_a_service_that_is_dropped_ends_its_workers(leftovers: Any) -> None:
    service = ImageService(num_workers=1).__enter__()
    assert number_of(service.get(numbered(1))) == 1
    del service
    gc.collect()


def test_wrong_options_are_errors_of_the_constructor_and_a_closed_one_says_so() -> None:
    with pytest.raises(ValueError, match="overflow"):
        ImageService(overflow="drop")
    with pytest.raises(aioloader.ServiceClosedError, match="with service"):
        ImageService().get(b"")
