"""Tests of draws outside a loader: random by default, repeatable after a seed, one stream per thread."""

import threading

import pytest

from aioloader import rng
from aioloader.rng import default_rng, seed_default_rng


@pytest.fixture(autouse=True)
def unseeded(monkeypatch):
    monkeypatch.setattr(rng, "_default_seed", None)
    monkeypatch.setattr(rng, "_default_seeded", rng._default_seeded + 1)
    yield
    monkeypatch.setattr(rng, "_default_seeded", rng._default_seeded + 1)


def drawn(count=4):
    return [default_rng().random() for _ in range(count)]


def in_another_thread(made):
    thread = threading.Thread(target=lambda: made.append(drawn()))
    thread.start()
    thread.join()
    return made


def test_without_a_seed_every_thread_draws_its_own():
    assert len({*map(tuple, in_another_thread([])), tuple(drawn()), tuple(drawn())}) == 3


def test_a_seed_repeats_the_draws_of_all_threads():
    runs = []
    for seed in (5, 5, 6):
        seed_default_rng(seed)
        here = drawn()
        runs.append((here, *in_another_thread([])))
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]
    assert runs[0][0] != runs[0][1]
