"""Fixtures of the tests that compare with torch's DataLoader."""

import pytest


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch")


@pytest.fixture(scope="module")
def ours(torch):
    from aioloader.interop.torch import DataLoader

    return DataLoader


@pytest.fixture(scope="module")
def spawned(torch):
    """Return a function that makes our loader, with workers that are new interpreters."""
    from aioloader.interop.torch import DataLoader

    def make(*args, **options):
        if options.get("num_workers"):
            options.setdefault("multiprocessing_context", "spawn")
        return DataLoader(*args, **options)

    return make
