"""Fixtures of the tests that compare with torch's DataLoader."""

from functools import partial

import pytest


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch")


@pytest.fixture(scope="module")
def ours(torch):
    from aioloader.interop.torch import DataLoader

    return DataLoader


@pytest.fixture(scope="module")
def spawned(ours):
    """Return a function that makes our loader, with workers that are new interpreters."""

    def make(*args, **options):
        if options.get("num_workers"):
            options.setdefault("multiprocessing_context", "spawn")
        return ours(*args, **options)

    return make


@pytest.fixture(params=["inline", "fork", "spawn"])
def both(request, torch, ours, spawned):
    """Return torch's loader and ours with as many workers: none, two forks, and a new interpreter for ours."""
    workers = {"inline": 0, "fork": 2, "spawn": 1}[request.param]
    mine = spawned if request.param == "spawn" else ours
    return [partial(make, num_workers=workers) for make in (torch.utils.data.DataLoader, mine)]
