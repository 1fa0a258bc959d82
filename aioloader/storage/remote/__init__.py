"""Remote data: files and folders by URL, over HTTP or in object storage.

The spans of a batch are merged into few requests (`request_merging`). Many are sent at a time (`client`), up to an
adaptive number; failed requests are retried (`failures`), and late ones are hedged. See the page Remote data.

Needs the package obstore: ``pip install "aioloader[remote]"``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from recordio._lazy_names import lazy_names

if TYPE_CHECKING:
    from aioloader.storage.remote.opening import register as register
    from aioloader.storage.remote.source import RemoteByteSource as RemoteByteSource
    from aioloader.storage.remote.stores import configure as configure
    from aioloader.storage.urls import SCHEMES as SCHEMES
    from aioloader.storage.urls import is_url as is_url

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "aioloader.storage.remote.opening": "register",
        "aioloader.storage.remote.source": "RemoteByteSource",
        "aioloader.storage.remote.stores": "configure",
        "aioloader.storage.urls": "SCHEMES is_url",
    },
)
