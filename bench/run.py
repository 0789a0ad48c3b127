"""Compare Penstock with other data loaders: `python -m bench.run`.

Every run of every contestant is a process of its own. Contestants alternate, so that a change in the
machine's mood meets all of them; the table shows medians and the spread.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.command_line import load, run_command
from bench.common import DISTURBED, ROOT, Spec
from bench.contestants import SPECS, needs_prepare
from bench.datasets import View, cache_root, make_view, warm
from bench.report import summarise, table
from bench.spawn import interpreter, run_worker

SAMPLES = ROOT.parent / "shared" / "data"
DEFAULT_DATA = ("imagenet", "photos")


@dataclass
class Entry:
    """A contestant on one data set: its runs so far, or why there are none."""

    name: str
    spec: Spec
    runs: list[dict[str, Any]] = field(default_factory=list)
    problem: str | None = None


class Progress:
    """A line that rewrites itself on a terminal, and stays silent elsewhere."""

    def __init__(self, total: int) -> None:
        self._total, self._done = total, 0
        self._live = sys.stderr.isatty()

    def show(self, text: str) -> None:
        if self._live:
            print(
                f"\r\033[K[{self._done}/{self._total}] {text}", end="", file=sys.stderr, flush=True
            )

    def step(self) -> None:
        self._done += 1

    def end(self) -> None:
        if self._live:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


def contention(run: dict[str, Any], threads: int) -> float:
    """Cores of foreign load beyond what the machine had to spare."""
    spare = (os.cpu_count() or threads) - threads
    return max(0.0, run["other_cores"] - spare)


def measured(entry: Entry, view: View, options: argparse.Namespace) -> dict[str, Any]:
    """One run; repeated if the machine was busy with something else, keeping the least disturbed."""
    best: dict[str, Any] | None = None
    for _ in range(options.retries + 1):
        run = run_worker(entry.name, entry.spec, view.directory, options)
        if "images_per_s" not in run:
            return run
        run["contention"] = contention(run, options.threads)
        if best is None or run["contention"] < best["contention"]:
            best = run
        if best["contention"] <= DISTURBED:
            break
    assert best is not None
    return best


def prepare(entry: Entry, view: View, options: argparse.Namespace) -> None:
    """Find out whether a contestant can run at all, and write its own file format if it has one."""
    if interpreter(entry.spec.env) is None:
        ours = entry.spec.env == "penstock"
        entry.problem = (
            f"missing: {'not built yet, no .venv' if ours else 'run scripts/setup-bench'}"
        )
    elif needs_prepare(entry.name):
        result = run_worker(entry.name, entry.spec, view.directory, options, prepare=True)
        problem = result.get("missing") or result.get("failed")
        entry.problem = f"missing: {problem}" if problem else None


def round_of(
    entries: list[Entry], view: View, options: argparse.Namespace, progress: Progress
) -> None:
    """One run of every contestant that can run."""
    for entry in entries:
        progress.show(f"{view.name}: {entry.name}, run {len(entry.runs) + 1}")
        if entry.problem is None:
            warm(view.directory / entry.spec.reads)
            run = measured(entry, view, options)
            if "images_per_s" in run:
                entry.runs.append(run)
            else:
                kind = "missing" if "missing" in run else "failed"
                entry.problem = f"{kind}: {run[kind]}"
        progress.step()


def bench_view(
    view: View, names: list[str], options: argparse.Namespace
) -> Iterator[dict[str, Any]]:
    """The data set's results, better after every round."""
    entries = [Entry(name, SPECS[name]) for name in names]
    progress = Progress(len(entries) * (options.rounds + 1))
    for entry in entries:
        progress.show(f"{view.name}: preparing {entry.name}")
        prepare(entry, view, options)
        progress.step()
    for number in range(options.rounds):
        # Another start every round: nobody always runs behind the same neighbour.
        shift = number * len(entries) // options.rounds
        round_of(entries[shift:] + entries[:shift], view, options, progress)
        progress.end()
        yield {
            "name": view.name,
            "images": view.images,
            "distinct": view.distinct,
            "file_bytes": view.file_bytes,
            "notes": list(view.notes),
            "rounds": number + 1,
            "results": [summarise(e.name, e.spec, e.runs, e.problem, view) for e in entries],
        }


