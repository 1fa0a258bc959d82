"""Files to objects: whole, in parts where they are large. Blocking."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioloader.errors import RemoteWriteError
from aioloader.storage.remote.retries import trouble_of
from aioloader.storage.remote.stores import library, open_store
from aioloader.storage.urls import locate, redact_url

if TYPE_CHECKING:
    import os

__all__ = ("delete", "upload")


def upload(path: str | os.PathLike[str], url: str) -> None:
    """Put a file's bytes where a URL says; what is there is replaced when all of it has arrived.

    Raises:
        ImportError: obstore is not installed.
        OSError: the file cannot be read.
        RemoteWriteError: the object cannot be written.
    """
    with open(path, "rb") as file:
        try:
            library().put(open_store(url), locate(url).path, file)
        except Exception as error:
            raise RemoteWriteError(redact_url(url), trouble_of(error).text) from error


def delete(url: str) -> None:
    """Remove an object; one that is not there is no error.

    Raises:
        RemoteWriteError: it cannot be removed.
    """
    try:
        library().delete(open_store(url), locate(url).path)
    except FileNotFoundError:
        pass
    except Exception as error:
        raise RemoteWriteError(redact_url(url), trouble_of(error).text) from error
