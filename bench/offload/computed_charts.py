"""A picture of what simulate.py found: the model beside the runs, larger machines, many jobs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.offload.charts import COLOURS, plain, plt, save
from bench.offload.grid import POLICIES
from bench.offload.simulate import FLEET_POLICIES, Compared, Findings, Larger, Together


def _beside(axes: Any, compared: list[Compared], name: str) -> None:
    """A point a cell and policy: what was measured, what was computed; on the line they are equal."""
    for policy in POLICIES:
        of = [c for c in compared if c.policy == policy]
        if of:
            points = ([1e3 * c.seconds for c in of], [1e3 * c.seconds_said for c in of])
            axes.scatter(*points, s=12, color=COLOURS[policy], label=policy)
    ends = [1e3 * value for c in compared for value in (c.seconds, c.seconds_said)]
    axes.plot([min(ends), max(ends)], [min(ends), max(ends)], color="#6b7280", linewidth=0.8)
    _log(axes, f"{name}: ms a sample", "measured", "computed")


def _larger(axes: Any, found: list[Larger], name: str, cores: int) -> None:
    """Seconds an epoch over the link, a line a policy."""
    of = [one for one in found if one.storage_cores == cores]
    for policy in POLICIES:
        seconds = [one.outcomes[policy].times.epoch for one in of]
        axes.plot(
            [one.link for one in of], seconds, color=COLOURS[policy], label=policy, marker="."
        )
    _log(axes, f"{name}: {cores} cores at the storage", "Mbit/s", "s an epoch")


def _fleet(axes: Any, found: list[Together], cores: int, link: float) -> None:
    for policy in FLEET_POLICIES:
        of = [one for one in found if one.policy == policy]
        points = ([one.jobs for one in of], [one.epoch_s for one in of])
        axes.plot(*points, color=COLOURS[policy], label=policy, marker=".")
    _log(axes, f"one store: {link:g} Mbit/s, {cores} cores", "jobs", "s an epoch")


def _log(axes: Any, title: str, across: str, up: str) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_title(title, loc="left", fontsize=9)
    axes.set_xlabel(across, fontsize=7)
    axes.set_ylabel(up, fontsize=7)
    axes.legend(fontsize=6, frameon=False)
    plain(axes)


def draw(found: Findings, target: Path) -> None:
    """A row a data set, and one for jobs together."""
    stores = list(found.fleets)
    has_runs = any(found.compared.values())
    n_columns = len(stores) + (1 if has_runs else 0)
    n_rows = len(found.samples) + 1
    size = (3.6 * n_columns, 2.9 * n_rows)
    figure, panels = plt.subplots(
        n_rows, n_columns, figsize=size, layout="constrained", squeeze=False
    )
    for row, name in zip(panels, found.samples, strict=False):
        for axes, cores in zip(row, stores, strict=False):
            _larger(axes, found.larger[name], name, cores)
        if found.compared.get(name):
            _beside(row[-1], found.compared[name], name)
    for axes, cores in zip(panels[-1], stores, strict=False):
        _fleet(axes, found.fleets[cores], cores, found.options.link)
    for axes in panels.flat:
        if not axes.has_data():
            axes.set_axis_off()
    save(figure, target)
