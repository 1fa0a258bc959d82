"""Results of a run in a few sentences: one for each kind of work, with ratios to well-known peers."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.results import Results, Spread

__all__ = ("in_short",)


class _Work(NamedTuple):
    case: str
    text: str
    peers: Sequence[str]


_NAMES = {
    "tf_data": "tf.data",
    "grain": "Grain",
    "dali": "DALI on the CPU",
    "ffcv": "FFCV",
    "torch/opencv": "torch with OpenCV",
    "torch/pillow": "torch with Pillow",
    "torch/torchvision": "torch with torchvision",
    "torch/plain": "torch without workers",
    "torch/workers": "torch with workers",
    "mxnet/ImageRecordIter": "MXNet's ImageRecordIter",
    "mxnet/gluon": "MXNet's Gluon",
}
_WORKS = (
    _Work(
        "jpeg-antialias",
        "photographs, random resized crop 224, antialiased",
        ("tf_data", "grain", "dali", "torch/torchvision", "torch/pillow"),
    ),
    _Work(
        "jpeg-uint8",
        "photographs, random resized crop 224, not antialiased",
        ("tf_data", "grain", "dali", "torch/opencv", "mxnet/ImageRecordIter"),
    ),
    _Work(
        "jpeg-float32",
        "the same, normalised float32",
        ("tf_data", "grain", "dali", "torch/opencv", "mxnet/ImageRecordIter"),
    ),
    _Work(
        "large",
        "crops of 512 x 512 of 12-megapixel photographs",
        ("tf_data", "grain", "dali", "torch/pillow"),
    ),
    _Work("raw", "raw pixels, random resized crop 224", ("tf_data",)),
    _Work("raw-area", "the same, resized by area", ("ffcv",)),
    _Work("faces", "face crops of 5 kB", ("tf_data", "dali", "grain", "mxnet/ImageRecordIter")),
    _Work("arrays", "arrays in memory, batches of 32", ("torch/plain", "mxnet/gluon")),
    _Work("bytes", "records of 1 kB", ("torch/plain", "torch/workers")),
)


def in_short(results: Results) -> list[tuple[str, str]]:
    """Return (work, sentence) of each kind of work that was measured.

    A sentence compares the best setting without a crop index, and where there is one the best with an index, and says
    which is which. A peer that is much slower than expected is left out.
    """
    lines = []
    for work in _WORKS:
        parts = list(_parts(results, work))
        if parts:
            lines.append((work.text, "; ".join(parts)))
    starts = [
        f"{row.first_batch_s.median:.2f} s with {name}"
        for variant, name in (("process", "processes"), ("thread", "threads"))
        if (row := results.row("first-batch", f"aioloader/{variant}")) is not None and row.first_batch_s
    ]
    if starts:
        lines.append(("first batch of 64 from a new loader", ", ".join(starts)))
    return lines


def _parts(results: Results, work: _Work) -> Iterator[str]:
    plain = results.row(work.case, "aioloader")
    indexed = results.row(work.case, "aioloader", indexed=True)
    rows = [(name, results.row(work.case, name)) for name in work.peers]
    peers = [(name, row) for name, row in rows if row is not None and not row.doubtful]
    found = [(_NAMES[name], row.ahead) for name, row in peers if row.ahead is not None]
    if plain is not None and found:
        yield f"{'without a crop index ' if indexed else ''}{_times(found)}"
    if plain is not None and plain.of_bare is not None:
        yield f"{plain.of_bare.median:.2f} of the bare loop"
    if indexed is None:
        return
    found = [(_NAMES[name], row.ahead_indexed) for name, row in peers if row.ahead_indexed is not None]
    if plain is not None and plain.ahead_indexed is not None:
        found.append(("aioloader without one", plain.ahead_indexed))
    if found:
        yield f"with a crop index {_times(found)}"


def _times(found: Sequence[tuple[str, Spread]]) -> str:
    """Return "1.2 times as fast as A, 3.4 times B"; two digits below 1, where one would hide what matters."""
    texts = [f"{ratio.median:.1f}" if ratio.median >= 1 else f"{ratio.median:.2f}" for _, ratio in found]
    first, *rest = (f"{text} times {{}}{name}" for text, (name, _) in zip(texts, found, strict=True))
    return ", ".join([first.format("as fast as "), *(each.format("") for each in rest)])
