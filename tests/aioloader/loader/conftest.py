"""Fixture of the loader's tests: what they define goes to worker processes by value."""

from __future__ import annotations

from collections.abc import Iterator

import cloudpickle
import pytest


@pytest.fixture(autouse=True, scope="module")
def sent_by_value(request: pytest.FixtureRequest) -> Iterator[None]:
    """Send the functions of a test module to workers, because importing it with pytest takes each of them a while."""
    cloudpickle.register_pickle_by_value(request.module)
    yield
    cloudpickle.unregister_pickle_by_value(request.module)
