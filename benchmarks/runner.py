"""Runner of contenders and cases: prepare, sweep, check, then rounds in which all take turns in random order.

A figure counts only after a whole epoch of the same contender and setting was checked. Within a round all contenders of
a case run one after the other, so that a ratio compares measurements that are close in time; the rounds of a case are
spread over the whole run. Every failure becomes a record with its reason and does not end the run.
"""

from __future__ import annotations

import json
import random
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from statistics import median
from time import monotonic
from typing import TYPE_CHECKING, Any

from benchmarks.environments import EnvironmentFailure, ensure, needs_of, ready
from benchmarks.prepare import absent_reason, make_source, warm_up
from benchmarks.process import JobFailure, run_job

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from benchmarks.cases import Case
    from benchmarks.contenders.contract import Source
    from benchmarks.log import Log, Record
    from benchmarks.results import KeptSettings


_NEAR = 0.9
_TRIAL_S = 0.7  # of a setting, after as long a time to settle
_MEMORY_ROUNDS = 2  # memory hardly differs from round to round
_DESCRIBE_S, _PREPARE_S, _CHECK_S, _START_S = 180.0, 1800.0, 600.0, 120.0


@dataclass(frozen=True)
class Plan:
    """Plan of a run.

    Attributes:
        cases: in this order.
        contenders: "NAME", or "NAME/VARIANT" for one variant.
        rounds: number of measurements of each.
        seconds: duration of each measurement.
        sweep: try all settings of a contender and keep the best; else its first.
        install: make missing environments; else leave such contenders out.
        cores: numbers of the cores that contenders may use.
        photos: folder of photographs; None: drawn images.
        scratch, environments: folders of data and environments.
        limit_s: seconds after which no measurement is started; None: no limit.
        seed: seed of the order of turns.
        kept: settings of an earlier run, which are not searched again; or None.
    """

    cases: tuple[Case, ...]
    contenders: tuple[str, ...]
    rounds: int
    seconds: float
    sweep: bool
    install: bool
    cores: tuple[int, ...]
    photos: Path | None
    scratch: Path
    environments: Path
    limit_s: float | None = None
    seed: int = 0
    kept: KeptSettings | None = None


@dataclass
class _Entrant:
    """One variant of a contender in one case."""

    name: str
    variant: str
    case: Case
    python: Path
    settings: list[dict[str, Any]]
    key: str
    source: Source
    kept: Mapping[str, Any] | None = None
    data: str = ""
    setting: dict[str, Any] = field(default_factory=dict)
    out: bool = False

    @property
    def identity(self) -> dict[str, str]:
        """Return its name in records."""
        return {"name": self.name, "variant": self.variant, "case": self.case.name}

    def __str__(self) -> str:
        return f"{self.case.name:13} {'/'.join(filter(None, (self.name, self.variant)))}"


