"""Progress bars of loaders and commands: tqdm's, or rich's on request.

All of them write to standard error, redraw at most ten times a second and start no thread. An error of the
terminal ends the bar, never the work that it reports on.
"""

from __future__ import annotations

import importlib.util
import sys
import threading
import warnings
from contextlib import suppress
from time import monotonic
from typing import Any, ClassVar, TextIO

from aioloader.errors import MissingPackageError

MODES = ("tqdm", "rich", "plain")
_REDRAW_S = 0.1
_LINE_S = 10.0
_LINE = "{desc}: {percentage:3.0f}% {n_fmt}/{total_fmt} [{elapsed}<{remaining}, {rate_fmt}{postfix}]"
_TERMINAL_ERRORS = (OSError, ValueError)  # the terminal is full, or closed


class ProgressBar:
    """A progress bar, as a context manager.

    On a terminal tqdm redraws one line. Elsewhere (a file, a pipe, CI) it writes a plain line every ten seconds and at
    the end. A bar whose terminal fails draws nothing more and raises nothing.

    Args:
        label: the work, in a word or two.
        total: number of units; None if it is unknown.
        unit: the unit, in the plural.
        file: where to write; None: the current standard error.
        done: number of units that were done earlier; they do not count for the rate.
        mode: "plain"; "tqdm": tqdm's own choice of a bar, with a widget in notebooks; or "rich".

    Attributes:
        done: number of units that are done.
    """

    def __init__(
        self,
        label: str,
        total: int | None = None,
        *,
        unit: str = "images",
        file: TextIO | None = None,
        done: int = 0,
        mode: str = "plain",
    ) -> None:
        self._bar: Any = None
        self.done = done
        file = sys.stderr if file is None else file
        if file is None:  # the program was started without standard error
            return
        with suppress(*_TERMINAL_ERRORS):
            if mode == "rich":
                self._bar = _RichBar(label, total, unit)
            else:
                live = mode == "tqdm" or file.isatty()
                self._bar = _tqdm_class(mode, live)(
                    total=total,
                    desc=label,
                    unit=f" {unit}",
                    file=file,
                    initial=done,
                    mininterval=_REDRAW_S if live else _LINE_S,
                    # The rate of the last redraws; in lines that are rare, the rate of the whole time.
                    smoothing=0.3 if live else 0,
                    miniters=1,
                    dynamic_ncols=live,
                    leave=live,
                    bar_format=None if live or total is None else _LINE,
                )

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def advance(self, count: int = 1, note: str | None = None) -> None:
        """Count `count` more units, and show `note` at the end of the line. Cheap: most calls draw nothing."""
        self.done += count
        if self._bar is not None:
            try:
                if note is not None:
                    self._bar.set_postfix_str(note, refresh=False)
                self._bar.update(count)
            except _TERMINAL_ERRORS:
                self.close()

    def update(self, done: int) -> None:
        """Set the number of units that are done in all."""
        self.advance(done - self.done)

    def set_total(self, total: int) -> None:
        """Set the number of units, once it is known."""
        if self._bar is not None:
            self._bar.total = total

    def close(self) -> None:
        """Write the last state and end the line; may be called twice."""
        bar, self._bar = self._bar, None
        if bar is not None:
            with suppress(*_TERMINAL_ERRORS):
                bar.close()


def open_progress_bar(
    mode: bool | str, label: str, total: int | None, unit: str = "samples"
) -> ProgressBar | None:
    """Open the progress bar of a loader; None if there is nobody to see it.

    Args:
        mode: True: a bar on a terminal and in a notebook only; one of `MODES`: that bar, wherever standard error goes.
        label: the work.
        total: number of units, or None.
        unit: the unit, in the plural.

    Raises:
        MissingPackageError: rich is asked for and not installed.
    """
    if sys.stderr is None or not mode:
        return None
    if mode is True:
        if not _in_notebook() and not _on_terminal():
            return None
        mode = "tqdm"
    if mode == "rich" and importlib.util.find_spec("rich") is None:
        raise MissingPackageError("rich", extra="progress", what="progress='rich' needs")
    return ProgressBar(label, total, unit=unit, mode=str(mode))


def _on_terminal() -> bool:
    try:
        return sys.stderr.isatty()
    except ValueError:  # it is closed
        return False


def _in_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None


def _tqdm_class(mode: str, live: bool) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # tqdm warns in a notebook without widgets and then uses text
        if mode == "tqdm":
            from tqdm.auto import tqdm
        else:
            from tqdm.std import tqdm
    # Its monitor is a thread that would outlive the loader; its default lock is one between processes; its finaliser
    # writes to a terminal that may be gone.
    members: dict[str, Any] = {
        "monitor_interval": 0,
        "_lock": _LOCK,
        "__del__": lambda self: None,
        "refresh": _refresh,
    }
    if not live:
        members |= {"display": _write_line, "close": _close_lines, "moveto": lambda self, rows: None}
    return type("tqdm", (tqdm,), members)


_LOCK = threading.RLock()


def _refresh(bar: Any, nolock: bool = False, lock_args: tuple[Any, ...] | None = None) -> bool:
    """Draw a bar; in place of tqdm's method, which keeps the lock of all bars where the terminal fails."""
    if bar.disable:
        return False
    if nolock:
        bar.display()
        return True
    if not bar._lock.acquire(*(lock_args or ())):
        return False
    try:
        bar.display()
    finally:
        bar._lock.release()
    return True


def _write_line(bar: Any, msg: str | None = None, pos: int | None = None) -> None:
    # The first draw and that of a close without `leave` say nothing of the work.
    if msg is None and bar.n > bar.initial:
        bar.fp.write(f"{bar}\n")
        bar.fp.flush()


def _close_lines(bar: Any) -> None:
    try:
        if not bar.disable:
            bar.display()
    finally:
        super(type(bar), bar).close()


class _RichBar:
    """A bar of rich's. A terminal has one display of its kind at a time, so concurrent bars share it."""

    _open: ClassVar[list[Any]] = []  # the display, once for every bar in it
    _lock = threading.Lock()

    def __init__(self, label: str, total: int | None, unit: str) -> None:
        self._unit = unit
        self._done = 0
        self._note = ""
        self._began = self._drawn = monotonic()
        with self._lock:
            self._progress: Any = self._open[0] if self._open else self._display()
            self._open.append(self._progress)
        self._task = self._progress.add_task(label, total=total, rate="", note="")

    @staticmethod
    def _display() -> Any:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[rate]}  {task.fields[note]}"),
        )
        # The program's own output is not redirected.
        streams = {"redirect_stdout": False, "redirect_stderr": False}
        display = Progress(*columns, console=Console(stderr=True), auto_refresh=False, **streams)
        display.start()
        return display

    def set_postfix_str(self, note: str, refresh: bool) -> None:
        self._note = note

    def update(self, count: int) -> None:
        self._done += count
        now = monotonic()
        if now - self._drawn >= _REDRAW_S:
            self._drawn = now
            self._draw(now)

    def _draw(self, now: float) -> None:
        rate = f"{self._done / max(now - self._began, 1e-9):,.0f} {self._unit}/s"
        self._progress.update(self._task, completed=self._done, rate=rate, note=self._note, refresh=True)

    def close(self) -> None:
        try:
            self._draw(monotonic())
        finally:
            with self._lock:
                self._open.remove(self._progress)
                last = not self._open
            if last:
                self._progress.stop()
