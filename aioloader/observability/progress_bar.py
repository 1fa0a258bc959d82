"""One line on the terminal that says how far something has got, how fast it goes and when it will be done.

Everything goes to standard error. On a terminal the line is redrawn ten times a second at most; elsewhere (a file, a
pipe, CI) a plain line is written every ten seconds and at the end. ``NO_COLOR`` is honoured.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections import deque
from time import monotonic
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ("ProgressBar",)

_REDRAW_S = 0.1
_LINE_S = 10.0
_RECENT_S = 3.0  # the rate is that of the last seconds, so that a slow start is forgotten
_PARTS = " ▏▎▍▌▋▊▉█"


class ProgressBar:
    """A progress bar; a context manager.

    Args:
        label: what is going on, a word or two.
        total: how many there are; None where that is not known.
        unit: what is counted, in the plural.
        file: where to write; None: standard error as it is now.
        done: how many are done before it begins; they do not count for the rate.

    Attributes:
        note: what stands at the end of the line, empty at first.
    """

    def __init__(
        self,
        label: str,
        total: int | None = None,
        *,
        unit: str = "images",
        file: TextIO | None = None,
        done: int = 0,
    ) -> None:
        self.label = label
        self.total = total
        self.unit = unit
        self.note = ""
        self.done = self._before = done
        # None where the program was started without it.
        self._file: TextIO | None = sys.stderr if file is None else file
        self._live = self._file is not None and self._file.isatty() and os.environ.get("TERM") != "dumb"
        self._colour = self._live and not os.environ.get("NO_COLOR")
        self._blocks = "utf" in (getattr(self._file, "encoding", None) or "").lower()
        self._started = self._drawn = monotonic()
        self._recent: deque[tuple[float, int]] = deque([(self._started, done)])
        self._closed = False

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def advance(self, count: int = 1) -> None:
        """`count` more are done."""
        self.update(self.done + count)

    def update(self, done: int) -> None:
        """`done` are done in all. Cheap: most calls draw nothing."""
        self.done = done
        now = monotonic()
        if now - self._drawn < (_REDRAW_S if self._live else _LINE_S):
            return
        self._drawn = now
        self._recent.append((now, done))
        while len(self._recent) > 2 and now - self._recent[0][0] > _RECENT_S:
            self._recent.popleft()
        self._write(self._text(now, final=False))

    def close(self) -> None:
        """Write the last state, with the rate over the whole time; may be called twice."""
        if self._closed:
            return
        self._closed = True
        self._write(self._text(monotonic(), final=True), end="\n")

    def _write(self, text: str, end: str = "") -> None:
        if self._file is None:
            return
        # A closed or full terminal must not end the work that it reports on.
        try:
            self._file.write(f"\r{text}\x1b[K{end}" if self._live else f"{text}\n")
            self._file.flush()
        except (OSError, ValueError):
            pass

    def _text(self, now: float, final: bool) -> str:
        seconds = now - self._started
        then, count = (self._started, self._before) if final else self._recent[0]
        rate = (self.done - count) / max(now - then, 1e-9)
        parts = [f"{rate:,.0f} {self.unit}/s"]
        if final:
            parts.append(f"in {_duration(seconds)}")
        elif self.total is not None and rate > 0:
            parts.append(f"{_duration((self.total - self.done) / rate)} left")
        if self.note:
            parts.append(self.note)
        tail = "  ".join(parts)
        if self.total is None:
            return f"{self.label}  {self.done:,} {self.unit}  {tail}"
        share = min(1.0, self.done / self.total) if self.total else 1.0
        head, counts = f"{self.label} {share:4.0%} ", f" {self.done:,}/{self.total:,}  {tail}"
        if not self._live:
            return f"{head.rstrip()} {counts}"
        room = min(32, shutil.get_terminal_size().columns - len(head) - len(counts) - 3)
        return f"{head}{self._bar(share, room)}{counts}" if room >= 6 else head.rstrip()

    def _bar(self, share: float, width: int) -> str:
        if self._blocks:
            eighths = round(share * width * 8)
            full, rest = divmod(eighths, 8)
            bar = "█" * full + (_PARTS[rest] if rest else "")
            bar = f"{bar:<{width}}"
            return f"▕\x1b[36m{bar}\x1b[0m▏" if self._colour else f"▕{bar}▏"
        return f"[{'#' * round(share * width):<{width}}]"


def _duration(seconds: float) -> str:
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02d} min"
