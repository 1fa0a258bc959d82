"""Fixtures of the executors' tests: what they define goes to worker processes by value."""

from tests.aioloader.loader.conftest import only_hung, sent_by_value  # noqa: F401
