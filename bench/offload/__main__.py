"""Near the storage: `python -m bench.offload`. Storage and compute apart, joined by slow links: what each policy sends,
how long an epoch takes, and what it costs at both ends. What was measured before is not measured again."""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

from bench.builds import build, is_stale
from bench.command_line import add_common, load, run_command, words, write_report
from bench.common import Unavailable
from bench.offload.experiment import Experiment, builds_of, joined, sources
from bench.offload.grid import POLICIES, SEEDS
from bench.offload.network import need_tools, shared_cores
from bench.run import machine


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.offload", description=__doc__)
    add = parser.add_argument
    add("--only", type=words, default=[], metavar="CELLS", help="as --list names them; beginnings")
    add("--policies", type=words, default=list(POLICIES), metavar="NAMES", help="some of them")
    add("--seeds", type=int, help=f"runs of each (default {SEEDS}; in the grid 1 or 2)")
    add("--full", action="store_true", help="the large grid: more of everything, longer")
    add(
        "--close",
        action="store_true",
        help="only cells near the limit of 3 %%: `auto`, the best other",
    )
    add("--minutes", type=float, default=0.0, help="begin no run that would end later")
    add("--retries", type=int, default=2, help="repeats of a run that others disturbed (default 2)")
    add("--data", action="append", metavar="DIR", help="JPEG files to use; may be repeated")
    add("--mixed", action="store_true", help="runs of different builds may stand in one report")
    add_common(parser, quick="one seed, few batches, few cells", plot="-grid")
    options = parser.parse_args(arguments)
    if options.quick:
        options.retries = 0
    if options.close and options.seeds is None:
        options.seeds = SEEDS
    unknown = [name for name in options.policies if name not in POLICIES]
    if unknown:
        parser.error(f"no policy {unknown[0]!r}; there are {', '.join(POLICIES)}")
    return options


def fresh(options: argparse.Namespace) -> dict[str, Any]:
    """What was measured before into the same file, or an empty report."""
    if options.json and options.json.exists():
        (report,) = load([options.json])
        if report["how"]["quick"] != options.quick:
            sys.exit("bench: that file was measured with other settings; choose another --json")
        need_one_build(builds_of(report) | {build()}, options)
        return report
    storage, compute = (len(cpus) for cpus in shared_cores())
    return {
        "machine": machine(),
        "date": time.strftime("%Y-%m-%d"),
        "how": {"quick": options.quick, "storage_cores": storage, "compute_cores": compute},
        "data": {},
        "references": {},
        "cells": {},
    }


def need_one_build(builds: set[str], options: argparse.Namespace) -> None:
    """Figures of different builds do not belong side by side unless somebody says so."""
    if len(builds) > 1 and not options.mixed:
        told = ", ".join(sorted(builds))
        sys.exit(f"bench: runs of different builds ({told}); choose another --json, or --mixed")


def show_cells(experiment: Experiment) -> None:
    """Each cell, how many runs it lacks, and how long all should take: what is in --json is not run again."""
    turns = list(experiment.turns())
    for cell in experiment.cells:
        of = [turn for turn in turns if turn.cell == cell]
        minutes = sum(map(experiment.turn_s, of)) / 60
        policies = ", ".join(dict.fromkeys(p for turn in of for p in turn.policies))
        print(
            f"{cell.key:28} {minutes:6.1f} min {len(of):4} runs  {cell}: {policies or 'nothing to do'}"
        )
    before_s = experiment.before_s(turns)
    total_s = before_s + sum(map(experiment.turn_s, turns))
    print(
        f"{'before them':28} {before_s / 60:6.1f} min  first epochs, and local streams to compare"
    )
    print(f"{'all':28} {total_s / 60:6.1f} min {len(turns):4} runs, and repeats of disturbed ones")


def run_all(options: argparse.Namespace) -> dict[str, Any]:
    experiment = Experiment(options, fresh(options))
    for name, source in sources(options).items():
        experiment.add(name, source)
    if options.list:
        show_cells(experiment)
        sys.exit(0)
    try:
        need_tools()
    except Unavailable as reason:
        sys.exit(f"bench: skipped: {reason}")
    if is_stale():
        sys.exit("bench: what is installed is older than the sources; `make build` first")
    experiment.run()
    return experiment.report


def main() -> None:
    options = parse()
    if options.from_:
        report = joined(load(options.from_))
        need_one_build(builds_of(report), options)
    else:
        report = run_all(options)
    from bench.offload.summary import text

    write_report(text(report), options.report)
    if options.plot:
        from bench.offload.charts import draw

        draw(report, options.plot)


if __name__ == "__main__":
    run_command(main)