def machine() -> dict[str, Any]:
    model = "unknown"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {"cpu": model, "cores": os.cpu_count(), "memory_gib": round(memory / 2**30, 1)}


def views(options: argparse.Namespace) -> list[View]:
    sources = [Path(path) for path in options.data]
    if not sources:
        sources = [path for name in DEFAULT_DATA if (path := SAMPLES / name).is_dir()]
    absent = [path for path in sources if not path.is_dir()]
    if absent:
        sys.exit(f"bench: no such directory: {', '.join(str(path) for path in absent)}")
    if not sources:
        from bench.synthetic import generate

        print("bench: no sample data found, using generated images", file=sys.stderr)
        sources = [generate(cache_root() / "generated")]
    try:
        return [make_view(path, options.images_min) for path in sources]
    except FileNotFoundError as error:
        sys.exit(f"bench: {error}")


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.run", description=__doc__)
    add = parser.add_argument
    add("--data", action="append", default=[], metavar="DIR", help="images to use; may be repeated")
    add("--rounds", type=int, default=5, help="runs of every contestant (default 5)")
    add(
        "--only", metavar="NAMES", help="contestants to run: names or their beginnings, with commas"
    )
    add("--images-min", type=int, default=2000, help="repeat the images up to this (default 2000)")
    add("--min-seconds", type=float, default=5.0, help="least measured time of a run (default 5)")
    add("--batch-size", type=int, default=64, help="(default 64)")
    add("--threads", type=int, default=2, help="threads or workers, and cores, of each (default 2)")
    add("--seed", type=int, default=0, help="for those that take one (default 0)")
    add("--retries", type=int, default=2, help="repeats of a run that others disturbed (default 2)")
    add(
        "--timeout",
        type=float,
        default=600.0,
        help="seconds before a run is given up (default 600)",
    )
    add("--json", type=Path, metavar="OUT", help="write everything measured")
    add("--plot", type=Path, metavar="OUT", help="draw a PNG")
    add(
        "--from",
        dest="from_",
        action="append",
        type=Path,
        default=[],
        metavar="JSON",
        help="show results again",
    )
    add("--quick", action="store_true", help="one short round: does everything work?")
    add("--list", action="store_true", help="name the contestants and stop")
    options = parser.parse_args(arguments)
    if options.quick:
        options.rounds, options.images_min, options.min_seconds, options.retries = 1, 256, 1.0, 0
    return options


def chosen(only: str | None) -> list[str]:
    if not only:
        return list(SPECS)
    starts = tuple(part.strip() for part in only.split(",") if part.strip())
    names = [name for name in SPECS if name.startswith(starts)]
    if not names:
        sys.exit(f"bench: no contestant starts with {only!r}; there are {', '.join(SPECS)}")
    return names


def merged(paths: list[Path]) -> dict[str, Any]:
    """Reports written before, as one."""
    reports = load(paths)
    return {
        **reports[0],
        "datasets": [dataset for report in reports for dataset in report["datasets"]],
    }


def run_all(options: argparse.Namespace) -> dict[str, Any]:
    names = chosen(options.only)
    report: dict[str, Any] = {
        "machine": machine(),
        "date": time.strftime("%Y-%m-%d"),
        "workload": {
            "batch_size": options.batch_size,
            "threads": options.threads,
            "min_seconds": options.min_seconds,
        },
        "datasets": [],
    }
    finished: list[dict[str, Any]] = []
    for view in views(options):
        for dataset in bench_view(view, names, options):
            report["datasets"] = [*finished, dataset]
            if options.json:  # after every round, so that an interrupted run keeps what it has
                options.json.parent.mkdir(parents=True, exist_ok=True)
                options.json.write_text(json.dumps(report, indent=1) + "\n")
        finished = report["datasets"]
    return report


def main() -> None:
    options = parse()
    if options.list:
        print("\n".join(f"{name:24}{spec.title} ({spec.kind})" for name, spec in SPECS.items()))
        return
    report = merged(options.from_) if options.from_ else run_all(options)
    for dataset in report["datasets"]:
        print(table(dataset, report["machine"], report["workload"]))
    if options.plot:
        from bench.plot import draw

        draw(report, options.plot)


if __name__ == "__main__":
    run_command(main)