class Runner:
    """Runner of a plan.

    Args:
        plan: the cases and contenders.
        log: receives all records; measurements that it has already are not repeated.
    """

    def __init__(self, plan: Plan, log: Log) -> None:
        self._plan = plan
        self._log = log
        self._random = random.Random(plan.seed)
        self._deadline = None if plan.limit_s is None else monotonic() + plan.limit_s
        self._began = monotonic()
        self._spent: dict[str, Counter[str]] = {}

    def run(self) -> None:
        """Run the plan; KeyboardInterrupt propagates, and the log keeps the finished measurements."""
        entrants = self._gather()
        for case in self._plan.cases:
            for entrant in [e for e in entrants if e.case is case]:
                if not self._late():
                    self._prepare(entrant)
        warm_up(*{entrant.source.folder for entrant in entrants if not entrant.out})
        for case in self._plan.cases:
            self._choose([e for e in entrants if e.case is case and not e.out])
        self._check_all([e for e in entrants if not e.out])
        for number in range(self._plan.rounds):
            for case in self._shuffled(self._plan.cases):
                for entrant in self._shuffled([e for e in entrants if e.case is case]):
                    if not entrant.out and not self._late():
                        self._round(entrant, number)
        self._say_times()

    def _gather(self) -> list[_Entrant]:
        """Return all entrants by case."""
        found = []
        names = dict.fromkeys(contender.partition("/")[0] for contender in self._plan.contenders)
        for name in names:
            described = None if self._late() else self._describe(name)
            for entry in described["entries"] if described else ():
                entrant = self._entrant(name, described, entry)
                if entrant is not None:
                    found.append(entrant)
        return found

    def _describe(self, name: str) -> dict[str, Any] | None:
        try:
            if not self._plan.install and not ready(name, self._plan.environments):
                raise EnvironmentFailure(
                    name, "its environment is not installed; --contenders NAME installs it"
                )
            if not ready(name, self._plan.environments):
                self._say(f"installing {name}")
            python = ensure(name, self._plan.environments)
            described = run_job(
                python,
                name,
                "describe",
                limit_s=_DESCRIBE_S,
                cores=self._plan.cores,
                variables=self._variables(name),
                cases=[asdict(case) for case in self._plan.cases],
            )
        except (EnvironmentFailure, JobFailure) as failure:
            self._failed({"name": name, "variant": None, "case": None}, "environment", failure)
            return None
        self._log.add("contender", name=name, versions=described["versions"], python=described["python"])
        return {**described, "python_path": python}

    def _entrant(self, name: str, described: dict[str, Any], entry: dict[str, Any]) -> _Entrant | None:
        variant = entry["variant"]
        if not {name, f"{name}/{variant}"} & set(self._plan.contenders):
            return None
        case = next(case for case in self._plan.cases if case.name == entry["case"])
        identity = {"name": name, "variant": variant, "case": case.name}
        if entry["reason"] is not None:
            self._log.add("declined", **identity, reason=entry["reason"])
            return None
        source = make_source(case, self._plan.photos, self._plan.scratch, self._say)
        store = "crops" if variant.startswith("crop-index") else case.store
        absent = absent_reason(source, store) if name == "aioloader" else None
        if absent:
            self._failed(identity, "data", JobFailure(absent))
            return None
        settings = entry["settings"]
        kept = None
        if self._plan.kept is not None:
            kept = self._plan.kept.find(case.name, name, variant, described["versions"], settings)
        python = described["python_path"]
        return _Entrant(
            name, variant, case, python, settings=settings, key=entry["key"], source=source, kept=kept
        )

    def _prepare(self, entrant: _Entrant) -> None:
        folder = self._plan.scratch / "peers" / entrant.name / f"{entrant.key}-{entrant.source.folder.name}"
        done = folder / "prepared.json"
        if not done.exists():
            self._say(f"preparing {entrant}")
            try:
                result = self._job(
                    entrant, "prepare", _PREPARE_S, source=entrant.source.folder, folder=str(folder)
                )
            except JobFailure as failure:
                self._out(entrant, "prepare", failure)
                return
            done.write_text(json.dumps(result))
        prepared = json.loads(done.read_text())
        entrant.data = prepared["data"]
        self._log.add("prepared", **entrant.identity, nbytes=prepared["nbytes"])
        warm_up(folder)

    def _choose(self, entrants: Sequence[_Entrant]) -> None:
        """Measure every setting, in random order; those near the best once more; and keep each entrant's best.

        Those with a setting of an earlier run keep it.
        """
        known = {id(e): self._log.find("chosen", **e.identity) for e in entrants}
        tries = [
            (entrant, setting)
            for entrant in entrants
            for setting in entrant.settings
            if self._plan.sweep and not entrant.case.start
            if len(entrant.settings) > 1 and not known[id(entrant)] and entrant.kept is None
        ]
        rates: dict[tuple[int, str], list[float]] = {}
        reasons: dict[int, JobFailure] = {}
        for repeat in (1, 2):
            for entrant, setting in self._shuffled(tries):
                if self._late():
                    break
                key = (id(entrant), json.dumps(setting))
                try:
                    rates.setdefault(key, []).append(self._try(entrant, setting, repeat))
                except JobFailure as failure:
                    reasons[id(entrant)] = failure
            tries = [pair for pair in tries if self._near_best(pair, rates)]
        for entrant in entrants:
            record = known[id(entrant)]
            if record is not None:
                entrant.setting = record["setting"]
                continue
            found = [
                (median(rates[id(entrant), json.dumps(setting)]), setting)
                for setting in entrant.settings
                if rates.get((id(entrant), json.dumps(setting)))
            ]
            if not found and id(entrant) in reasons:
                self._out(entrant, "sweep", reasons[id(entrant)])
                continue
            best = max(found, key=lambda pair: pair[0], default=(0.0, entrant.kept or entrant.settings[0]))
            entrant.setting = dict(best[1])
            self._log.add("chosen", **entrant.identity, setting=entrant.setting)

    def _try(self, entrant: _Entrant, setting: dict[str, Any], repeat: int) -> float:
        """Return samples per second of a short measurement."""
        record = self._log.find("sweep", **entrant.identity, setting=setting, repeat=repeat)
        if record is None:
            facts: dict[str, Any] = {**entrant.identity, "setting": setting, "repeat": repeat}
            brief = min(_TRIAL_S, self._plan.seconds)
            try:
                figures = self._measure(entrant, setting, brief, least_batches=4, stage="sweep")
            except JobFailure as failure:
                self._log.add("sweep", **facts, reason=str(failure))
                self._say(f"sweep   {entrant} {_short(setting)}: {failure}")
                raise
            record = self._log.add("sweep", **facts, images_per_s=figures["images_per_s"])
            self._say(f"sweep   {entrant} {_short(setting)}: {record['images_per_s']:,.0f}/s")
        if "images_per_s" not in record:
            raise JobFailure(record["reason"])
        rate: float = record["images_per_s"]
        return rate

    @staticmethod
    def _near_best(pair: tuple[_Entrant, dict[str, Any]], rates: dict[tuple[int, str], list[float]]) -> bool:
        """Return whether several settings, this one included, are near an entrant's best: noise may have decided."""
        entrant, setting = pair
        firsts = {
            key: rates[id(entrant), key][0]
            for key in map(json.dumps, entrant.settings)
            if rates.get((id(entrant), key))
        }
        near = {key for key, rate in firsts.items() if rate >= _NEAR * max(firsts.values())}
        return json.dumps(setting) in near and len(near) > 1

    def _check_all(self, entrants: Sequence[_Entrant]) -> None:
        """Check all entrants, several at a time: nothing is measured meanwhile, and they mostly wait for one core."""
        pool = ThreadPoolExecutor(len(self._plan.cores))
        try:
            for done in [pool.submit(self._check, entrant) for entrant in entrants]:
                done.result()
        finally:
            pool.shutdown(cancel_futures=True)

    def _check(self, entrant: _Entrant) -> None:
        if self._late() or self._log.find("check", **entrant.identity, setting=entrant.setting):
            return
        try:
            self._job(
                entrant,
                "check",
                _CHECK_S,
                source=entrant.source.folder,
                data=entrant.data,
                setting=entrant.setting,
            )
        except JobFailure as failure:
            self._out(entrant, "check", failure)
            return
        self._log.add("check", **entrant.identity, setting=entrant.setting)
        self._say(f"checked {entrant}")

    def _round(self, entrant: _Entrant, number: int) -> None:
        key = {**entrant.identity, "setting": entrant.setting, "round": number}
        if self._log.find("round", **key):
            return
        for attempt in (1, 2):
            try:
                seconds = min(0.2, self._plan.seconds) if entrant.case.start else self._plan.seconds
                least = 1 if entrant.case.start else entrant.case.least_batches
                memory = number < _MEMORY_ROUNDS
                figures = self._measure(
                    entrant, entrant.setting, seconds, least, stage="rounds", lag=True, memory=memory
                )
                break
            except JobFailure as failure:
                if attempt == 2:
                    self._out(entrant, f"round {number + 1}", failure)
                    return
        self._log.add("round", **key, **figures)
        figure = f"{figures['images_per_s']:,.0f}/s"
        if entrant.case.start:
            figure = f"{figures['first_batch_s']:.2f} s, {figures['first_batch_cpu_s']:.2f} s of CPU time"
        self._say(f"round {number + 1} {entrant} {_short(entrant.setting)}: {figure}")

    def _measure(
        self,
        entrant: _Entrant,
        setting: dict[str, Any],
        seconds: float,
        least_batches: int,
        *,
        stage: str,
        lag: bool = False,
        memory: bool = False,
    ) -> dict[str, Any]:
        times = {"warm": min(0.7, seconds), "timed": seconds}
        times["lag"] = min(1.5, seconds) if lag else 0.0
        times["memory"] = min(0.6, seconds) if memory else 0.0
        figures = self._job(
            entrant,
            "measure",
            _START_S + 20 * seconds,
            stage=stage,
            data=entrant.data,
            setting=setting,
            times=times,
            batches=least_batches,
        )
        if not memory:  # it was seen before its peak only
            figures.pop("peak_pss", None)
        return figures

    def _job(
        self, entrant: _Entrant, job: str, limit_s: float, *, stage: str = "", **request: Any
    ) -> dict[str, Any]:
        began = monotonic()
        stage = stage or job
        try:
            return run_job(
                entrant.python,
                entrant.name,
                job,
                limit_s=limit_s,
                cores=self._plan.cores,
                case=entrant.case,
                variables=self._variables(entrant.name),
                variant=entrant.variant,
                **request,
            )
        finally:
            self._spent.setdefault(stage, Counter())[entrant.name] += monotonic() - began

    def _variables(self, name: str) -> dict[str, str]:
        return needs_of(name).variables

    def _out(self, entrant: _Entrant, stage: str, failure: JobFailure) -> None:
        entrant.out = True
        self._failed(entrant.identity, stage, failure)

    def _failed(self, identity: dict[str, Any], stage: str, failure: Exception) -> Record:
        log = getattr(failure, "log", "")[-4000:]
        where = " ".join(str(part) for part in identity.values() if part)
        self._say(f"FAILED  {where}, {stage}: {failure}")
        return self._log.add("failure", **identity, stage=stage, reason=str(failure), log=log)

    def _late(self) -> bool:
        return self._deadline is not None and monotonic() > self._deadline

    def _shuffled(self, items: Sequence[Any]) -> list[Any]:
        mixed = list(items)
        self._random.shuffle(mixed)
        return mixed

    def _say_times(self) -> None:
        """Show where the time went, by stage and contender."""
        for stage, spent in self._spent.items():
            each = ", ".join(f"{name} {seconds:.0f}" for name, seconds in spent.most_common())
            self._say(f"{stage:8} {sum(spent.values()):.0f} s: {each}")

    def _say(self, text: str) -> None:
        print(f"{monotonic() - self._began:6.0f} s  {text}", file=sys.stderr, flush=True)


def _short(setting: dict[str, Any]) -> str:
    return " ".join(f"{key}={value}" for key, value in setting.items())
