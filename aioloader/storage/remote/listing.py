"""Listings of object storage: a prefix, listed once, as a tree of two levels."""

from __future__ import annotations

import fnmatch
import re
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from aioloader.errors import ObjectMissingError, RemoteReadError
from aioloader.storage.remote.opening import client_and_thread
from aioloader.storage.urls import BUCKETS, locate, redact_url, scheme_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aioloader.storage.remote.transport import Version


_LISTING_S = 120.0


class Folder(NamedTuple):
    """Contents of a prefix.

    Attributes:
        folders: name of each folder, and (name, version) of every object directly in it.
        files: names of the objects that are not in a folder.
    """

    folders: dict[str, list[tuple[str, Version]]]
    files: list[str]


def arrange(paths: Iterable[tuple[str, Version]], root: str) -> Folder:
    """Arrange a listing as a folder. Pure.

    Args:
        paths: path in the store and version of every object.
        root: path of the folder in the store; "" for all of it.
    """
    folders: dict[str, list[tuple[str, Version]]] = {}
    files: list[tuple[str, Version]] = []
    prefix = root.strip("/") + "/" if root.strip("/") else ""
    for path, version in paths:
        if not path.startswith(prefix):
            continue  # a marker of the folder itself
        name, slash, inner = path[len(prefix) :].partition("/")
        if not slash:
            files.append((name, version))
        elif inner and "/" not in inner:
            folders.setdefault(name, []).append((inner, version))
        else:
            folders.setdefault(name, [])
    # Cloud consoles mark folders by empty objects with their names.
    return Folder(folders, [name for name, version in files if version.nbytes or name not in folders])


def as_answered(version: Version) -> Version:
    """Return a version from a listing as it is in an answer with the object's bytes. Pure.

    Azure and others list an ETag without the quotation marks that it has in the headers of an answer.
    """
    etag = version.etag
    if etag is None or etag.endswith('"'):
        return version
    return version._replace(etag=f'"{etag}"')


def list_matching(pattern: str) -> list[str]:
    """Return the URLs of the objects that match a pattern (``*``, ``?``, ``[...]``) of object storage.

    As with files, the exact name of an object is not treated as a pattern.

    Raises:
        ImportError: obstore is not installed.
        RemoteReadError: the store cannot be listed.
        ValueError: the bucket contains a pattern.
    """
    fixed = re.split(r"[*?\[]", pattern, maxsplit=1)[0]
    folder = fixed.rpartition("/")[0]
    if "://" not in folder:
        raise ValueError(
            f"{pattern!r}: the bucket cannot be a pattern; pass one pattern for each bucket, as a list"
        )
    with client_and_thread() as (client, thread):
        found = thread.call(partial(client.list, folder, _LISTING_S))
    store, name = locate(pattern)
    names = [path for path, _ in found]
    matching = re.compile(glob_pattern(name))
    return [f"{store}/{path}" for path in ([name] if name in names else filter(matching.fullmatch, names))]


def glob_pattern(path: str) -> str:
    """Convert a pattern of names to a regular expression; no part of it matches a slash. Pure."""
    parts = (fnmatch.translate(part).removeprefix("(?s:").removesuffix(r")\Z") for part in path.split("/"))
    return "/".join(part.replace(".*", "[^/]*") for part in parts)


def list_folder(url: str) -> Folder:
    """List a URL of object storage. Blocking; sends a request for every 1,000 objects.

    Raises:
        ImportError: obstore is not installed.
        ObjectMissingError: it is empty; the error is a FileNotFoundError.
        RemoteReadError: it cannot be listed; HTTP never allows it.
    """
    if scheme_of(url) not in BUCKETS:
        raise RemoteReadError(
            redact_url(url),
            0,
            None,
            attempts=0,
            seconds=0.0,
            reason="HTTP cannot list a folder",
            kind="refused",
            advice="pass a list of the images, aioloader.ImageListDataset(root=URL, imglist=...), or pack them into a "
            ".rec file",
        )
    with client_and_thread() as (client, thread):
        found = thread.call(partial(client.list, url, _LISTING_S))
    folder = arrange(((path, as_answered(version)) for path, version in found), locate(url).path)
    if not folder.folders and not folder.files:
        raise ObjectMissingError(
            redact_url(url),
            0,
            None,
            attempts=1,
            seconds=0.0,
            reason="it contains no object",
            kind="missing",
        )
    return folder
