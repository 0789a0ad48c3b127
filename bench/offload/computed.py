"""What simulate.py found, as Markdown."""

from __future__ import annotations

from statistics import fmean, median

from bench.common import table
from bench.offload.forms import HEAD_BYTES, NAMES, WIRE, Sample
from bench.offload.grid import BASELINE, OURS, POLICIES
from bench.offload.simulate import (
    FASTER,
    HELD_HOST,
    HELD_LINKS,
    HELD_STORAGE,
    Compared,
    Findings,
    HeldBack,
    Larger,
    Together,
    checks,
)

_CALIBRATING = "(calibrates)"


def profile_text(name: str, samples: list[Sample]) -> list[str]:
    """What the profile has in it."""
    rows = []
    for form in NAMES:
        of = [sample[form] for sample in samples if form in sample]
        if of:
            size = (fmean(f.size for f in of) - HEAD_BYTES) / WIRE
            times = (1e3 * fmean(f.storage_s for f in of), 1e3 * fmean(f.host_s for f in of))
            rows.append((form, f"{len(of):,}", f"{size / 1e3:.1f}", *(f"{ms:.2f}" for ms in times)))
    head = ("form", "samples", "KB", "storage CPU ms", "host CPU ms")
    return [f"## {name}: the profile", "", *table(head, rows), ""]


def _errors(values: list[float]) -> tuple[str, str]:
    sizes = [abs(value) for value in values]
    return f"{100 * median(sizes):.1f} %", f"{100 * max(sizes):.1f} %"


def checked_text(compared: list[Compared]) -> list[str]:
    """How far the model is from what was measured, policy by policy, and every cell."""
    if not compared:
        return []
    out = ["## The model beside the runs", "", *_summary_text(compared)]
    return out + _cells_text(compared, "time") + _cells_text(compared, "traffic")


def _summary_text(compared: list[Compared]) -> list[str]:
    """Errors of the cells that the model was not made with."""
    head = ("policy", "cells", "time: median error", "largest", "traffic: median error", "largest")
    rows, checked = [], [c for c in compared if not c.is_calibrating]
    for policy in POLICIES:
        of = [c for c in checked if c.policy == policy]
        if of:
            errors = (_errors([c.time_error for c in of]), _errors([c.size_error for c in of]))
            rows.append((policy, str(len(of)), *errors[0], *errors[1]))
    if not rows:
        return []
    worst = max(checked, key=lambda c: abs(c.time_error))
    told = (
        f"Without `headline`, which gives the host's costs ({_CALIBRATING} below). Furthest off: {worst.cell}, "
        f"{worst.policy}: {1e3 * worst.seconds:.2f} ms a sample measured, {1e3 * worst.seconds_said:.2f} computed."
    )
    return [*table(head, rows), "", told, ""]


def _cells_text(compared: list[Compared], what: str) -> list[str]:
    """A line a cell: measured, computed, and how far apart."""

    def shown(c: Compared) -> str:
        if what == "time":
            return (
                f"{1e3 * c.seconds:.2f}, {1e3 * c.seconds_said:.2f} ({100 * c.time_error:+.0f} %)"
            )
        return f"{c.size / 1e3:.1f}, {c.size_said / 1e3:.1f} ({100 * c.size_error:+.0f} %)"

    lines: dict[str, dict[str, str]] = {}
    for c in compared:
        cell = c.cell + (f" {_CALIBRATING}" if c.is_calibrating else "")
        lines.setdefault(cell, {})[c.policy] = shown(c)
    rows = [(cell, *(of.get(policy, "-") for policy in POLICIES)) for cell, of in lines.items()]
    unit = "ms" if what == "time" else "KB"
    title = f"### {what}, {unit} a sample: measured, computed (error)"
    return [title, "", *table(("cell", *POLICIES), rows), ""]


def larger_text(name: str, found: list[Larger], samples: int, cores: int) -> list[str]:
    """Seconds an epoch on larger machines."""
    more = (f"{OURS}: less traffic", "less time", "its storage CPU ms", "its slowest")
    rows = []
    for one in found:
        base, ours = one.outcomes[BASELINE], one.outcomes[OURS]
        rows.append(
            (
                f"{one.link:g} Mbit/s, {one.storage_cores} cores",
                *(f"{o.times.epoch:.1f}" for o in one.outcomes.values()),
                f"{base.size / ours.size:.2f}",
                f"{base.times.epoch / ours.times.epoch:.2f}",
                f"{1e3 * ours.storage_s / samples:.2f}",
                ours.times.slowest,
            )
        )
    title = f"## {name}: {samples:,} samples, a host of {cores} cores: seconds an epoch"
    return [title, "", *table(("link, storage", *POLICIES, *more), rows), ""]


def held_back_text(name: str, found: list[HeldBack]) -> list[str]:
    """Whether `auto` would be faster if it let storage nodes do less."""
    head = (
        "bound",
        "cells",
        f"faster by more than {100 * FASTER:g} %",
        "gains at most",
        "loses at most",
    )
    rows = [
        (
            of.bound,
            str(of.cells),
            str(of.faster),
            f"{100 * of.gain:.1f} %",
            f"{100 * of.loss:.1f} %",
        )
        for of in found
    ]
    told = (
        f"{HELD_LINKS[0]:g} to {HELD_LINKS[-1]:,.0f} Mbit/s, {HELD_STORAGE[0]:g} to {HELD_STORAGE[-1]:g} cores at the "
        f"storage, {HELD_HOST[0]:g} to {HELD_HOST[-1]:g} at the host; time of an epoch beside that of `{OURS}` "
        "without the bound. Runs tell one cost at the host for cuts and coded crops."
    )
    return [f"## {name}: `{OURS}` held back", "", told, "", *table(head, rows), ""]


def fleet_text(names: list[str], cores: int, link: float, found: list[Together]) -> list[str]:
    """Many jobs, of each data set in turn, on one store: mean seconds an epoch, and what they use together."""
    rows: dict[int, list[str]] = {}
    for one in found:
        cells = rows.setdefault(one.jobs, [str(one.jobs)])
        cells += [f"{one.epoch_s:.1f}", f"{one.storage_cores:.1f}", f"{one.mbit:.0f}"]
    head = ["jobs"]
    for policy in dict.fromkeys(one.policy for one in found):
        head += [f"{policy}: epoch, s", "storage cores", "Mbit/s"]
    title = f"## Jobs on one store of {cores} cores and {link:g} Mbit/s ({' and '.join(names)})"
    return [title, "", *table(tuple(head), [tuple(row) for row in rows.values()]), ""]


def text(found: Findings) -> str:
    options, out = found.options, ["# Near the storage, computed", ""]
    for name, compared in found.compared.items():
        out += [f"- {check}" for check in checks(name, compared)]
    for name, samples in found.samples.items():
        out += ["", *profile_text(name, samples)]
        out += checked_text(found.compared.get(name, []))
        out += larger_text(name, found.larger[name], options.samples, options.cores)
        out += held_back_text(name, found.held_back[name])
    for cores, fleet in found.fleets.items():
        out += fleet_text(list(found.samples), cores, options.link, fleet)
    return "\n".join(out)
