"""Rules for the choice of an executor and its number of workers: what to try next, and when to stop. Pure.

A trial is a kind of executor with a number of workers, all of which are busy while it is measured. Its throughput is
that of all workers if they are never idle: their number divided by the seconds that a sample takes one of them. Two
threads that block each other take twice as long for a sample, and their throughput is that of one.
"""

from __future__ import annotations

from dataclasses import dataclass

from aioloader.observability.derived_metrics import MIN_DISPATCHED_S

# Factors by which twice the workers, or processes instead of threads, must be faster to be chosen.
_WORTH_DOUBLING = 1.25
_WORTH_CHANGING = 1.1
# Two threads that are not faster than one by this factor block each other.
_RELEASES_LOCK = 1.5
_CHUNKS = 3
_LEAST_S = 0.03
_ENOUGH_CHUNKS = 24


@dataclass
class Trial:
    """A number of workers of one kind, and its measurement.

    Attributes:
        kind: "thread", "process" or "inline".
        workers: number of workers; 1 for "inline".
        chunks, samples, work_s: measured while all workers were busy.
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
        """Return whether the measurement is long enough."""
        if self.chunks < _CHUNKS * self.workers or not self.samples:
            return False
        return self.work_s >= _LEAST_S * self.workers or self.chunks >= _ENOUGH_CHUNKS * self.workers

    @property
    def sample_s(self) -> float:
        """Return the seconds that a sample takes one of the workers."""
        return self.work_s / max(1, self.samples)

    @property
    def throughput(self) -> float:
        """Return the samples per second of all workers together."""
        return self.workers / self.sample_s if self.sample_s else float("inf")

    def record(self, samples: int, work_s: float, full: bool) -> None:
        """Count a chunk; `full`: all workers were busy."""
        if self.warm < self.workers:  # the first ones load what they need
            self.warm += 1
        elif full:
            self.chunks += 1
            self.samples += samples
            self.work_s += work_s


class ExecutorTuner:
    """The trials so far, and the choice.

    Args:
        kinds: in the order in which they are tried: "thread", "process" or both.
        most: largest number of workers.
        inline: no workers may be chosen where samples cost next to nothing.
        fixed: the number of workers is given, and is `most`.

    Attributes:
        trial: the trial that runs now, or the one that was chosen.
        chosen: the trial that was chosen, or None; of the kind "inline" for no workers.
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
        self.trial = Trial(kinds[0], 1 if inline or len(kinds) > 1 or not fixed else most)
        if len(kinds) == 1 and not inline and (fixed or most == 1):
            self._choose(self.trial, "nothing else is possible")

    def next(self, allowed: int) -> None:
        """Go to the next trial after one that is measured, or choose.

        Args:
            allowed: worker processes that fit into memory.
        """
        trial = self.trial
        self._done.append(trial)
        if self._inline and len(self._done) == 1:
            batch_s = trial.sample_s * max(1, trial.samples // max(1, trial.chunks))
            if batch_s < MIN_DISPATCHED_S:
                self._choose(
                    Trial("inline", 1),
                    f"a sample takes {1e6 * trial.sample_s:,.0f} µs, less than to hand it to a worker and back",
                )
                return
        wanted = self._next_trial(trial)
        if wanted is None:
            self._choose_best("")
            return
        if wanted.kind == "process" and wanted.workers > allowed:
            if trial.kind != "process" or allowed <= trial.workers:
                self._choose_best(f"; more than {allowed} worker processes would not fit into memory")
                return
            wanted.workers = allowed
        self.trial = wanted

    def _next_trial(self, trial: Trial) -> Trial | None:
        """Return the next trial, or None if no other is worth it."""
        first = next((each for each in self._done[:-1] if each.kind == trial.kind), None)
        last = self._done[-2] if len(self._done) > 1 and self._done[-2].kind == trial.kind else None
        grew = last is None or trial.throughput >= last.throughput * _WORTH_DOUBLING
        if trial.kind == "thread" and first is not None and trial.workers == 2:
            grew = trial.throughput >= first.throughput * _RELEASES_LOCK
        if grew and trial.workers < self._most:
            return Trial(trial.kind, self._most if self._fixed else min(self._most, 2 * trial.workers))
        if trial.kind == "thread" and "process" in self._kinds:
            one = first or trial
            if trial.throughput < 0.85 * trial.workers * one.throughput or not grew:
                return Trial(
                    "process", self._most if self._fixed else min(self._most, max(2, trial.workers // 2))
                )
        return None

    def _choose_best(self, more: str) -> None:
        best = self._done[0]
        for trial in self._done[1:]:
            worth = _WORTH_CHANGING if trial.kind == best.kind or trial.workers >= best.workers else 1.0
            if trial.throughput >= worth * best.throughput:
                best = trial
        if self._fixed and best.workers != self._most:
            given = [each for each in self._done if each.workers == self._most]
            best = max(
                given or [best], key=lambda each: each.throughput
            )  # memory may not have room for as many
        self._choose(best, self._comparison(best) + more)

    def without_processes(self, why: str) -> None:
        """Choose among the other trials that were measured, because worker processes are not available."""
        self._done = [trial for trial in self._done if trial.kind != "process"]
        if self._done:
            self._choose_best(f"; {why}")
        else:
            self._choose(self.trial, why)

    def _choose(self, trial: Trial, reason: str) -> None:
        self.trial = self.chosen = Trial(trial.kind, trial.workers)
        self.reason = reason

    def _comparison(self, best: Trial) -> str:
        others = [
            f"{describe_workers(each.kind, each.workers)} {each.throughput:,.0f}"
            for each in self._done
            if each is not best
        ]
        if not others:
            return f"a sample takes {1e3 * best.sample_s:.2f} ms"
        return f"measured {best.throughput:,.0f} samples/s, {', '.join(others)}"


def describe_workers(kind: str, workers: int) -> str:
    """Return a number of workers in words."""
    if kind == "inline":
        return "no workers"
    plural = "es" if kind == "process" else "s"
    return f"{workers} {kind}{'' if workers == 1 else plural}"
