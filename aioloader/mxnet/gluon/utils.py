"""`mx.gluon.utils`: splitting a batch into parts for several devices."""

from __future__ import annotations

import hashlib
import importlib
import os
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.mxnet.base import MXNetError
from aioloader.mxnet.ndarray import array
from aioloader.mxnet.ndarray.ndarray import NDArray
from aioloader.mxnet.outside import outside_class

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioloader.mxnet.context import Context

__all__ = ("check_sha1", "clip_global_norm", "download", "replace_file", "split_and_load", "split_data")

clip_global_norm = outside_class("mx.gluon.utils.clip_global_norm")
HookHandle = outside_class("mx.gluon.utils.HookHandle")

# Where MXNet's data sets and models were published.
_REPOSITORY = "https://apache-mxnet.s3-accelerate.dualstack.amazonaws.com/"


def split_data(data: Any, num_slice: int, batch_axis: int = 0, even_split: bool = True) -> list[NDArray]:
    """Return equal parts of an array along one axis: views of rows, copies of parts along any other axis.

    Args:
        data: the array.
        num_slice: number of parts.
        batch_axis: the axis to split.
        even_split: refuse an extent that is not a multiple of `num_slice`; False: the first parts are one longer.

    Raises:
        ValueError: the extent is not a multiple of `num_slice`.
    """
    source = data if isinstance(data, NDArray) else np.asarray(data).view(NDArray)
    if even_split and source.shape[batch_axis] % num_slice:
        raise ValueError(
            f"data with shape {source.shape} cannot be evenly split into {num_slice} slices along axis {batch_axis}. "
            f"Use a batch size that's multiple of {num_slice} or set even_split=False to allow uneven partitioning "
            "of data."
        )
    parts: list[Any] = np.array_split(source, num_slice, axis=batch_axis)
    return parts if batch_axis == 0 else [part.copy() for part in parts]


def split_and_load(
    data: Any, ctx_list: Sequence[Context], batch_axis: int = 0, even_split: bool = True
) -> list[NDArray]:
    """Split an array as `split_data` does, with one part for each context.

    Args:
        data: the array; other objects become an NDArray, as `mx.nd.array` does.
        ctx_list: contexts of this host.
        batch_axis, even_split: see `split_data`.

    Raises:
        ValueError: the extent is not a multiple of their number.
        MXNetError: one of them is a GPU.
    """
    source = data if isinstance(data, NDArray) else array(data)
    if len(ctx_list) == 1:
        return [source.as_in_context(ctx_list[0])]
    parts = split_data(source, len(ctx_list), batch_axis, even_split)
    return [part.as_in_context(context) for part, context in zip(parts, ctx_list, strict=True)]


def check_sha1(filename: str | os.PathLike[str], sha1_hash: str) -> bool:
    """Return whether a file's SHA-1 is `sha1_hash` (hexadecimal)."""
    with open(filename, "rb") as file:
        return hashlib.file_digest(file, "sha1").hexdigest() == sha1_hash


def download(
    url: str,
    path: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    sha1_hash: str | None = None,
    retries: int = 5,
    verify_ssl: bool = True,
) -> str:
    """Fetch a file; blocks. See `mx.test_utils.download`.

    Args:
        url: ``file:``, ``http:`` or ``https:``.
        path: the file to write, or an existing folder; default: the last part of the URL, in the current folder.
        overwrite: fetch it even if the file is there.
        sha1_hash: SHA-1 of the file (hexadecimal). An existing file with another SHA-1 is fetched again.
        retries: number of attempts.
        verify_ssl: accepted; certificates are always verified.

    Returns:
        Path of the file.

    Raises:
        MXNetError: it could not be fetched, or has another SHA-1.
    """
    del verify_ssl
    path = None if path is None else os.path.expanduser(os.fspath(path))
    folder = path if path is not None and os.path.isdir(path) else None
    fetch = importlib.import_module("aioloader.mxnet.test_utils").download
    arguments = {"fname": None if folder else path, "dirname": folder, "retries": retries}
    found: str = fetch(url, overwrite=overwrite, **arguments)
    if sha1_hash and not check_sha1(found, sha1_hash):
        fetch(url, overwrite=True, **arguments)
        if not check_sha1(found, sha1_hash):
            raise MXNetError(f"{found}, fetched from {url}, has not the SHA-1 {sha1_hash}")
    return found


def replace_file(src: str | os.PathLike[str], dst: str | os.PathLike[str]) -> None:
    """Rename a file; an existing one is replaced, in one step."""
    os.replace(src, dst)


def _get_repo_url() -> str:
    """Return the base URL of MXNet's data sets and models: ``$MXNET_GLUON_REPO``, or the published one."""
    return os.environ.get("MXNET_GLUON_REPO", _REPOSITORY).rstrip("/") + "/"


def _get_repo_file_url(namespace: str, filename: str) -> str:
    """Return the URL of a file there."""
    return f"{_get_repo_url()}{namespace}/{filename}"
