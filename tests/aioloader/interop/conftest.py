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
def of_kind(request, ours, spawned):
    """Return a function that makes our loader, and a number of workers: none, and one of each kind."""
    return spawned if request.param == "spawn" else ours, int(request.param != "inline")


@pytest.fixture
def both(torch, of_kind):
    """Return torch's loader and ours, with the same number of workers: none, and two of each kind of ours."""
    ours, workers = of_kind
    return [partial(make, num_workers=2 * workers) for make in (torch.utils.data.DataLoader, ours)]
