"""Progress bar of work whose amount is known only once it has been prepared."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aioloader.observability.progress import ProgressBar


class LateProgress:
    """Progress bars of the parts of some work, one after the other, as a context manager.

    Args:
        label: the work, in a word or two.
    """

    def __init__(self, label: str) -> None:
        self._label = label
        self._bar: ProgressBar | None = None

    def __enter__(self) -> LateProgress:
        return self

    def __exit__(self, *error: object) -> None:
        self._close()

    def begin(self, count: int) -> None:
        """Show the bar of the next part, which has `count` images; nothing if it has none."""
        from aioloader.observability.progress import ProgressBar

        self._close()
        self._bar = ProgressBar(self._label, count) if count else None

    def tick(self, done: int) -> None:
        """Show the number of images of this part that are done."""
        if self._bar is not None:
            self._bar.update(done)

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None
