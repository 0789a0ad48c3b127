"""The same experiment computed: `python -m bench.offload.simulate PROFILE [--runs JSON]`.

A profile says what each form of each sample costs; the model of planning.py says how long an epoch takes. With runs that were
measured (`python -m bench.offload --json`) the model is checked against them first. Then it goes where this
machine cannot: more cores, more samples, many jobs on one store.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

from bench.common import table
from bench.offload.fleet import Tenant, run_together
from bench.offload.forms import (
    CODED,
    CUT,
    HEAD_BYTES,
    PIXELS,
    RAW,
    TENSOR,
    WIRE,
    Sample,
    Unreadable,
    read,
    repeated,
    with_host,
)
from bench.offload.grid import BASELINE, BATCH_SIZE, POLICIES
from bench.offload.planning import Job, Outcome, Site

MBIT = 1e6 / 8
CORES, SAMPLES = 48, 40_000  # the paper's
LINKS = (60.0, 250.0, 500.0, 1000.0, 10_000.0)  # Mbit/s
JOBS = (1, 2, 4, 8, 16, 32)
FLEET_POLICIES = (BASELINE, "sophon", "auto")


@dataclass(frozen=True)
class Compared:
    """A measured run beside the model's."""

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


def host_costs(report: dict[str, Any], data: str) -> dict[str, float]:
    """Processor seconds a sample of the host, from the runs in which all samples had one form. Those of `auto` have
    cuts and coded crops mixed, so both get their mean."""
    runs = report["cells"].get(f"headline/{data}", {}).get("runs", {})

    def cost(policy: str) -> float | None:
        of = runs.get(policy, {}).values()
        return fmean(run["compute_cpu_s"] / run["samples"] for run in of) if of else None

    sources = {RAW: "none", PIXELS: "resize", TENSOR: "all", CUT: "auto", CODED: "auto"}
    found = {form: cost(policy) for form, policy in sources.items()}
    return {form: seconds for form, seconds in found.items() if seconds is not None}


def site_of(cell: dict[str, Any], quota: float, how: dict[str, Any]) -> Site:
    """What a cell had, as the model sees it."""
    return Site(
        link=cell["link"] * MBIT,
        storage_cores=min(quota or how["storage_cores"], how["storage_cores"]),
        host_cores=how["compute_cores"],
        device_rate=cell["rate"],
        batch=BATCH_SIZE,
    )


def compare(report: dict[str, Any], data: str, job: Job, n: int) -> list[Compared]:
    """Every measured mean of seeds beside the model's: time without start-up, since the counted part has none."""
    found = []
    for key, stored in report["cells"].items():
        if stored["cell"]["data"] != data:
            continue
        for policy, of in stored["runs"].items():
            runs = list(of.values())
            if not runs:
                continue
            site = site_of(stored["cell"], fmean(run["quota"] for run in runs), report["how"])
            said = job.epoch(policy, site)
            found.append(
                Compared(
                    key,
                    policy,
                    fmean(run["seconds"] / run["samples"] for run in runs),
                    (said.times.epoch - said.times.startup) / n,
                    fmean(run["bytes"] / run["samples"] for run in runs),
                    said.size / n,
                )
            )
    return found


def _errors(values: list[float]) -> tuple[str, str]:
    sizes = [abs(value) for value in values]
    return f"{100 * median(sizes):.1f} %", f"{100 * max(sizes):.1f} %"


def checked_text(compared: list[Compared]) -> list[str]:
    """How far the model is from what was measured, policy by policy."""
    head = ("policy", "cells", "time: median error", "largest", "traffic: median error", "largest")
    rows = []
    for policy in POLICIES:
        of = [c for c in compared if c.policy == policy]
        if of:
            errors = [
                *_errors([c.time_error for c in of]),
                *_errors([c.size_error for c in of]),
            ]
            rows.append((policy, str(len(of)), *errors))
    if not rows:
        return []
    worst = max(compared, key=lambda c: abs(c.time_error))
    told = (
        f"Furthest off: {worst.cell}, {worst.policy}: {1e3 * worst.seconds:.2f} ms a sample measured, "
        f"{1e3 * worst.seconds_said:.2f} computed."
    )
    return ["## The model beside the runs", "", *table(head, rows), "", told, ""]


def _line(name: str, outcomes: dict[str, Outcome], n: int) -> tuple[str, ...]:
    base = outcomes[BASELINE]
    ours = outcomes["auto"]
    return (
        name,
        *(f"{o.times.epoch:.1f}" for o in outcomes.values()),
        f"{base.size / ours.size:.2f}",
        f"{base.times.epoch / ours.times.epoch:.2f}",
        f"{1e3 * ours.storage_s / n:.2f}",
        ours.times.slowest,
    )


