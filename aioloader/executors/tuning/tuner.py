"""Which executor, and how many workers: what to try next, and when to stop (pure).

A step is a kind of executor with a number of workers, of which all are at work while it is measured. Its pace is what
its workers make together if they are never idle: their number through the seconds that a sample takes one of them. Two
threads that hold each other up take twice as long for a sample, and their pace is that of one.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ("ExecutorTuner", "Trial", "describe_workers")

# A batch of so little work costs less in the loop's thread than being handed over and back.
_INLINE_BATCH_S = 0.0015
# Twice the workers have to be so much faster to be kept; and another kind so much faster than threads.
_WORTH_DOUBLING = 1.25
_WORTH_CHANGING = 1.1
# Two threads that are not so much faster than one hold each other up.
_RELEASES_LOCK = 1.5
_CHUNKS = 3
_LEAST_S = 0.03
_ENOUGH_CHUNKS = 24


@dataclass
class Trial:
    """A number of workers of one kind, and what was measured of them.

    Attributes:
        kind: "thread", "process" or "inline".
        workers: how many; 1 where there are none.
        chunks, samples, work_s: measured while all of them were at work.
        warm: chunks that were made before.
    """

    kind: str
    workers: int
    chunks: int = 0
    samples: int = 0
    work_s: float = 0.0
    warm: int = 0

    @property
    def measured(self) -> bool:
        """Whether there is enough to tell its pace."""
        if self.chunks < _CHUNKS * self.workers or not self.samples:
            return False
        return self.work_s >= _LEAST_S * self.workers or self.chunks >= _ENOUGH_CHUNKS * self.workers

    @property
    def sample_s(self) -> float:
        """Seconds that a sample takes one of the workers."""
        return self.work_s / max(1, self.samples)

    @property
    def pace(self) -> float:
        """Samples per second of all workers together."""
        return self.workers / self.sample_s if self.sample_s else float("inf")

    def enter(self, samples: int, work_s: float, full: bool) -> None:
        """A chunk was made; `full`: while all workers were at work."""
        if self.warm < self.workers:  # the first ones load what they need
            self.warm += 1
        elif full:
            self.chunks += 1
            self.samples += samples
            self.work_s += work_s


class ExecutorTuner:
    """The steps, and the choice.

    Args:
        kinds: in the order in which they are tried: "thread", "process" or both.
        most: workers at most.
        inline: no worker may be chosen where samples cost next to nothing.
        fixed: the number of workers is given, and is `most`.

    Attributes:
        step: what is tried now, or what was chosen.
        chosen: the step that was chosen, or None; of the kind "inline" where there are to be no workers.
        reason: why, in words.
    """

    def __init__(
        self, kinds: tuple[str, ...], most: int, *, inline: bool = False, fixed: bool = False
    ) -> None:
        self._kinds = kinds
        self._most = most
        self._inline = inline
        self._fixed = fixed
        self._done: list[Trial] = []
        self.chosen: Trial | None = None
        self.reason = ""
        self.step = Trial(kinds[0], 1 if inline or len(kinds) > 1 or not fixed else most)
        if len(kinds) == 1 and not inline and (fixed or most == 1):
            self._choose(self.step, "nothing else is possible")

    def next(self, allowed: int) -> None:
        """The step is measured: go to the next one, or choose.

        Args:
            allowed: worker processes that fit into memory.
        """
        step = self.step
        self._done.append(step)
        if self._inline and len(self._done) == 1:
            batch_s = step.sample_s * max(1, step.samples // max(1, step.chunks))
            if batch_s < _INLINE_BATCH_S:
                self.step = self.chosen = Trial("inline", 1)
                self.reason = (
                    f"a sample takes {1e6 * step.sample_s:,.0f} µs, less than to hand it to a worker and back"
                )
                return
        wanted = self._up(step)
        if wanted is not None:
            if wanted.kind == "process" and wanted.workers > allowed:
                if step.kind != "process" or allowed <= step.workers:
                    self._choose_best(f"; more than {allowed} worker processes would not fit into memory")
                    return
                wanted.workers = allowed
            self.step = wanted
            return
        self._choose_best("")

    def _up(self, step: Trial) -> Trial | None:
        """The next step, or None if there is none worth trying."""
        before = next((each for each in self._done[:-1] if each.kind == step.kind), None)
        last = self._done[-2] if len(self._done) > 1 and self._done[-2].kind == step.kind else None
        grew = last is None or step.pace >= last.pace * _WORTH_DOUBLING
        if step.kind == "thread" and before is not None and step.workers == 2:
            grew = step.pace >= before.pace * _RELEASES_LOCK
        if grew and step.workers < self._most:
            return Trial(step.kind, self._most if self._fixed else min(self._most, 2 * step.workers))
        if step.kind == "thread" and "process" in self._kinds:
            first = next(each for each in self._done if each.kind == "thread")
            if step.pace < 0.85 * step.workers * first.pace or not grew:
                return Trial(
                    "process", self._most if self._fixed else min(self._most, max(2, step.workers // 2))
                )
        return None

    def _choose_best(self, more: str) -> None:
        best = self._done[0]
        for step in self._done[1:]:
            worth = _WORTH_CHANGING if step.kind == best.kind or step.workers >= best.workers else 1.0
            if step.pace >= worth * best.pace:
                best = step
        if self._fixed and best.workers != self._most:
            given = [each for each in self._done if each.workers == self._most]
            best = max(given or [best], key=lambda each: each.pace)  # memory may not have room for as many
        self._choose(best, self._compared(best) + more)

    def without_processes(self, why: str) -> None:
        """Worker processes cannot be had: choose among the other steps that were measured."""
        self._done = [step for step in self._done if step.kind != "process"]
        if self._done:
            self._choose_best(f"; {why}")
        else:
            self._choose(self.step, why)

    def _choose(self, step: Trial, reason: str) -> None:
        self.step = self.chosen = Trial(step.kind, step.workers)
        self.reason = reason

    def _compared(self, best: Trial) -> str:
        tried = [
            f"{describe_workers(each.kind, each.workers)} {each.pace:,.0f}"
            for each in self._done
            if each is not best
        ]
        if not tried:
            return f"a sample takes {1e3 * best.sample_s:.2f} ms"
        return f"measured {best.pace:,.0f} samples/s, {', '.join(tried)}"


def describe_workers(kind: str, workers: int) -> str:
    """A number of workers in words."""
    if kind == "inline":
        return "no workers"
    plural = "es" if kind == "process" else "s"
    return f"{workers} {kind}{'' if workers == 1 else plural}"
