"""Two pictures of a report: traffic and time where the link is slow, and time over links, quotas and devices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")  # a file, never a window
import matplotlib.pyplot as plt
from matplotlib.ticker import LogLocator

from bench.offload.grid import OURS, PAPER, POLICIES
from bench.offload.verdicts import PAPER_TRAFFIC, of_kind, row, times

COLOURS = {
    "none": "#2b2b2b",
    "all": "#c9ced6",
    "resize": "#edae49",
    "fastflow": "#8fb8de",
    "sophon": "#30638e",
    "auto": "#d1495b",
}
_GREY = "#6b7280"


def plain(axes: Any) -> None:
    """Small figures, and no box around."""
    axes.tick_params(labelsize=7, colors=_GREY)
    axes.spines[["top", "right"]].set_visible(False)


def _bars(axes: Any, lines: list[dict[str, Any]], key: str, title: str) -> None:
    values = [line[key]["mean"] if line[key] else 0.0 for line in lines]
    halves = [(line[key]["half"] or 0.0) if line[key] else 0.0 for line in lines]
    names = [line["policy"] for line in lines]
    axes.bar(names, values, yerr=halves, color=[COLOURS[name] for name in names], capsize=2.5)
    inside = {"ha": "center", "fontsize": 7, "bbox": {"color": "white", "pad": 0.8}}
    for place, value in enumerate(values):
        axes.text(place, value / 2, f"{value:.2f}", **inside)  # clear of intervals and of marks
    axes.set_title(title, loc="left", fontsize=9)
    plain(axes)


def headline(report: dict[str, Any], target: Path) -> None:
    """How many times less traffic and time than `none`; the paper's figure as a mark on `sophon`."""
    cells = of_kind(report, "headline")
    if not cells:
        return
    figure, panels = plt.subplots(
        len(cells), 2, figsize=(9, 2.8 * len(cells)), layout="constrained", squeeze=False
    )
    for (left, right), stored in zip(panels, cells.values(), strict=True):
        data = stored["cell"]["data"]
        images = report["data"][data]["images"]
        there = [policy for policy in POLICIES if stored["runs"].get(policy)]
        lines = [row(stored, policy, images) for policy in there]
        link = f"{stored['cell']['link']:g} Mbit/s"
        _bars(left, lines, "traffic", f"{data}, {link}: times less traffic")
        _bars(right, lines, "speed", f"{data}, {link}: times less time")
        if data in PAPER_TRAFFIC and PAPER in there:
            value, name = PAPER_TRAFFIC[data]
            place = there.index(PAPER)
            left.hlines(value, place - 0.45, place + 0.45, color="#2b2b2b", linewidth=1.5)
            left.annotate(
                f"its paper, {name}", (place - 0.45, value), fontsize=7, ha="right", color=_GREY
            )
    save(figure, target)


def grid(report: dict[str, Any], target: Path) -> None:
    """A panel for each data set and quota: milliseconds a sample over the link, a line a policy."""
    cells = list(of_kind(report, "grid").values())
    if not cells:
        return
    rows = sorted({(s["cell"]["data"], s["cell"]["rate"] or float("inf")) for s in cells})
    columns = sorted({s["cell"]["quota"] for s in cells})
    size = (3.2 * len(columns), 2.4 * len(rows))
    figure, panels = plt.subplots(
        len(rows), len(columns), figsize=size, layout="constrained", squeeze=False, sharey="row"
    )
    for line, (data, rate) in zip(panels, rows, strict=True):
        for axes, quota in zip(line, columns, strict=True):
            here = [s for s in cells if _is_in(s["cell"], data, rate, quota)]
            _lines(axes, sorted(here, key=lambda s: float(s["cell"]["link"])))
            device = "no device" if rate == float("inf") else f"device {rate:g}/s"
            axes.set_title(f"{data}, {quota:g} cores, {device}", loc="left", fontsize=8)
    panels[0][0].legend(fontsize=6, frameon=False)
    save(figure, target)


def _is_in(cell: dict[str, Any], data: str, rate: float, quota: float) -> bool:
    return (cell["data"], cell["rate"] or float("inf"), cell["quota"]) == (data, rate, quota)


def _lines(axes: Any, cells: list[dict[str, Any]]) -> None:
    for policy in POLICIES:
        points = [(s["cell"]["link"], 1e3 * times(s)[policy]) for s in cells if policy in times(s)]
        if points:
            width = 2.0 if policy == OURS else 1.0
            axes.plot(
                *zip(*points, strict=True),
                marker="o",
                markersize=2.5,
                linewidth=width,
                color=COLOURS[policy],
                label=policy,
            )
    axes.set_xscale("log")
    axes.set_yscale("log")
    ticks = sorted({s["cell"]["link"] for s in cells})
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.minorticks_off()
    axes.set_xlabel("Mbit/s", fontsize=7)
    axes.set_ylabel("ms a sample", fontsize=7)
    plain(axes)


def save(figure: Any, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, dpi=120)
    plt.close(figure)


def draw(report: dict[str, Any], target: Path) -> None:
    """`target` for traffic and time, and beside it `...-grid`."""
    headline(report, target)
    grid(report, target.with_stem(target.stem + "-grid"))
