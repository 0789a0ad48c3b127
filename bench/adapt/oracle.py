"""The best fixed setting of each phase, found by search: what a policy is measured against.

Penstock's knobs turn while it runs, so one process tries them all under a phase's conditions, each for some
seconds: first a coarse grid, then around the best. Batches that one setting leaves ready flatter the next, so the
best few are then measured again, by turns, each in a process of its own and as long as contestants are, and only
that counts. Whatever is within 2 % of the best is equal to it, and of those the one with the fewest threads and
batches is taken: a wasteful oracle would make waste look good.

A DataLoader's number of workers is found likewise, but for all phases together: it cannot change while it runs.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from bench.adapt.entrants import ORACLE, Entrant
from bench.adapt.measure import figures, rate, settled_rate
from bench.adapt.runner import Action, Knobs, Run, perform, schedule
from bench.adapt.scenarios import ADAPTING_S, Phase, Scenario

_WORKERS, _READERS = (1, 2, 4), (0, 8, 32, 96)
_PYTHON_WORKERS = (0, 1, 2, 3, 4, 6, 8, 12, 16)
_READY = 4  # batches, while workers and readers are sought
_EQUAL = 0.98
_SETTLE_S = 0.7
_FINALISTS, _ROUNDS = 5, 3
_FINAL_S = 3.0  # at least, after what contestants have to adapt in


@dataclass(frozen=True)
class Effort:
    """How thorough the search is."""

    seconds: float = 2.5  # each setting
    is_coarse: bool = False  # no refinement, a smaller grid
    most_workers: int = 4


def knobs(workers: float, readers: float, ready: float) -> Knobs:
    return {
        "workers": workers,
        "read_ahead": 2 * readers,
        "io": max(readers, 1) if readers else 16,
        "ready_batches": ready,
    }


def _cost(setting: Knobs) -> tuple[float, float]:
    threads = setting["workers"] + min(setting.get("read_ahead", 0), setting.get("io", 0))
    return threads, setting.get("ready_batches", 0)


def choose(rates: dict[tuple[tuple[str, float], ...], list[float]]) -> Knobs:
    """The cheapest of those as good as the best; medians of what was measured."""
    found = {setting: median(values) for setting, values in rates.items()}
    best = max(found.values())
    equal = [dict(setting) for setting, value in found.items() if value >= _EQUAL * best]
    return min(equal, key=_cost)


def coarse_grid(effort: Effort) -> list[Knobs]:
    readers = (0, 32) if effort.is_coarse else _READERS
    workers = [
        w for w in (_WORKERS[1:] if effort.is_coarse else _WORKERS) if w <= effort.most_workers
    ]
    return [knobs(w, r, _READY) for w, r in itertools.product(workers, readers)]


def neighbours(setting: Knobs, effort: Effort) -> list[Knobs]:
    """One step in every direction."""
    workers, ready = setting["workers"], setting["ready_batches"]
    readers = min(setting["read_ahead"], setting["io"])
    near = [
        knobs(w, readers, ready)
        for w in (workers - 1, workers + 1)
        if 1 <= w <= effort.most_workers
    ]
    near += [knobs(workers, r, ready) for r in {readers // 2, readers * 1.5 // 1, readers * 2, 4.0}]
    near += [knobs(workers, readers, b) for b in (2, 3, 6, 10)]
    return [one for one in near if one != setting]


class Search:
    """Tries settings under the conditions of one phase."""

    def __init__(self, scenario: Scenario, phase: Phase, view: Path | None, effort: Effort) -> None:
        self._scenario = replace(scenario, phases=(phase,))
        self._phase, self._view, self._effort = phase, view, effort
        self.rates: dict[tuple[tuple[str, float], ...], list[float]] = {}
        self.tried: list[dict[str, Any]] = []
        self.problem: str | None = None

    def _note(self, setting: Knobs, value: float) -> None:
        self.rates.setdefault(tuple(sorted(setting.items())), []).append(value)
        noted = {"phase": str(self._phase), "knobs": setting, "rates": [round(value, 1)]}
        self.tried.append(noted)

    def _perform(self, actions: list[Action], seconds: float) -> dict[str, Any]:
        entrant = Entrant(ORACLE, "", "penstock")
        notes = perform(Run(self._scenario, entrant, 0, self._view, tuple(actions), seconds))
        self.problem = notes.get("skipped") or notes.get("failed")
        return notes

    def _try_live(self, settings: list[Knobs]) -> None:
        """One process, one setting after another."""
        each = self._effort.seconds
        actions = [
            Action(i * each, self._phase if i == 0 else None, s) for i, s in enumerate(settings)
        ]
        notes = self._perform(actions, each * len(settings))
        if self.problem:
            return
        got, rows = np.array(notes["got"]) - notes["first"], np.array(notes["rows"], dtype=float)
        for action, setting in zip(actions, settings, strict=True):
            self._note(setting, rate(got, rows, action.at + _SETTLE_S, action.at + each))

    def _try_apart(self, settings: list[Knobs], settle_s: float, seconds: float) -> None:
        """A process each. The workers of a Python data set are set when its loader is made."""
        for setting in settings:
            notes = self._perform([Action(0.0, self._phase, setting)], settle_s + seconds)
            if self.problem:
                return
            asked, got = (np.array(notes[key]) - notes["first"] for key in ("asked", "got"))
            rows = np.array(notes["rows"], dtype=float)
            self._note(setting, settled_rate(asked, got, rows, settle_s, settle_s + seconds))

    def _finals(self) -> None:
        """The best and the cheapest of those as good, measured as contestants are; what was before is forgotten."""
        order = sorted(self.rates, key=lambda setting: -median(self.rates[setting]))
        finalists = [dict(setting) for setting in order[: _FINALISTS - 1]]
        cheapest = choose(self.rates)
        finalists += [cheapest] if cheapest not in finalists else [dict(order[_FINALISTS - 1])]
        self.rates = {}
        seconds = max(self._phase.seconds - ADAPTING_S, _FINAL_S)
        self._try_apart(finalists * _ROUNDS, ADAPTING_S, seconds)

    def run(self) -> Knobs | None:
        """The best setting, or None with `problem` saying why."""
        if self._scenario.is_python:
            counts = (1, 2, 8) if self._effort.is_coarse else _PYTHON_WORKERS
            self._try_apart([{"workers": n} for n in counts], 1.0, self._effort.seconds)
        else:
            self._try_live(coarse_grid(self._effort))
            if not self.problem and not self._effort.is_coarse:
                self._try_live(neighbours(choose(self.rates), self._effort))
                if not self.problem:
                    self._finals()
        return None if self.problem else choose(self.rates)


def search(
    scenario: Scenario, view: Path | None, effort: Effort
) -> tuple[dict[tuple[float, ...], Knobs], list[dict[str, Any]], str | None]:
    """Best knobs by conditions; all that was tried; or why there are none."""
    best: dict[tuple[float, ...], Knobs] = {}
    tried: list[dict[str, Any]] = []
    for phase in scenario.phases:
        if phase.conditions in best:
            continue
        one = Search(scenario, phase, view, effort)
        found = one.run()
        tried += one.tried
        if found is None:
            return {}, tried, one.problem
        best[phase.conditions] = found
    return best, tried, None


_TORCH_NEAR = 0.95  # of the best: the next best number of workers takes part too
_TORCH_SCALE = 0.25


def best_workers(
    scenario: Scenario, view: Path | None, candidates: list[Entrant]
) -> tuple[list[Entrant], dict[str, float | str]]:
    """The best of one short run each, and the second best if it is close; the rates, or what went wrong."""
    short = scenario.once().scaled(min(1.0, _TORCH_SCALE * 20 / scenario.phases[0].seconds))
    rates: dict[str, float | str] = {}
    for entrant in candidates:
        actions = tuple(schedule(short))
        notes = perform(Run(short, entrant, 0, view, actions, short.seconds))
        problem = notes.get("skipped") or notes.get("failed")
        rates[entrant.name] = problem or float(figures(short, notes)["settled"])
    known = {name: value for name, value in rates.items() if isinstance(value, float)}
    best = sorted(known, key=lambda name: -known[name])[:2]
    near = [name for name in best if known[name] >= _TORCH_NEAR * known[best[0]]]
    return [e for e in candidates if e.name in near], rates
