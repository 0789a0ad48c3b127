"""One run after another; what is known so far is always on disk, and what was measured before is not measured again."""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.builds import UNKNOWN, build
from bench.command_line import save
from bench.common import Unavailable
from bench.datasets import View, cache_root, make_view, warm
from bench.offload import caches
from bench.offload.expected import Forecast
from bench.offload.grid import (
    AMPLE,
    BATCH,
    DATA,
    DISTURBED,
    HEADLINE_LINK,
    OURS,
    PLANNING,
    Cell,
    Length,
    all_runs,
    cells,
    chosen,
    is_alike,
)
from bench.offload.one_run import Run, perform, perform_all
from bench.run import SAMPLES

IMAGES_MIN = 5000
PREPARING_SEED = 1_000_003  # of no run: crops follow from seed, sample and epoch
_CLOSE = 0.1  # this near to the limit, on either side, more seeds may tell otherwise


@dataclass(frozen=True)
class Turn:
    """A run that is to be done; or several, at once."""

    cell: Cell
    policies: tuple[str, ...]
    seed: int

    def __str__(self) -> str:
        return f"{self.cell.key} {' beside '.join(self.policies)} seed {self.seed}"


def sources(options: argparse.Namespace) -> dict[str, Path]:
    """Data sets by name: those given, the samples, or generated pictures."""
    if options.data:
        return {Path(path).resolve().name: Path(path) for path in options.data}
    found = {name: SAMPLES / name for name in DATA if (SAMPLES / name).is_dir()}
    if not found:
        from bench.synthetic import generate

        found = {"generated": generate(cache_root() / "generated")}
    return found


def learner(policy: str) -> str:
    """Whose first epoch a policy's runs begin with: its own if it plans, else that of `auto`, in which the node
    indexes nearly every file."""
    return policy if policy in PLANNING else OURS


