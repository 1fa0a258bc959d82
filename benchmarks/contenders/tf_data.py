"""tf.data: TFRecord shards, `decode_and_crop_jpeg`, a bilinear resize.

The input pipeline of TensorFlow's own ImageNet training, with the advice of its performance guide: interleaved
reads of shards, parallel maps out of order, a prefetch at the end, single-threaded ops in a private thread pool.
Decoding is exact (`INTEGER_ACCURATE`), as everybody else's is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmarks.cases import Case

VARIANTS = ("",)
PACKAGES = ("tensorflow-cpu", "numpy")

_SHARDS = 16
_SHUFFLE = 2048  # records of the buffer; the shards are shuffled as well


def supports(case: Case, variant: str) -> str | None:
    """Everything but a choice of interpolation: its area resize does not average fractions of a crop as OpenCV does."""
    return "its area resize is another one" if case.interpolation != "linear" else None


def settings(case: Case, variant: str, cores: int) -> list[dict[str, Any]]:
    """Parallel calls and threads fixed, and left to AUTOTUNE; arrays also with one gather a batch."""
    if case.store == "arrays":
        return [{"gather": gather, "threads": cores} for gather in (False, True)]
    if case.store == "bytes":
        return [{"calls": 0, "threads": threads} for threads in (1, cores)]
    return [
        {"calls": calls, "threads": threads} for calls, threads in ((0, 0), (0, cores), (4, cores), (4, 4))
    ]


def data_key(case: Case, variant: str) -> str:
    """Tiled JPEGs are read as plain ones."""
    return f"{case.data}-{'raw' if case.store == 'raw' else 'plain'}"
