"""The findings as Markdown, generated from the JSON alone."""

from __future__ import annotations

from typing import Any

from bench.builds import UNKNOWN
from bench.common import table
from bench.offload.experiment import builds_of
from bench.offload.grid import DISTURBED, OURS, POLICIES, all_runs, cell_of
from bench.offload.verdicts import (
    PAPER_TRAFFIC,
    Judged,
    best,
    findings,
    judge,
    of_kind,
    ratios,
    row,
    settling,
    shown,
    times,
    warm_up,
)

_PREFACE = """# Near the storage: results

Written by `python -m bench.offload`; [bench/README.md](../bench/README.md#near-the-storage) has what is done and how.
Bytes are counted by the kernel where they leave the storage, headers of Ethernet, IP and TCP included. "less" is how many
times less than `none`, seed by seed, with the half width of the mean's 95 % interval.
"""
_JUDGED_HEAD = (f"{OURS} / best other", "within 3 %", "seed by seed", "told apart from 3 %")
_APART = {True: "yes", False: "not told apart", None: "-"}
_HEAD = (
    "policy",
    "samples a run",
    "KB a sample",
    "less traffic",
    "epoch, s",
    "less time",
    "from a cold start, s",
    "storage CPU ms",
    "compute CPU ms",
    "waits",
    "Mbit/s",
    "settled after, s",
    "first batch, s",
    "batches equal",
)


def _cells(line: dict[str, Any]) -> tuple[str, ...]:
    return (
        line["policy"],
        f"{line['samples']:,}",
        f"{line['kb']:.1f}",
        shown(line["traffic"]),
        f"{line['epoch_s']:.0f}",
        shown(line["speed"]),
        "-" if line["cold_s"] is None else f"{line['cold_s']:.0f}",
        f"{line['storage_ms']:.2f}",
        f"{line['compute_ms']:.2f}",
        f"{100 * line['wait']:.0f} %",
        f"{line['link_mbit']:.0f}",
        "-" if line["settled_s"] is None else f"{line['settled_s']:.1f}",
        f"{line['first_s']:.1f}",
        f"{line['equal']} of {line['runs']}",
    )


def cell_text(stored: dict[str, Any], images: int) -> list[str]:
    """One cell with all that is known of every policy."""
    cell = cell_of(stored["cell"])
    there = [policy for policy in POLICIES if stored["runs"].get(policy)]
    out = [f"### {cell.key}", "", f"{cell}.", ""]
    out += table(_HEAD, [_cells(row(stored, policy, images)) for policy in there])
    return [*out, "", *_problems(stored)]


def _problems(stored: dict[str, Any]) -> list[str]:
    told = [f"- {policy}: {why}" for policy, why in stored["problems"].items()]
    return [*told, ""] if told else []


def _judged(found: Judged | None) -> tuple[str, ...]:
    """The plain ratio and what it says; beside it the seeds' ratios, their interval, and whether that says as much."""
    if found is None:
        return ("-",) * len(_JUDGED_HEAD)
    is_within = "yes" if found.is_within else "**no**"
    return (f"{found.plain:.3f}", is_within, shown(found.pairs, 3), _APART[found.is_told_apart])


def grid_text(data: str, cells: dict[str, dict[str, Any]]) -> list[str]:
    """A line a cell: each policy's time over `none`'s, who is best, and how far `auto` is from the best other."""
    head = ("link, storage CPU, device", *POLICIES, "best", *_JUDGED_HEAD)
    rows = []
    for stored in cells.values():
        found = times(stored)
        base = found.get("none")
        rows.append(
            (
                str(cell_of(stored["cell"])),
                *(f"{found[p] / base:.2f}" if base and p in found else "-" for p in POLICIES),
                best(stored) or "-",
                *_judged(judge(stored)),
            )
        )
    out = [f"### {data}: time of an epoch, `none` = 1", "", *table(head, rows), ""]
    return out + [line for stored in cells.values() for line in _problems(stored)]


