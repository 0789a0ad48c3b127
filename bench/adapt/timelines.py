"""Two pictures a report: what happened over time in each scenario, and bars with 95 % intervals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")  # a file, never a window
import matplotlib.pyplot as plt
import numpy as np

from bench.adapt.analysis import read_scenario, row, shown
from bench.adapt.entrants import FIXED, MODEL, ORACLE
from bench.adapt.scenarios import PERIOD_S, spans

_COLOURS = {MODEL: "#d1495b", ORACLE: "#2b2b2b", FIXED: "#8fb8de"}
_PEER = "#30638e"
_GREY = "#6b7280"
_SMOOTH = 5  # bins


def _smooth(line: list[float]) -> Any:
    kernel = np.ones(_SMOOTH)
    known = np.convolve(np.ones(len(line)), kernel, mode="same")  # fewer at both ends
    return (
        np.convolve(line, kernel, mode="same") / known if len(line) >= _SMOOTH else np.array(line)
    )


def _rates(axes: Any, stored: dict[str, Any], names: list[str]) -> None:
    for name in names:
        of = stored["runs"].get(name)
        if of:
            line = _smooth(of[0]["timeline"])
            colour = _COLOURS.get(name, _PEER)
            axes.plot(
                np.arange(len(line)) * PERIOD_S, line, color=colour, linewidth=1.2, label=name
            )
    for span in list(spans(read_scenario(stored)))[1:]:
        axes.axvline(span.begin, color=_GREY, linewidth=0.6, linestyle=":")
    axes.set_ylim(bottom=0)
    axes.set_title(f"{stored['name']}: {stored['title']}", loc="left", fontsize=9)
    axes.set_ylabel("samples/s", fontsize=8)
    axes.legend(fontsize=7, frameon=False, loc="lower right")


def _knobs(axes: Any, run: dict[str, Any], seconds: float) -> None:
    """The model's knobs as steps; those of worker processes are fewer."""
    changes = run["knobs"]
    has_readers = "io" in changes[0]["knobs"]
    times = [max(change["at"], 0.0) for change in changes] + [seconds]
    for knob, label, colour in (
        ("workers", "workers", "#d1495b"),
        ("readers", "readers", "#edae49"),
        ("ready_batches", "ready batches", "#00798c"),
    ):
        if knob == "readers" and not has_readers:
            continue
        line = [
            min(c["knobs"]["io"], c["knobs"]["read_ahead"])
            if knob == "readers"
            else c["knobs"][knob]
            for c in changes
        ]
        axes.step(times, [*line, line[-1]], where="post", label=label, color=colour, linewidth=1)
    axes.set_yscale("symlog", linthresh=8)
    axes.set_ylim(0, 160)
    axes.set_yticks([0, 2, 4, 8, 16, 32, 64, 128], ["0", "2", "4", "8", "16", "32", "64", "128"])
    axes.minorticks_off()
    axes.set_ylabel("model's knobs", fontsize=8)
    axes.legend(fontsize=7, frameon=False, loc="upper right")


def timelines(report: dict[str, Any], target: Path) -> None:
    ran = [s for s in report["scenarios"] if any(s["runs"].values())]
    if not ran:
        return
    figure, panels = plt.subplots(
        len(ran), 2, figsize=(12, 2.4 * len(ran)), layout="constrained", squeeze=False
    )
    for (left, right), stored in zip(panels, ran, strict=True):
        peers = [
            n for n in shown({k: v for k, v in stored["runs"].items() if v}) if n not in _COLOURS
        ]
        best = [name for name in peers if not name.startswith("penstock")][:1]
        _rates(left, stored, [*best, FIXED, ORACLE, MODEL])
        ours = stored["runs"].get(MODEL)
        right.set_visible(bool(ours and ours[0]["knobs"]))  # no log, no knobs
        if ours and right.get_visible():
            _knobs(right, ours[0], read_scenario(stored).seconds)
        for axes in (left, right):
            axes.tick_params(labelsize=7, colors=_GREY)
            axes.spines[["top", "right"]].set_visible(False)
    panels[-1][0].set_xlabel("seconds since the first batch", fontsize=8)
    _save(figure, target)


def bars(report: dict[str, Any], target: Path) -> None:
    ran = [s for s in report["scenarios"] if any(s["runs"].values())]
    if not ran:
        return
    columns = 3
    rows = -(-len(ran) // columns)
    figure, panels = plt.subplots(
        rows, columns, figsize=(13, 2.6 * rows), layout="constrained", squeeze=False
    )
    for axes in panels.flat[len(ran) :]:
        axes.set_visible(False)
    for axes, stored in zip(panels.flat, ran, strict=False):
        runs = {name: of for name, of in stored["runs"].items() if of}
        lines = [row(runs, name) for name in reversed(shown(runs))]
        axes.barh(
            [line["name"] for line in lines],
            [line["mean"] for line in lines],
            xerr=[line["half"] or 0 for line in lines],
            color=[_COLOURS.get(line["name"], _PEER) for line in lines],
            error_kw={"elinewidth": 1, "capsize": 2.5},
        )
        axes.set_title(stored["title"], loc="left", fontsize=9)
        axes.tick_params(labelsize=7, colors=_GREY)
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(
        "samples a second once settled, mean and 95 % interval", fontsize=9, color=_GREY
    )
    _save(figure, target)


def _save(figure: Any, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, dpi=120)
    plt.close(figure)


def draw(report: dict[str, Any], target: Path) -> None:
    """`target` for the timelines, and beside it `...-bars`."""
    timelines(report, target)
    bars(report, target.with_stem(target.stem + "-bars"))
