"""What is done to every sample of a loader, in a form that travels to workers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ("Program",)


@dataclass(frozen=True)
class Program:
    """The part of a loader that runs in its executor; picklable, sent to a worker once.

    Attributes:
        decoder: bytes to sample, or None: then `dataset` is indexed.
        dataset: a foreign dataset, or None.
        paths: files of the byte source where they are few, for errors.
        replaces: in a batch that `batchify` collates, another sample takes the place of one that failed.
        maps: files of which records are looked up in a map (``record``, ``whole``), or None.
        stages: what is done to a sample, in order (`aioloader.datasets.resolve.Stage`), up to the first async one.
        later: the same after each async transform, or several in a row.
        batchify: collates a whole batch in the executor, or None: samples are written to rows.
        seed: the loader's seed.
        seed_globals: set the global generators of Python, numpy and torch (on the CPU) before each sample.
        foreign: whether code that is not ours runs; only such code can draw from the global generators.
        traced: results say when and where they were made.
    """

    decoder: Any
    dataset: Any
    paths: tuple[str, ...]
    stages: tuple[Any, ...]
    batchify: Callable[[list[Any]], Any] | None
    seed: int
    seed_globals: bool
    foreign: bool
    maps: Any = None
    replaces: bool = False
    traced: bool = False
    later: tuple[tuple[Any, ...], ...] = ()

    @property
    def copies_only(self) -> bool:
        """Whether samples are the payloads themselves, found and copied many at a time."""
        return not self.stages and not self.later and self.batchify is None and _many_fits(self.decoder)


def _many_fits(decoder: Any) -> bool:
    """Whether a decoder's `many` was written for its ``__call__``, and not for that of a class it comes from."""
    order = type(decoder).__mro__
    first = [
        next((n for n, cls in enumerate(order) if name in vars(cls)), None) for name in ("many", "__call__")
    ]
    return first[0] is not None and first[1] is not None and first[0] <= first[1]
