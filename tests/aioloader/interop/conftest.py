"""Fixtures of the tests that compare with torch's DataLoader."""

import pytest


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch")


@pytest.fixture(scope="module")
def ours(torch):
    from aioloader.interop.torch import DataLoader

    return DataLoader
