"""The results as horizontal bars: one panel a data set, medians with the range of the rounds.

Contestants that had a converter run before stand apart, below the others: their bars are not comparable.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")  # a file, never a window
import matplotlib.pyplot as plt

from bench.common import IN_PLACE, PRE_DECODED, RE_ENCODED

_OURS = "#d1495b"
_COLOURS = {IN_PLACE: "#30638e", RE_ENCODED: "#8fb8de", PRE_DECODED: "#c9ced6"}
_NAMES = {
    IN_PLACE: "peers, the same JPEG bytes",
    RE_ENCODED: "JPEG re-encoded beforehand",
    PRE_DECODED: "pixels decoded beforehand",
}
_INK = "#2b2b2b"
_GREY = "#6b7280"
_GAP = 0.6  # bar heights between the groups


def _colour(result: dict[str, Any]) -> str:
    return _OURS if result["name"].startswith("penstock") else _COLOURS[result["kind"]]


def _ordered(dataset: dict[str, Any]) -> tuple[list[dict[str, Any]], list[float]]:
    """The results from the bottom up, and the height of each bar, with a gap between the two groups."""
    ran = sorted((r for r in dataset["results"] if "runs" in r), key=lambda r: r["images_per_s"])
    converted = [r for r in ran if r["kind"] != IN_PLACE]
    in_place = [r for r in ran if r["kind"] == IN_PLACE]
    gap = _GAP if converted and in_place else 0.0
    places = [float(i) for i in range(len(converted))]
    places += [len(converted) + gap + i for i in range(len(in_place))]
    return converted + in_place, places


def _panel(axes: Any, dataset: dict[str, Any]) -> None:
    results, places = _ordered(dataset)
    rates = [r["images_per_s"] for r in results]
    spread = [
        [r["images_per_s"] - r["images_per_s_min"] for r in results],
        [r["images_per_s_max"] - r["images_per_s"] for r in results],
    ]
    axes.barh(places, rates, color=[_colour(r) for r in results], height=0.72)
    axes.errorbar(rates, places, xerr=spread, fmt="none", ecolor=_INK, elinewidth=1, capsize=2.5)
    widest = max(r["images_per_s_max"] for r in results)
    for place, result in zip(places, results, strict=True):
        end = result["images_per_s_max"] + 0.015 * widest
        axes.text(
            end, place, f"{result['images_per_s']:,.0f}", va="center", fontsize=8.5, color=_INK
        )
    axes.set_yticks(places, [r["title"] for r in results], fontsize=8.5)
    for label, result in zip(axes.get_yticklabels(), results, strict=True):
        label.set_color(_OURS if result["name"].startswith("penstock") else _INK)
    axes.set_xlim(0, widest * 1.12)
    axes.set_xlabel("images per second", fontsize=9, color=_GREY)
    mean_kb = dataset["file_bytes"] / dataset["images"] / 1000
    axes.set_title(
        f"{dataset['name']}, {mean_kb:.0f} KB an image", loc="left", fontsize=10.5, color=_INK
    )
    axes.tick_params(axis="x", labelsize=8, colors=_GREY)
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(_GREY)


def _legend(figure: Any, datasets: list[dict[str, Any]]) -> None:
    shown = [r for dataset in datasets for r in dataset["results"] if "runs" in r]
    entries = [("Penstock", _OURS)] if any(r["name"].startswith("penstock") for r in shown) else []
    kinds = {r["kind"] for r in shown if not r["name"].startswith("penstock")}
    entries += [(_NAMES[kind], _COLOURS[kind]) for kind in _NAMES if kind in kinds]
    handles = [plt.Rectangle((0, 0), 1, 1, color=colour) for _, colour in entries]
    labels = [label for label, _ in entries]
    columns = min(len(entries), 2 * len(datasets))  # more would not fit under one panel
    figure.legend(
        handles, labels, loc="outside lower center", ncols=columns, frameon=False, fontsize=8.5
    )


def draw(report: dict[str, Any], target: Path) -> None:
    """Write the plot of a report."""
    datasets = [d for d in report["datasets"] if any("runs" in r for r in d["results"])]
    if not datasets:
        return  # nothing ran, and the table has said why
    rows = max(sum("runs" in r for r in d["results"]) for d in datasets)
    figure, panels = plt.subplots(
        1,
        len(datasets),
        figsize=(6.2 * len(datasets), 1.5 + 0.3 * rows),
        layout="constrained",
        squeeze=False,
    )
    for axes, dataset in zip(panels[0], datasets, strict=True):
        _panel(axes, dataset)
    work, machine = report["workload"], report["machine"]
    figure.suptitle(
        "JPEG to training batch: decode, RandomResizedCrop(224), flip, normalize\n"
        f"{work['threads']} threads, batch {work['batch_size']}, {machine['cpu']}; "
        f"median and range of {max(d['rounds'] for d in datasets)} rounds",
        fontsize=9,
        color=_GREY,
        x=0.01,
        ha="left",
    )
    _legend(figure, datasets)
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, dpi=150)
    plt.close(figure)
