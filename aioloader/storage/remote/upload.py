"""Uploads of files to objects, in parts if they are large. Blocking."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioloader.errors import RemoteWriteError
from aioloader.storage.remote.failures import classify
from aioloader.storage.remote.stores import library, open_store
from aioloader.storage.urls import locate, redact_url

if TYPE_CHECKING:
    import os


def upload(path: str | os.PathLike[str], url: str) -> None:
    """Upload a file to a URL; an existing object is replaced when all bytes have arrived.

    Raises:
        ImportError: obstore is not installed.
        OSError: the file cannot be read.
        RemoteWriteError: the object cannot be written.
    """
    with open(path, "rb") as file:
        try:
            library().put(open_store(url), locate(url).path, file)
        except Exception as error:
            raise RemoteWriteError(redact_url(url), classify(error).text) from error


def delete(url: str) -> None:
    """Remove an object; a missing one is not an error.

    Raises:
        RemoteWriteError: it cannot be removed.
    """
    try:
        library().delete(open_store(url), locate(url).path)
    except FileNotFoundError:
        pass
    except Exception as error:
        raise RemoteWriteError(redact_url(url), classify(error).text) from error
