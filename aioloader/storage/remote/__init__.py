"""Data that is far away: files and folders by URL, over HTTP or in object storage.

A batch's spans become few requests (`planner`), sent many at a time (`client`), with a number in flight that adapts
(`pace`), tried again where that helps (`retries`), doubled where one of them lags (`latency`). See docs/remote.md.

Needs the package obstore: ``pip install "aioloader[remote]"``.
"""

from aioloader.storage.remote.openers import register
from aioloader.storage.remote.source import RemoteByteSource
from aioloader.storage.remote.stores import configure
from aioloader.storage.urls import SCHEMES, is_url

__all__ = ("SCHEMES", "RemoteByteSource", "configure", "is_url", "register")
