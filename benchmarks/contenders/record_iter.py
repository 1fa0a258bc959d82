"""ImageRecordIter of MXNet or of `aioloader.mxnet`: the same lines run both. Not a contender itself.

Standard library only, and Python 3.8, because MXNet's environment imports this module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks.cases import MEAN, STD

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from benchmarks.cases import Case


def open_record_iter(
    mx: Any, case: Case, data: Path, setting: dict[str, Any], part: int = 0, parts: int = 1
) -> Any:
    """Open an iterator over a part of ``images.rec``.

    Args:
        mx: the package.
        case, data, setting: of `open_batches`.
        part, parts: which part of how many.
    """
    shape = case.shape if case.normalised else (case.shape[2], case.shape[0], case.shape[1])
    options: dict[str, Any] = {
        "path_imgrec": str(data / "images.rec"),
        "path_imgidx": str(data / "images.idx"),
        "data_shape": shape,
        "batch_size": case.batch_size,
        "shuffle": case.shuffle,
        "rand_mirror": case.flip,
        "part_index": part,
        "num_parts": parts,
        "verbose": False,
        **setting,
    }
    if case.crop == "random":
        options.update(random_resized_crop=True, min_random_area=0.08, max_random_area=1.0, inter_method=1)
        options.update(min_aspect_ratio=3 / 4, max_aspect_ratio=4 / 3)
    elif case.crop == "window":
        options.update(rand_crop=True)
    elif case.crop == "centre":
        options.update(resize=256, inter_method=1)
    if not case.normalised:
        return mx.io.ImageRecordUInt8Iter(**options)
    for name, mean, std in zip("rgb", MEAN, STD):  # noqa: B905 - older Pythons
        options.update({f"mean_{name}": mean * 255, f"std_{name}": std * 255})
    return mx.io.ImageRecordIter(**options)


class DataIters:
    """Batches of one DataIter, or of several alternately; one iteration is one epoch.

    Args:
        iters: the iterators.
        seen: function from the images of a batch to a numpy array.
    """

    def __init__(self, iters: list[Any], seen: Callable[[Any], Any]) -> None:
        self._iters = iters
        self._seen = seen
        self._used = False

    def __iter__(self) -> Iterator[Any]:
        if self._used:
            for each in self._iters:
                each.reset()
        self._used = True
        left = list(self._iters)
        while left:
            for each in tuple(left):
                try:
                    batch = each.next()
                except StopIteration:
                    left.remove(each)
                    continue
                yield self._seen(batch.data[0]), batch.label[0].asnumpy()
