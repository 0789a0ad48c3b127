"""The same experiment computed: `python -m bench.offload.simulate PROFILE [--runs JSON]`.

A profile says what each form of each sample costs; the model of planning.py says how long an epoch takes. With runs that were
measured (`python -m bench.offload --json`) the model is checked against them first. Then it goes where this
machine cannot: more cores, more samples, many jobs on one store.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import fmean, median
from typing import Any

from bench.command_line import load, write_report
from bench.common import Check
from bench.offload.expected import MBIT, site_of
from bench.offload.experiment import joined
from bench.offload.fleet import Tenant, run_together
from bench.offload.forms import CODED, CUT, FEWEST, PIXELS, RAW, Sample, Unreadable, read, with_host
from bench.offload.grid import BASELINE, OURS, PAPER, POLICIES, cell_of
from bench.offload.planning import HELD_BACK, Job, Outcome, Site
from bench.offload.verdicts import per_sample

CORES, SAMPLES = 48, 40_000  # the paper's
LINKS = (60.0, 250.0, 500.0, 1000.0, 10_000.0)  # Mbit/s
JOBS = (1, 2, 4, 8, 16, 32)
FLEET_POLICIES = (BASELINE, PAPER, OURS)
TIME_OFF, SIZE_OFF = 0.10, 0.05  # median error that the model may have
# Where it is asked whether `auto` should hold itself back: Mbit/s, cores of the storage, of the host.
HELD_LINKS = (25.0, 60.0, 150.0, 500.0, 1000.0, 2500.0, 10_000.0)
HELD_STORAGE = (0.1, 0.3, 1.0, 4.0, 16.0, 48.0)
HELD_HOST = (0.25, 1.0, 4.0, 16.0, 48.0)
FASTER = 0.03
_DEARER = 2.0  # times the host's cost of coded crops: runs tell only the mean of cuts and these


@dataclass(frozen=True)
class Compared:
    """A measured run beside the model's: seconds and bytes a sample."""

    cell: str
    policy: str
    seconds: float
    seconds_said: float
    size: float
    size_said: float
    is_calibrating: bool  # the host's costs come from this very cell, so it is no check

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
class HeldBack:
    """`auto` within a narrower bound, over many sites: shares of the time that its epoch takes without."""

    bound: str
    cells: int
    faster: int  # cells in which it gains more than 3 %
    gain: float  # the most, and the most that it loses
    loss: float


@dataclass(frozen=True)
class Findings:
    """All that was computed of some profiles."""

    samples: dict[str, list[Sample]]
    compared: dict[str, list[Compared]]
    larger: dict[str, list[Larger]]
    held_back: dict[str, list[HeldBack]]
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
                    per_sample(stored, policy, "seconds"),
                    (said.times.epoch - said.times.startup) / job.count,
                    per_sample(stored, policy, "bytes"),
                    said.size / job.count,
                    stored["cell"]["kind"] == "headline",
                )
            )
    return found


def checks(name: str, compared: list[Compared]) -> list[Check]:
    """Whether the model may be believed where nothing was measured; by cells that it was not made with."""
    of = [c for c in compared if not c.is_calibrating]
    found = []
    for what, most, errors in (
        ("time", TIME_OFF, [abs(c.time_error) for c in of]),
        ("traffic", SIZE_OFF, [abs(c.size_error) for c in of]),
    ):
        if of:
            is_near = median(errors) <= most
            told = f"{100 * median(errors):.1f} %, {len(of)} cells and policies, none of them headline's"
            goal = f"{name}: {what} as computed, median error at most {100 * most:g} %"
            found.append(Check(goal, is_near, told))
    return found


def held_back(job: Job, sites: list[Site], more: str = "") -> list[HeldBack]:
    """What each bound does to the epoch."""
    found = []
    for bound in HELD_BACK:
        shares = [
            job.epoch(bound, site).times.epoch / job.epoch(OURS, site).times.epoch for site in sites
        ]
        faster = sum(share < 1 - FASTER for share in shares)
        gain, loss = max(0.0, 1 - min(shares)), max(0.0, max(shares) - 1)
        found.append(HeldBack(bound + more, len(sites), faster, gain, loss))
    return found


def within_bounds(samples: list[Sample], count: int, rate: float) -> list[HeldBack]:
    """Once as the profile is, and once with coded crops that are dear for the host: there a bound may help."""
    axes = product(HELD_LINKS, HELD_STORAGE, HELD_HOST)
    sites = [Site(link * MBIT, storage, host, rate) for link, storage, host in axes]
    coded_s = fmean([sample[CODED].host_s for sample in samples if CODED in sample] or [0.0])
    dear = with_host(samples, {CODED: _DEARER * coded_s})
    more = f", coded crops {_DEARER:g} times as dear for the host"
    return held_back(Job(samples, count), sites) + held_back(Job(dear, count), sites, more)


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
    bounds = {
        name: within_bounds(of, options.samples, options.rate) for name, of in samples.items()
    }
    stores = sorted({1, options.cores})
    fleets = {cores: on_one_store(list(many.values()), cores, options) for cores in stores}
    return Findings(samples, compared, larger, bounds, fleets, options)


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