def paper_text(report: dict[str, Any]) -> list[str]:
    """The paper's figures beside ours."""
    rows = []
    for stored in of_kind(report, "headline").values():
        data = stored["cell"]["data"]
        if data not in PAPER_TRAFFIC:
            continue
        reported, name = PAPER_TRAFFIC[data]
        found = [ratios(stored, policy, "bytes") for policy in ("sophon", OURS)]
        mean = [f"{sum(of) / len(of):.2f}" if of else "-" for of in found]
        rows.append((f"{data} (the paper: {name})", f"{reported:g}", *mean))
    if not rows:
        return []
    head = ("times less traffic", "SOPHON's paper", "sophon here", f"{OURS} here")
    told = "SOPHON, HotStorage '24 (doi 10.1145/3655038.3665947), on its own data:"
    return ["## Beside the paper", "", told, "", *table(head, rows), ""]


def text(report: dict[str, Any]) -> str:
    machine = report["machine"]
    quick = "; quick: too short to say more than that all works" if report["how"]["quick"] else ""
    sizes = "; ".join(
        f"{name}: {about['images']:,} ids of {about['distinct']:,} files, "
        f"{about['bytes'] / about['images'] / 1e3:.0f} KB each"
        for name, about in report["data"].items()
    )
    out = [
        _PREFACE,
        f"{report['date']}, {machine['cpu']}, {machine['cores']} cores, {machine['memory_gib']} GiB{quick}. {sizes}.",
        _builds_text(report),
        _others_text(report),
        "",
    ]
    for check in findings(report):
        out.append(f"- {check}")
    out += ["", *_settling_text(report), *paper_text(report)]
    for kind in ("headline", "tenth", "idle", "client"):
        for stored in of_kind(report, kind).values():
            out += cell_text(stored, report["data"][stored["cell"]["data"]]["images"])
    for data in report["data"]:
        cells = {k: s for k, s in of_kind(report, "grid").items() if s["cell"]["data"] == data}
        if cells:
            out += grid_text(data, cells)
    out += _not_run(report)
    return "\n".join(out)


def _settling_text(report: dict[str, Any]) -> list[str]:
    found = settling(report)
    if found is None:
        return []
    told = (
        f"The share that `{OURS}` offloads stayed within a tenth of where it ended from {found['median_s']:.1f} s after the start on "
        f"(median of {found['runs']} runs; {found['longest_s']:.1f} s at most), in {found['before']} of them before anything counted."
    )
    rest = tuple(policy for policy in POLICIES if policy != OURS)
    ours, others = (warm_up(report, of) for of in ((OURS,), rest))
    if ours and others:
        told += (
            f" Runs of `{OURS}` began to count after {ours[0]:.1f} to {ours[1]:.1f} s, "
            f"those of others after {others[0]:.1f} to {others[1]:.1f} s."
        )
    return [told, ""]


def _builds_text(report: dict[str, Any]) -> str:
    found = sorted(builds_of(report))
    if len(found) > 1:
        return f"**Runs of different builds**: {', '.join(found)}."
    changed = ", with changes that were not committed" if any("+" in of for of in found) else ""
    return f"Commit {''.join(found) or UNKNOWN}{changed}."


def _others_text(report: dict[str, Any]) -> str:
    """Whether the machine was quiet: the network's own work is a part of what others did."""
    seen = [run["other_cores"] for run in all_runs(report)]
    mean = sum(seen) / len(seen) if seen else 0.0
    much = sum(cores > DISTURBED for cores in seen)
    again = sum(run.get("tries", 1) > 1 for run in all_runs(report))
    return (
        f"The kernel and other programs used {mean:.2f} cores beside both ends; "
        f"more than {DISTURBED:g} in {much} of {len(seen)} runs, after {again} were repeated for that."
    )


def _not_run(report: dict[str, Any]) -> list[str]:
    """Cells of which nothing could be measured, once for each reason."""
    reasons: dict[str, list[str]] = {}
    for key, stored in report["cells"].items():
        if not any(stored["runs"].values()):
            for why in set(stored["problems"].values()):
                reasons.setdefault(why, []).append(key)
    if not reasons:
        return []
    told = [f"- {why}: {', '.join(keys)}" for why, keys in reasons.items()]
    return ["### Not measured", "", *told, ""]
