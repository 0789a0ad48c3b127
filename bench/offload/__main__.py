"""Near the storage: `python -m bench.offload`. Storage and compute apart, joined by slow links: what each policy sends,
how long an epoch takes, and what it costs at both ends. What was measured before is not measured again."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from bench.common import Unavailable
from bench.datasets import View, cache_root, make_view, warm
from bench.offload.grid import (
    BATCH_SIZE,
    DATA,
    OURS,
    POLICIES,
    Cell,
    Extent,
    cells,
    chosen,
)
from bench.offload.network import need_tools, shared_cores
from bench.offload.one_run import Run, perform
from bench.run import SAMPLES, Progress, machine

IMAGES_MIN = 5000


def sources(options: argparse.Namespace) -> dict[str, Path]:
    """Data sets by name: those given, the samples, or generated pictures."""
    if options.data:
        return {Path(path).resolve().name: Path(path) for path in options.data}
    found = {name: SAMPLES / name for name in DATA if (SAMPLES / name).is_dir()}
    if not found:
        from bench.synthetic import generate

        found = {"generated": generate(cache_root() / "generated")}
    return found


class Bench:
    """One cell after another; what is known so far is always on disk."""

    def __init__(self, options: argparse.Namespace, report: dict[str, Any]) -> None:
        self._options, self.report = options, report
        self._views: dict[str, View] = {}

    def _save(self) -> None:
        target: Path | None = self._options.json
        if target:
            target.parent.mkdir(parents=True, exist_ok=True)
            part = target.with_suffix(f".{os.getpid()}")
            part.write_text(json.dumps(self.report) + "\n")
            part.rename(target)  # what took hours is never half written

    def view(self, name: str, source: Path) -> View:
        if name not in self._views:
            view = make_view(source, IMAGES_MIN, name, is_served=True)
            warm(view.directory / "folder")
            self.report["data"][name] = {
                "images": view.images,
                "distinct": view.distinct,
                "bytes": view.file_bytes,
            }
            self._views[name] = view
        return self._views[name]

    def cells(self, name: str, source: Path) -> list[Cell]:
        view = self.view(name, source)
        extent = Extent(view.images, view.file_bytes / view.images)
        every = cells(name, extent, is_quick=self._options.quick)
        return [cell for cell in every if chosen(cell, self._options.only)]

    def prepare(self, name: str) -> None:
        """An epoch without limits, so that indexes and profile are there, as they are in every epoch but the first."""
        if self._options.quick or name in self.report["prepared"]:
            return
        view = self._views[name]
        folder, batches = view.directory / "folder", view.images // BATCH_SIZE - 1
        notes = perform(Run(folder, OURS, 0, 1, batches))
        problem = notes.get("skipped") or notes.get("failed")
        if problem:
            print(f"bench: {name}: no epoch to begin with: {problem}", file=sys.stderr)
        else:
            self.report["prepared"].append(name)
            self._save()

    def reference(self, cell: Cell, seed: int) -> list[list[int]]:
        """The local stream's fingerprints, of batches that warm up and that count; as many as the cell has at least."""
        known: list[list[int]] = self.report["references"].get(f"{cell.data}/{seed}", [[], []])
        if len(known[0]) >= cell.warm and len(known[1]) >= cell.batches:
            return known
        folder = self._views[cell.data].directory / "folder"
        notes = perform(Run(folder, None, seed, cell.warm, cell.batches))
        if "digests" not in notes:
            return []
        self.report["references"][f"{cell.data}/{seed}"] = notes["digests"]
        return list(notes["digests"])

    def quota(self, cell: Cell) -> float:
        """In cores; a tenth of what `auto` took where it had all."""
        if cell.quota is not None:
            return cell.quota
        headline = self.report["cells"].get(f"headline/{cell.data}", {})
        runs = list(headline.get("runs", {}).get(OURS, {}).values())
        if not runs:
            raise Unavailable(f"headline/{cell.data} has to be measured first")
        return sum(run["storage_cpu_s"] / run["seconds"] for run in runs) / len(runs) / 10

    def _stored(self, cell: Cell) -> dict[str, Any]:
        """What is known of a cell; it was measured as it is now, or not at all."""
        empty: dict[str, Any] = {"cell": cell.stored(), "runs": {}, "problems": {}}
        stored: dict[str, Any] = self.report["cells"].setdefault(cell.key, empty)
        if {**stored["cell"], "policies": None} != {**cell.stored(), "policies": None}:
            sys.exit(f"bench: {cell.key} was measured otherwise; choose another --json")
        return stored

    def run_cell(self, cell: Cell, progress: Progress) -> None:
        stored = self._stored(cell)
        policies = [p for p in cell.policies if p in self._options.policies]
        for seed in range(self._options.seeds):
            shift = seed * len(policies) // max(self._options.seeds, 1)
            for policy in policies[shift:] + policies[:shift]:
                progress.show(f"{cell.key}: {policy}, seed {seed}")
                if str(seed) not in stored["runs"].get(policy, {}):
                    self._measure(cell, stored, policy, seed)
                progress.step()

    def _measure(self, cell: Cell, stored: dict[str, Any], policy: str, seed: int) -> None:
        try:
            quota = self.quota(cell)
        except Unavailable as reason:
            stored["problems"][policy] = f"skipped: {reason}"
            return
        view = self._views[cell.data]
        mean_bytes = view.file_bytes / view.images
        conditions = (cell.link, quota, cell.rate, mean_bytes)
        folder = view.directory / "folder"
        expected = self.reference(cell, seed)
        notes = perform(Run(folder, policy, seed, cell.warm, cell.batches, *conditions))
        problem = notes.get("skipped") or notes.get("failed")
        if problem:
            kind = "skipped" if "skipped" in notes else "failed"
            stored["problems"][policy] = f"{kind}: {problem}"
        else:
            digests = notes.pop("digests")
            notes["equal"] = is_same(digests, expected) if expected else None
            notes["quota"] = quota
            stored["problems"].pop(policy, None)
            stored["runs"].setdefault(policy, {})[str(seed)] = notes
        self._save()


