"""Formats of data sets: one folder for each, and what all of them share.

A folder has all that knows its format: parser, index, dataset and check. `aioloader.formats.base` has the registry that
`open_dataset`, `images` and the commands ask.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from recordio._lazy_names import lazy_names

if TYPE_CHECKING:
    from aioloader.formats.base import Format as Format
    from aioloader.formats.base import register as register
    from aioloader.formats.encoded import EncodedDataset as EncodedDataset

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "aioloader.formats.base": "Format register",
        "aioloader.formats.encoded": "EncodedDataset",
    },
)