class Experiment:
    """Cells of some data sets, and the report that they fill."""

    def __init__(self, options: argparse.Namespace, report: dict[str, Any]) -> None:
        self._options, self.report = options, report
        self._build = build()
        self.views: dict[str, View] = {}
        self.forecasts: dict[str, Forecast] = {}
        self.cells: list[Cell] = []

    def add(self, name: str, source: Path) -> None:
        """A data set and those of its cells that are wanted."""
        view = make_view(source, IMAGES_MIN, name, is_served=True)
        self.report["data"][name] = {
            "images": view.images,
            "distinct": view.distinct,
            "bytes": view.file_bytes,
        }
        how = self.report["how"]
        cores = how["storage_cores"], how["compute_cores"]
        self.views[name] = view
        self.forecasts[name] = Forecast(name, view.images, view.file_bytes / view.images, cores)
        every = cells(name, is_quick=self._options.quick, is_full=self._options.full)
        self.cells += [cell for cell in every if chosen(cell, self._options.only)]

    # What is to be done

    def stored(self, cell: Cell) -> dict[str, Any]:
        """What is known of a cell; it was measured as it is now, or not at all."""
        empty: dict[str, Any] = {"cell": cell.stored(), "runs": {}, "problems": {}}
        found: dict[str, Any] = self.report["cells"].setdefault(cell.key, empty)
        if not is_alike(found["cell"], cell.stored()):
            sys.exit(f"bench: {cell.key} was measured otherwise; choose another --json")
        return found

    def _policies(self, cell: Cell) -> list[str]:
        wanted = [policy for policy in cell.policies if policy in self._options.policies]
        if wanted and cell.is_paired:
            wanted = list(cell.policies)
        if not self._options.close:
            return wanted
        from bench.offload.verdicts import WITHIN, behind, best_other

        stored = self.stored(cell)
        ratio = behind(stored)
        if ratio is None or abs(ratio / WITHIN - 1) > _CLOSE:
            return []
        return [policy for policy in wanted if policy in (OURS, best_other(stored))]

    def turns(self) -> Iterator[Turn]:
        """All runs that are wanted and not there yet; each seed begins with another policy."""
        for cell in self.cells:
            policies, stored = self._policies(cell), self.stored(cell)
            expected = self.forecasts[cell.data].seeds
            seeds = {p: self._options.seeds or expected(cell, p) for p in policies}
            most = max(seeds.values(), default=0)
            for seed in range(most):
                shift = seed * max(1, len(policies) // most) % len(policies)
                wanted = [p for p in policies[shift:] + policies[:shift] if seed < seeds[p]]
                lacks = [p for p in wanted if str(seed) not in stored["runs"].get(p, {})]
                if cell.is_paired and lacks:
                    lacks = wanted
                for at_once in [lacks] if cell.is_beside else [[p] for p in lacks]:
                    if at_once:
                        yield Turn(cell, tuple(at_once), seed)

    def turn_s(self, turn: Turn) -> float:
        forecast = self.forecasts[turn.cell.data]
        return max(forecast.run_s(turn.cell, policy) for policy in turn.policies)

    def before_s(self, turns: list[Turn]) -> float:
        """What goes before: first epochs, and local streams to compare with; what is there is not made again."""
        first = learners(turns)
        found = sum(
            self.forecasts[name].preparing_s(policy)
            for name, policy in first
            if not self._is_prepared(name, policy)
        )
        local = {(turn.cell.data, turn.cell.batch_size, turn.seed) for turn in turns}
        for name, batch_size, seed in local:
            key, length = f"{name}/{batch_size}/{seed}", self._needed(name, batch_size)
            if not _is_enough(self.report["references"].get(key, [[], []]), length):
                found += self.forecasts[name].local_s(length, batch_size)
        return found

    # Doing it

    def run(self) -> None:
        """All that is wanted. Then it is asked again: with --close, more seeds may have made another rival the best,
        which then gets all of its seeds as well. What failed or was skipped is not tried twice."""
        begin, tried = time.monotonic(), set[Turn]()
        while turns := [turn for turn in self.turns() if turn not in tried]:
            minutes = (sum(map(self.turn_s, turns)) + self.before_s(turns)) / 60
            print(f"bench: {len(turns)} runs, some {minutes:.0f} minutes", file=sys.stderr)
            if not self._run(turns, begin):
                return
            tried.update(turns)

    def _run(self, turns: list[Turn], begin: float) -> bool:
        """One after another; whether there was time for all."""
        left = sum(map(self.turn_s, turns))
        for name in dict.fromkeys(turn.cell.data for turn in turns):
            warm(self.views[name].directory / "folder")
        for name, policy in learners(turns):
            self._prepare(name, policy)
        for number, turn in enumerate(turns, 1):
            spent, wanted = time.monotonic() - begin, self.turn_s(turn)
            if self._options.minutes and spent + wanted > 60 * self._options.minutes:
                print(f"bench: no time for {turn}; the same command goes on there", file=sys.stderr)
                return False
            told = self.measure(turn)
            left = max(0.0, left - wanted)
            spent = time.monotonic() - begin
            print(
                f"[{number}/{len(turns)}] {spent / 60:.1f} min, some {left / 60:.0f} to go; {turn}: {told}",
                file=sys.stderr,
                flush=True,
            )
        return True

    def _about(self) -> dict[str, Any]:
        return {"build": self._build, "seed": PREPARING_SEED}

    def _is_prepared(self, name: str, policy: str) -> bool:
        kept = caches.kept_about(self.views[name].directory.name, policy)
        return self._options.quick or kept.items() >= self._about().items()

    def _prepare(self, name: str, policy: str) -> None:
        """An epoch with a seed of its own: indexes and profile are there as in every epoch but the first, and know no
        crop that is measured. On the slow link, where all is offloaded: of what is not, nothing is learned. How long
        it took from a start with nothing goes into the report."""
        if self._options.quick:
            return
        view = self.views[name]
        if not self._is_prepared(name, policy):
            caches.clear()
            length = Length(1, math.ceil(view.images / BATCH))
            conditions = (BATCH, HEADLINE_LINK, AMPLE, 0.0, self.forecasts[name].mean_bytes)
            folder = view.directory / "folder"
            notes = perform(Run(folder, policy, PREPARING_SEED, length, *conditions, is_kept=True))
            if problem := failure_of(notes):
                sys.exit(f"bench: {name}: no epoch of {policy} to begin with: {problem}")
            about = {**self._about(), "cold_s": notes["cold_s"]}
            caches.keep(view.directory.name, policy, about)
        cold_s = caches.kept_about(view.directory.name, policy)["cold_s"]
        # What another build took, with --mixed, is not that of the runs that are there.
        self.report.setdefault("first", {}).setdefault(f"{name}/{policy}", cold_s)

    def _performed(self, runs: list[Run]) -> list[dict[str, Any]]:
        """Runs at once, each of which begins as all others of its policy do; of --quick ones, with nothing."""
        for run in runs:
            if self._options.quick or run.policy is None:
                caches.clear(run.lane)
            else:
                caches.restore(run.folder.parent.name, learner(run.policy), run.lane)
        return perform_all(runs)

    def _quietest(self, runs: list[Run], expected: list[list[int]]) -> list[dict[str, Any]]:
        """Runs at once; repeated if others disturbed one, and the least disturbed count. Those that fail, and batches
        that differ, are not forgotten for that."""
        tries: list[list[dict[str, Any]]] = []
        while len(tries) <= self._options.retries:
            tries.append(self._performed(runs))
            if any(failure_of(notes) for notes in tries[-1]):
                return tries[-1]
            for notes in tries[-1]:
                digests = notes.pop("digests")
                notes["equal"] = is_same(digests, expected) if expected else None
            if _disturbance(tries[-1]) <= DISTURBED:
                break
        best = min(tries, key=_disturbance)
        for of, notes in enumerate(best):
            is_other = any(found[of]["equal"] is False for found in tries)
            notes |= {"equal": notes["equal"] and not is_other, "tries": len(tries)}
        return best

    def _needed(self, name: str, batch_size: int) -> Length:
        """The longest run of a data set with such batches."""
        alike = [cell for cell in self.cells if cell.data == name]
        return self.forecasts[name].needed(alike, batch_size)

    def reference(self, cell: Cell, seed: int) -> list[list[int]]:
        """The local stream's fingerprints, of batches that warm up and that count; as many as any cell needs."""
        key = f"{cell.data}/{cell.batch_size}/{seed}"
        known: list[list[int]] = self.report["references"].get(key, [[], []])
        length = self._needed(cell.data, cell.batch_size)
        if _is_enough(known, length):
            return known
        length = Length(max(length.warm, len(known[0])), max(length.counted, len(known[1])))
        folder = self.views[cell.data].directory / "folder"
        notes = perform(Run(folder, None, seed, length, batch_size=cell.batch_size))
        if "digests" not in notes:
            return []
        self.report["references"][key] = notes["digests"]
        return list(notes["digests"])

    def quota(self, cell: Cell) -> float:
        """In cores; a tenth of the processor time a second that `auto` took of the node where it had all."""
        if cell.quota is not None:
            return cell.quota
        headline = self.report["cells"].get(f"headline/{cell.data}", {})
        runs = list(headline.get("runs", {}).get(OURS, {}).values())
        if not runs:
            raise Unavailable(f"headline/{cell.data} has to be measured first")
        return sum(run["storage_cpu_s"] / run["seconds"] for run in runs) / len(runs) / 10

    def _runs(self, turn: Turn, quota: float) -> list[Run]:
        cell, forecast = turn.cell, self.forecasts[turn.cell.data]
        rest = (cell.rate, forecast.mean_bytes)
        more = {"client": cell.client, "warm_s": forecast.warm_s(cell)}
        folder = self.views[cell.data].directory / "folder"
        return [
            Run(
                folder,
                policy,
                turn.seed,
                forecast.length(cell, OURS if cell.is_paired else policy),
                cell.batch_size,
                cell.link,
                cell.quota_of(policy, quota),
                *rest,
                **more,
                lane=lane,
            )
            for lane, policy in enumerate(turn.policies)
        ]

    def measure(self, turn: Turn) -> str:
        """What is run at once, kept; what it came to, in a few words."""
        cell, stored = turn.cell, self.stored(turn.cell)
        try:
            quota = self.quota(cell)
        except Unavailable as reason:
            stored["problems"] |= dict.fromkeys(turn.policies, f"skipped: {reason}")
            self._save()
            return f"skipped: {reason}"
        expected = self.reference(cell, turn.seed)
        runs = self._runs(turn, quota)
        found = self._quietest(runs, expected)
        told = []
        for policy, run, notes in zip(turn.policies, runs, found, strict=True):
            if problem := failure_of(notes):
                stored["problems"][policy] = problem
            else:
                notes |= {"quota": run.quota, "build": self._build}
                stored["problems"].pop(policy, None)
                stored["runs"].setdefault(policy, {})[str(turn.seed)] = notes
            told.append(problem or _told(notes))
        self._save()
        return "; ".join(told)

    def _save(self) -> None:
        save(self._options.json, self.report)


def learners(turns: list[Turn]) -> list[tuple[str, str]]:
    """Data sets, and whose first epochs runs with them begin with; each once."""
    every = ((turn.cell.data, learner(policy)) for turn in turns for policy in turn.policies)
    return list(dict.fromkeys(every))


def _disturbance(at_once: list[dict[str, Any]]) -> float:
    return max(float(notes["other_cores"]) for notes in at_once)


def _told(notes: dict[str, Any]) -> str:
    told = f"{notes['seconds']:.1f} s, {notes['bytes'] / notes['samples'] / 1e3:.1f} KB a sample"
    return told + {True: "", False: ", BATCHES DIFFER", None: ", not compared"}[notes["equal"]]


def _is_enough(known: list[list[int]], length: Length) -> bool:
    return len(known[0]) >= length.warm and len(known[1]) >= length.counted


def failure_of(notes: dict[str, Any]) -> str:
    """Why a run has no figures; nothing if it has."""
    return next((f"{kind}: {notes[kind]}" for kind in ("skipped", "failed") if kind in notes), "")


def is_same(found: list[list[int]], expected: list[list[int]]) -> bool:
    """Whether all batches are the local stream's; of that more may be known."""
    return all(a == b[: len(a)] for a, b in zip(found, expected, strict=True))


def builds_of(report: dict[str, Any]) -> set[str]:
    """What runs were measured with."""
    return {run.get("build", UNKNOWN) for run in all_runs(report)}


def _has_headline(report: dict[str, Any], data: str) -> bool:
    """Whether its first epochs stand beside runs of its own."""
    return any(report["cells"].get(f"headline/{data}", {"runs": {}})["runs"].values())


def joined(reports: list[dict[str, Any]]) -> dict[str, Any]:
    """Parts that were measured one by one as one report; of a run that is there twice the later file counts."""
    found: dict[str, Any] = {**reports[-1], "data": {}, "references": {}, "first": {}, "cells": {}}
    for report in reports:
        found["data"] |= report["data"]
        found["first"] |= {
            key: cold_s
            for key, cold_s in report.get("first", {}).items()
            if key not in found["first"] or _has_headline(report, key.partition("/")[0])
        }
        for key, stored in report["cells"].items():
            known = found["cells"].setdefault(key, {**stored, "runs": {}, "problems": {}})
            if not is_alike(known["cell"], stored["cell"]):
                sys.exit(f"bench: {key} was measured otherwise in one of the files")
            for policy, runs in stored["runs"].items():
                known["runs"][policy] = known["runs"].get(policy, {}) | runs
                known["problems"].pop(policy, None)
            known["problems"] |= stored["problems"]
    return found
