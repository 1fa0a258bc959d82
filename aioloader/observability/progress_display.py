"""Which progress bar a loader shows: tqdm's or rich's where one is installed, else a line of our own.

All of them write to standard error, draw ten times a second at most, and have no thread of their own. What goes wrong
with a terminal ends the bar, never the pass.
"""

from __future__ import annotations

import importlib.util
import sys
import threading
import warnings
from time import monotonic
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from aioloader.observability.progress_bar import ProgressBar

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ("MODES", "Display", "open_display")

MODES = ("tqdm", "rich", "plain")
_REDRAW_S = 0.1
_TROUBLE = (OSError, ValueError)  # a terminal that is full, or closed


class _Bar(Protocol):
    def advance(self, count: int, note: str) -> None: ...

    def close(self) -> None: ...


class Display:
    """A bar that may break down."""

    def __init__(self, bar: _Bar) -> None:
        self._bar: _Bar | None = bar

    def advance(self, count: int, note: str) -> None:
        """`count` more samples are done; `note` stands at the end of the line."""
        if self._bar is not None:
            try:
                self._bar.advance(count, note)
            except _TROUBLE:
                self.close()

    def close(self) -> None:
        """End the bar's line. May be called twice."""
        bar, self._bar = self._bar, None
        if bar is not None:
            try:
                bar.close()
            except _TROUBLE:
                pass


def open_display(mode: bool | str, label: str, total: int | None, unit: str = "samples") -> Display | None:
    """A bar, or None where there is nobody to see it.

    Args:
        mode: True: on a terminal and in a notebook only, by tqdm, else rich, else by a line of our own; "tqdm", "rich"
            or "plain": that one, wherever standard error goes.
        label: what is going on.
        total: how many there are, or None.
        unit: what is counted, in the plural.

    Raises:
        ModuleNotFoundError: what was asked for is not installed.
    """
    if sys.stderr is None or not mode:
        return None
    if mode is True:
        if not _in_notebook() and not _on_terminal():
            return None
        mode = next((each for each in MODES[:2] if importlib.util.find_spec(each) is not None), "plain")
    elif mode != "plain" and importlib.util.find_spec(str(mode)) is None:
        raise ModuleNotFoundError(f"progress={mode!r} needs the package: pip install {mode}", name=str(mode))
    makers: dict[str, Callable[[str, int | None, str], _Bar]] = {
        "tqdm": _Tqdm,
        "rich": _Rich,
        "plain": _Plain,
    }
    try:
        return Display(makers[str(mode)](label, total, unit))
    except _TROUBLE:
        return None


def _on_terminal() -> bool:
    try:
        return sys.stderr.isatty()
    except ValueError:  # it is closed
        return False


def _in_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None


class _Plain:
    def __init__(self, label: str, total: int | None, unit: str) -> None:
        self._bar = ProgressBar(label, total, unit=unit)

    def advance(self, count: int, note: str) -> None:
        self._bar.note = note
        self._bar.advance(count)

    def close(self) -> None:
        self._bar.close()


class _Tqdm:
    def __init__(self, label: str, total: int | None, unit: str) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # in a notebook without widgets it says so, and does without
            from tqdm.auto import tqdm

            # Its monitor is a thread that would outlive the loader.
            quiet = type("tqdm", (tqdm,), {"monitor_interval": 0})
            self._bar: Any = quiet(
                total=total, desc=label, unit=f" {unit}", mininterval=_REDRAW_S, dynamic_ncols=True
            )

    def advance(self, count: int, note: str) -> None:
        self._bar.set_postfix_str(note, refresh=False)
        self._bar.update(count)

    def close(self) -> None:
        self._bar.close()


class _Rich:
    """A bar of rich's. A terminal has one display of its kind at a time, so bars side by side share it."""

    _shown: ClassVar[list[Any]] = []  # the display, once for every bar in it
    _lock = threading.Lock()

    def __init__(self, label: str, total: int | None, unit: str) -> None:
        self._unit = unit
        self._done = 0
        self._began = self._drawn = monotonic()
        with self._lock:
            self._progress: Any = self._shown[0] if self._shown else self._display()
            self._shown.append(self._progress)
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
        # What the program prints is its own affair: its streams are left as they are.
        streams = {"redirect_stdout": False, "redirect_stderr": False}
        display = Progress(*columns, console=Console(stderr=True), auto_refresh=False, **streams)
        display.start()
        return display

    def advance(self, count: int, note: str) -> None:
        self._done += count
        now = monotonic()
        if now - self._drawn >= _REDRAW_S:
            self._drawn = now
            self._draw(now, note)

    def _draw(self, now: float, note: str | None = None) -> None:
        rate = f"{self._done / max(now - self._began, 1e-9):,.0f} {self._unit}/s"
        facts = {} if note is None else {"note": note}
        self._progress.update(self._task, completed=self._done, rate=rate, refresh=True, **facts)

    def close(self) -> None:
        try:
            self._draw(monotonic())
        finally:
            with self._lock:
                self._shown.remove(self._progress)
                last = not self._shown
            if last:
                self._progress.stop()
