"""`CSVIter`: batches of the rows of text files."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.mxnet.base import MXNetError
from aioloader.mxnet.io.backend_iter import ArrayBatches, MXDataIter
from aioloader.mxnet.io.parameters import COMMON, Parameter, read_parameters
from aioloader.mxnet.io.uris import files_of

if TYPE_CHECKING:
    from aioloader.foundation.types import Array

_PARAMETERS = {
    **COMMON,
    "data_csv": Parameter("string"),
    "data_shape": Parameter("shape"),
    "label_csv": Parameter("string", "NULL"),
    "label_shape": Parameter("shape", (1,)),
}
_DTYPES = ("float32", "int32", "int64")


def CSVIter(*args: Any, **kwargs: Any) -> MXDataIter:
    """Return batches of the rows of comma separated numbers, in the order of the file, which is kept in memory.

    Takes keyword arguments only; unknown ones are warned about (``strict=True``: refused).

    Args:
        data_csv: file, folder, or several files separated by ";". No header line, no quotes; empty lines are skipped.
        data_shape: shape of one row, filled in C order.
        label_csv: as `data_csv`; "NULL": every label is 0.
        label_shape: shape of one label; (1,) means batches of shape (batch_size,).
        batch_size: rows of a batch.
        round_batch: fill the last batch with the first rows, and begin the next pass behind them; False: pad it with
            zeros, and begin every pass at the first row.
        dtype: "float32" (None), "int32" or "int64", of data and labels.
        data_name, label_name: names of the two inputs in the network.
        prefetch_buffer, ctx: accepted; without effect.

    Raises:
        MXNetError: an argument is missing or wrong; a file is missing, is not of numbers, or does not have as many
            numbers in a row as the shape asks for.
    """
    values = read_parameters("CSVIter", _PARAMETERS, args, kwargs)
    dtype = values["dtype"] or "float32"
    if dtype not in _DTYPES:
        raise MXNetError(f"{dtype} is not supported for CSVIter; choose one of {', '.join(_DTYPES)}")
    data = _read(values["data_csv"], values["data_shape"], dtype)
    if values["label_csv"] == "NULL":
        label = np.zeros((len(data), *values["label_shape"]), dtype)
    else:
        label = _read(values["label_csv"], values["label_shape"], dtype)
        if len(label) < len(data):
            raise MXNetError(
                f"{values['label_csv']} has {len(label)} rows, fewer than the {len(data)} of {values['data_csv']}"
            )
    if label.shape[1:] == (1,):
        label = label[:, 0]
    batches = ArrayBatches(data, label, batch_size=values["batch_size"], round_batch=values["round_batch"])
    return MXDataIter(batches, values["data_name"], values["label_name"])


def _read(uri: str, shape: tuple[int, ...], dtype: str) -> Array:
    return np.concatenate([_read_file(path, shape, dtype) for path in files_of(uri)])


def _read_file(path: str, shape: tuple[int, ...], dtype: str) -> Array:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # an empty file has no rows
            rows = np.loadtxt(path, dtype, delimiter=",", comments=None, ndmin=2, encoding="utf-8-sig")
    except ValueError as error:
        raise MXNetError(f"{path} cannot be read as rows of {dtype}: {error}") from error
    columns = int(np.prod(shape))
    if rows.size and rows.shape[1] != columns:
        raise MXNetError(
            "The data size in CSV do not match size of shape: "
            f"specified shape={list(shape)}, the csv row-length={rows.shape[1]} ({path})"
        )
    return rows.reshape(-1, *shape)
