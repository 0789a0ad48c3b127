"""The same experiment computed: `python -m bench.offload.simulate PROFILE [--runs JSON]`.

A profile says what each form of each sample costs; the model of planning.py says how long an epoch takes. With runs that were
measured (`python -m bench.offload --json`) the model is checked against them first. Then it goes where this
machine cannot: more cores, more samples, many jobs on one store.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from bench.command_line import load, write_report
from bench.offload.expected import MBIT, site_of
from bench.offload.experiment import joined
from bench.offload.fleet import Tenant, run_together
from bench.offload.forms import CODED, CUT, FEWEST, PIXELS, RAW, Sample, Unreadable, read, with_host
from bench.offload.grid import BASELINE, OURS, PAPER, POLICIES, cell_of
from bench.offload.planning import Job, Outcome, Site

CORES, SAMPLES = 48, 40_000  # the paper's
LINKS = (60.0, 250.0, 500.0, 1000.0, 10_000.0)  # Mbit/s
JOBS = (1, 2, 4, 8, 16, 32)
FLEET_POLICIES = (BASELINE, PAPER, OURS)


@dataclass(frozen=True)
class Compared:
    """A measured run beside the model's: seconds and bytes a sample."""

    cell: str
    policy: str
    seconds: float
    seconds_said: float
    size: float
    size_said: float

    @property
    def time_error(self) -> float:
        return self.seconds_said / self.seconds - 1

    @property
    def size_error(self) -> float:
        return self.size_said / self.size - 1


@dataclass(frozen=True)
class Larger:
    """All policies on a link of so many Mbit/s, with so many cores at the storage."""

    link: float
    storage_cores: int
    outcomes: dict[str, Outcome]


@dataclass(frozen=True)
class Together:
    """So many jobs under one policy: what all have on average, and what they use together."""

    jobs: int
    policy: str
    epoch_s: float
    storage_cores: float
    mbit: float


@dataclass(frozen=True)
class Findings:
    """All that was computed of some profiles."""

    samples: dict[str, list[Sample]]
    compared: dict[str, list[Compared]]
    larger: dict[str, list[Larger]]
    fleets: dict[int, list[Together]]  # by the store's cores
    options: argparse.Namespace


def host_costs(report: dict[str, Any], data: str) -> dict[str, float]:
    """Processor seconds a sample of the host, from the runs in which all samples had one form. Those of `auto` have
    cuts and coded crops mixed, and now and then a crop before its resize, so all of these get their mean."""
    runs = report["cells"].get(f"headline/{data}", {}).get("runs", {})

    def cost(policy: str) -> float | None:
        of = runs.get(policy, {}).values()
        return fmean(run["compute_cpu_s"] / run["samples"] for run in of) if of else None

    sources = {RAW: "none", PIXELS: "resize", FEWEST: "auto", CUT: "auto", CODED: "auto"}
    found = {form: cost(policy) for form, policy in sources.items()}
    return {form: seconds for form, seconds in found.items() if seconds is not None}


def compare(report: dict[str, Any], data: str, job: Job) -> list[Compared]:
    """Every measured mean of seeds beside the model's: time without start-up, since the counted part has none."""
    found = []
    cores = report["how"]["storage_cores"], report["how"]["compute_cores"]
    for key, stored in report["cells"].items():
        if stored["cell"]["data"] != data:
            continue
        for policy, of in stored["runs"].items():
            runs = list(of.values())
            if not runs:
                continue
            quota = fmean(run["quota"] for run in runs)
            said = job.epoch(policy, site_of(cell_of(stored["cell"]), quota, cores))
            found.append(
                Compared(
                    key,
                    policy,
                    fmean(run["seconds"] / run["samples"] for run in runs),
                    (said.times.epoch - said.times.startup) / job.count,
                    fmean(run["bytes"] / run["samples"] for run in runs),
                    said.size / job.count,
                )
            )
    return found


def on_larger(job: Job, cores: int, links: tuple[float, ...], rate: float) -> list[Larger]:
    """A host of so many cores, and one, four or as many at the storage."""
    return [
        Larger(link, storage, {policy: job.epoch(policy, site) for policy in POLICIES})
        for link in links
        for storage in sorted({1, 4, cores})
        for site in [Site(link * MBIT, storage, cores, rate)]
    ]


def on_one_store(jobs: list[Job], cores: int, options: argparse.Namespace) -> list[Together]:
    """Many jobs, of each data set in turn."""
    found = []
    for count in JOBS:
        for policy in FLEET_POLICIES:
            own = Site(options.link * MBIT, cores, options.cores, options.rate)
            tenants = [Tenant(jobs[i % len(jobs)], policy, own) for i in range(count)]
            outcomes = run_together(tenants, options.link * MBIT, cores)
            found.append(
                Together(
                    count,
                    policy,
                    fmean(o.times.epoch for o in outcomes),
                    sum(o.storage_s / o.times.epoch for o in outcomes),
                    sum(o.size / o.times.epoch for o in outcomes) / MBIT,
                )
            )
    return found


def compute(options: argparse.Namespace) -> Findings:
    report = joined(load(options.runs)) if options.runs else None
    samples = {path.stem: read(path) for path in options.profiles}
    if report:
        samples = {name: with_host(of, host_costs(report, name)) for name, of in samples.items()}
    compared = (
        {name: compare(report, name, Job(of)) for name, of in samples.items()} if report else {}
    )
    many = {name: Job(of, options.samples) for name, of in samples.items()}
    larger = {
        name: on_larger(job, options.cores, LINKS, options.rate) for name, job in many.items()
    }
    stores = sorted({1, options.cores})
    fleets = {cores: on_one_store(list(many.values()), cores, options) for cores in stores}
    return Findings(samples, compared, larger, fleets, options)


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.offload.simulate", description=__doc__)
    add = parser.add_argument
    add(
        "profiles", nargs="+", type=Path, help="JSON lines (see forms.py), named after the data set"
    )
    add(
        "--runs",
        type=Path,
        nargs="+",
        metavar="JSON",
        help="of `python -m bench.offload`, to be checked with",
    )
    add("--cores", type=int, default=CORES, help=f"of the larger machines (default {CORES})")
    add("--samples", type=int, default=SAMPLES, help=f"an epoch there (default {SAMPLES:,})")
    add("--rate", type=float, default=0.0, help="samples a second of a device; 0: never waited for")
    add("--link", type=float, default=500.0, help="Mbit/s that jobs share (default 500)")
    add("--report", type=Path, metavar="OUT", help="write Markdown; else it is printed")
    add("--plot", type=Path, metavar="OUT", help="draw the model beside the runs, and beyond them")
    return parser.parse_args(arguments)


def main() -> None:
    from bench.offload.computed import text

    options = parse()
    try:
        found = compute(options)
    except (OSError, Unreadable) as error:
        sys.exit(f"simulate: {error}")
    write_report(text(found), options.report)
    if options.plot:
        from bench.offload.computed_charts import draw

        draw(found, options.plot)


if __name__ == "__main__":
    main()
