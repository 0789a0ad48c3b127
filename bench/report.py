"""From runs to one line a contestant, and from those to a table."""

from __future__ import annotations

from statistics import median
from typing import Any

from bench.common import DISTURBED, IN_PLACE, Spec
from bench.datasets import View, input_files

_MIB = 1024  # KiB
# A contestant that reads less than this share of what is stored has mapped the file instead.
_MAPPED = 0.05


def summarise(
    name: str, spec: Spec, runs: list[dict[str, Any]], problem: str | None, view: View
) -> dict[str, Any]:
    """Medians and spread of a contestant's runs, with the runs themselves."""
    result: dict[str, Any] = {
        "name": name,
        "title": spec.title,
        "kind": spec.kind,
        "problem": problem,
    }
    if not runs:
        return result
    rates = [run["images_per_s"] for run in runs]
    stored = sum(path.stat().st_size for path in input_files(view.directory / spec.reads))
    first = runs[0]
    return {
        **result,
        "version": first["version"],
        "settings": first["settings"],
        "layout": first["layout"],
        "images_per_s": median(rates),
        "images_per_s_min": min(rates),
        "images_per_s_max": max(rates),
        "first_batch_s": median(run["first_batch_s"] for run in runs),
        "cpu_ms_per_image": 1000 * median(run["cpu_s_per_image"] for run in runs),
        "peak_mib": max(run["peak_pss_kib"] for run in runs) / _MIB,
        "peak_own_mib": max(run["peak_own_kib"] for run in runs) / _MIB,
        "stored_bytes_per_image": stored / view.images,
        "read_bytes_per_image": median(run["read_bytes_per_image"] for run in runs),
        "contention": median(run["contention"] for run in runs),
        "runs": runs,
    }


def _bases(ran: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Whom ratios refer to: peers that read the user's own JPEG bytes, or everyone if none of them ran."""
    peers = [r for r in ran if r["kind"] == IN_PLACE and not r["name"].startswith("penstock")]
    return peers or ran


def _read(result: dict[str, Any]) -> str:
    stored, read = result["stored_bytes_per_image"], result["read_bytes_per_image"]
    return "mapped" if read < _MAPPED * stored else f"{read / 1000:.0f}"


_HEAD = (
    "contestant",
    "version",
    "img/s",
    "min - max",
    "ratio",
    "CPU ms",
    "ratio",
    "first ms",
    "MiB",
    "own",
    "stored",
    "read",
)


def _row(result: dict[str, Any], rate: float, cpu_ms: float) -> tuple[str, ...]:
    mark = "~" if result["contention"] > DISTURBED else ""
    return (
        result["title"],
        result["version"],
        f"{mark}{result['images_per_s']:.0f}",
        f"{result['images_per_s_min']:.0f} - {result['images_per_s_max']:.0f}",
        f"{result['images_per_s'] / rate:.2f}",
        f"{result['cpu_ms_per_image']:.2f}",
        f"{cpu_ms / result['cpu_ms_per_image']:.2f}",
        f"{1000 * result['first_batch_s']:.0f}",
        f"{result['peak_mib']:.0f}",
        f"{result['peak_own_mib']:.0f}",
        f"{result['stored_bytes_per_image'] / 1000:.0f}",
        _read(result),
    )


def _format(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(_HEAD))]
    align = [str.ljust, str.ljust] + [str.rjust] * (len(_HEAD) - 2)
    return [
        "  ".join(a(cell, w) for a, cell, w in zip(align, row, widths, strict=True)) for row in rows
    ]


def _tuned(results: list[dict[str, Any]], start: str) -> str | None:
    """Which of a peer's settings was the better one."""
    variants = [r for r in results if "runs" in r and r["name"].startswith(start)]
    if len(variants) < 2:
        return None
    better = max(variants, key=lambda r: r["images_per_s"])
    return f"tf.data tuned: {better['title'].partition(', ')[2]} was the better of {len(variants)} settings"


def table(dataset: dict[str, Any], machine: dict[str, Any], workload: dict[str, Any]) -> str:
    """The data set's results as text."""
    ran = sorted((r for r in dataset["results"] if "runs" in r), key=lambda r: -r["images_per_s"])
    problems = [f"{r['title']}: {r['problem']}" for r in dataset["results"] if r["problem"]]
    if not ran:
        return "\n".join([f"{dataset['name']}: nothing could run", *problems])
    fastest = max(_bases(ran), key=lambda r: r["images_per_s"])
    leanest = min(_bases(ran), key=lambda r: r["cpu_ms_per_image"])
    same = [r for r in ran if r["kind"] == IN_PLACE]
    others = [r for r in ran if r["kind"] != IN_PLACE]
    lines = _format(
        [_HEAD]
        + [_row(r, fastest["images_per_s"], leanest["cpu_ms_per_image"]) for r in same + others]
    )
    mean_kb = dataset["file_bytes"] / dataset["images"] / 1000
    out = [
        "",
        f"{dataset['name']}: {dataset['images']} images an epoch, {dataset['distinct']} distinct, "
        f"{mean_kb:.0f} KB mean; batch {workload['batch_size']}, {workload['threads']} threads; "
        f"medians of {dataset['rounds']}; {machine['cpu']}, {machine['cores']} cores; sizes in KB an image",
        lines[0],
        *lines[1 : len(same) + 1],
    ]
    if others:
        out += ["not in place, a converter has run before:", *lines[len(same) + 1 :]]
    out += [f"  {r['title']}: {r['kind']}; it stores {r['settings']['stored']}" for r in others]
    out += problems
    out.append(
        "ratios: to the best peer that reads the files in place, "
        f"in images a second {fastest['title']}, in processor time {leanest['title']}"
    )
    if tuned := _tuned(ran, "tfdata"):
        out.append(tuned)
    if any(r["contention"] > DISTURBED for r in ran):
        out.append(
            "~ other processes took part of its cores in most of its runs: compare processor time instead"
        )
    return "\n".join([*out, *dataset["notes"]])