def is_same(found: list[list[int]], expected: list[list[int]]) -> bool:
    """Whether all batches are the local stream's; of that more may be known."""
    return all(a == b[: len(a)] for a, b in zip(found, expected, strict=True))


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.offload", description=__doc__)
    add = parser.add_argument
    add("--only", type=_words, default=[], metavar="CELLS", help="as --list names them; beginnings")
    add("--policies", type=_words, default=list(POLICIES), metavar="NAMES", help="some of them")
    add("--seeds", type=int, help="runs of each (default 5)")
    add("--data", action="append", metavar="DIR", help="JPEG files to use; may be repeated")
    add("--quick", action="store_true", help="one seed, few batches, few cells: does all work?")
    add(
        "--json", type=Path, metavar="OUT", help="everything measured; what it has is not run again"
    )
    add("--plot", type=Path, metavar="OUT", help="draw OUT and OUT with -grid in its name")
    add("--report", type=Path, metavar="OUT", help="write the report, Markdown; else it is printed")
    add(
        "--from", dest="from_", type=Path, metavar="JSON", help="report on what was measured before"
    )
    add("--list", action="store_true", help="name the cells, and stop")
    options = parser.parse_args(arguments)
    if options.seeds is None:
        options.seeds = 1 if options.quick else 5
    unknown = [name for name in options.policies if name not in POLICIES]
    if unknown:
        parser.error(f"no policy {unknown[0]!r}; there are {', '.join(POLICIES)}")
    return options


def fresh(options: argparse.Namespace) -> dict[str, Any]:
    """What was measured before into the same file, or an empty report."""
    if options.json and options.json.exists():
        report: dict[str, Any] = json.loads(options.json.read_text())
        if report["how"]["quick"] != options.quick:
            sys.exit("bench: that file was measured with other settings; choose another --json")
        return report
    storage, compute = (len(cpus) for cpus in shared_cores())
    return {
        "machine": machine(),
        "date": time.strftime("%Y-%m-%d"),
        "how": {"quick": options.quick, "storage_cores": storage, "compute_cores": compute},
        "data": {},
        "prepared": [],
        "references": {},
        "cells": {},
    }


def run_all(options: argparse.Namespace) -> dict[str, Any]:
    bench = Bench(options, fresh(options))
    todo = {name: bench.cells(name, source) for name, source in sources(options).items()}
    if options.list:
        for cell in (cell for of in todo.values() for cell in of):
            print(f"{cell.key:32} {cell}, {cell.batches} batches: {', '.join(cell.policies)}")
        sys.exit(0)
    try:
        need_tools()
    except Unavailable as reason:
        sys.exit(f"bench: skipped: {reason}")
    progress = Progress(
        sum(len(cell.policies) for of in todo.values() for cell in of) * options.seeds
    )
    for name, of in todo.items():
        if of:
            bench.prepare(name)
        for cell in of:
            bench.run_cell(cell, progress)
    progress.end()
    return bench.report


def main() -> None:
    options = parse()
    report = json.loads(options.from_.read_text()) if options.from_ else run_all(options)
    from bench.offload.summary import text

    if options.report:
        options.report.parent.mkdir(parents=True, exist_ok=True)
        options.report.write_text(text(report) + "\n")
    else:
        print(text(report))
    if options.plot:
        from bench.offload.charts import draw

        draw(report, options.plot)


if __name__ == "__main__":
    # Being asked to end must end the processes of a run too, which the interrupt's handler does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("\nbench: interrupted")