def larger_text(job: Job, n: int, cores: int, links: tuple[float, ...], rate: float) -> list[str]:
    """Seconds an epoch on larger machines."""
    more = ("auto: less traffic", "less time", "its storage CPU ms", "its slowest")
    rows = []
    for link in links:
        for storage in sorted({1, 4, cores}):
            site = Site(link * MBIT, storage, cores, rate, BATCH_SIZE)
            outcomes = {policy: job.epoch(policy, site) for policy in POLICIES}
            rows.append(_line(f"{link:g} Mbit/s, {storage} cores", outcomes, n))
    title = f"## {n:,} samples, a host of {cores} cores: seconds an epoch"
    return [title, "", *table(("link, storage", *POLICIES, *more), rows), ""]


def fleet_text(
    jobs: list[tuple[str, Job, int]], cores: int, link: float, rate: float, counts: tuple[int, ...]
) -> list[str]:
    """Many jobs, of each data set in turn, on one store: mean seconds an epoch, and what they send and use."""
    rows = []
    for count in counts:
        cells = [str(count)]
        for policy in FLEET_POLICIES:
            own = Site(link * MBIT, cores, CORES, rate, BATCH_SIZE)
            tenants = [Tenant(jobs[i % len(jobs)][1], policy, own) for i in range(count)]
            found = run_together(tenants, link * MBIT, cores)
            busy = sum(o.storage_s / o.times.epoch for o in found)
            cells += [f"{fmean(o.times.epoch for o in found):.1f}", f"{busy:.1f}"]
        rows.append(tuple(cells))
    head = ["jobs"]
    for policy in FLEET_POLICIES:
        head += [f"{policy}: epoch, s", "storage cores"]
    names = " and ".join(name for name, _, _ in jobs)
    title = f"## Jobs on one store of {cores} cores and {link:g} Mbit/s ({names})"
    return [title, "", *table(tuple(head), rows), ""]


def describe(name: str, samples: list[Sample]) -> list[str]:
    """What the profile has in it."""
    rows = []
    for form in (RAW, CUT, CODED, PIXELS, TENSOR):
        of = [sample[form] for sample in samples if form in sample]
        if of:
            size = fmean(f.size for f in of) - HEAD_BYTES
            rows.append(
                (
                    form,
                    f"{len(of):,}",
                    f"{size / WIRE / 1e3:.1f}",
                    f"{1e3 * fmean(f.storage_s for f in of):.2f}",
                    f"{1e3 * fmean(f.host_s for f in of):.2f}",
                )
            )
    head = ("form", "samples", "KB", "storage CPU ms", "host CPU ms")
    return [f"## {name}: the profile", "", *table(head, rows), ""]


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.offload.simulate", description=__doc__)
    add = parser.add_argument
    add(
        "profiles", nargs="+", type=Path, help="JSON lines (see forms.py), named after the data set"
    )
    add(
        "--runs", type=Path, metavar="JSON", help="of `python -m bench.offload`, to be checked with"
    )
    add("--cores", type=int, default=CORES, help=f"of the larger machines (default {CORES})")
    add("--samples", type=int, default=SAMPLES, help=f"an epoch there (default {SAMPLES:,})")
    add("--rate", type=float, default=0.0, help="samples a second of a device; 0: never waited for")
    add("--link", type=float, default=500.0, help="Mbit/s that jobs share (default 500)")
    add("--report", type=Path, metavar="OUT", help="write Markdown; else it is printed")
    return parser.parse_args(arguments)


def text(options: argparse.Namespace) -> str:
    report = json.loads(options.runs.read_text()) if options.runs else None
    out = ["# Near the storage, computed", ""]
    jobs = []
    for path in options.profiles:
        name, samples = path.stem, read(path)
        if report:
            samples = with_host(samples, host_costs(report, name))
        out += describe(name, samples)
        if report:
            out += checked_text(compare(report, name, Job(samples), len(samples)))
        many = Job(repeated(samples, options.samples))
        out += larger_text(many, options.samples, options.cores, LINKS, options.rate)
        jobs.append((name, many, options.samples))
    for cores in sorted({1, options.cores}):
        out += fleet_text(jobs, cores, options.link, options.rate, JOBS)
    return "\n".join(out)


def main() -> None:
    options = parse()
    try:
        found = text(options)
    except (OSError, Unreadable) as error:
        sys.exit(f"simulate: {error}")
    if options.report:
        options.report.parent.mkdir(parents=True, exist_ok=True)
        options.report.write_text(found + "\n")
    else:
        print(found)


if __name__ == "__main__":
    main()
