"""From notes of a run to figures: rates, waits and threads of each phase, and a timeline."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from bench.adapt.scenarios import PERIOD_S, Scenario, Span, spans

Array = Any


def rate(got: Array, rows: Array, begin: float, end: float) -> float:
    """Samples a second between two times, batches counted in proportion to the time they took to come."""
    if end <= begin or len(got) == 0:
        return 0.0
    taken = np.concatenate([[0.0], np.cumsum(rows[1:])]) if len(got) > 1 else np.zeros(1)
    at = np.interp([begin, end], got, taken)
    return float((at[1] - at[0]) / (end - begin))


def settled_rate(asked: Array, got: Array, rows: Array, begin: float, end: float) -> float:
    """The same where batches may come in lots, as those of many workers do that share a source: from the beginning
    of a lot to that of another, lest a lot more or less be counted. A lot ends a wait of half the longest or more.
    """
    inside = np.flatnonzero((got >= begin) & (got < end))
    waited = (got - asked)[inside]
    starts = inside[waited >= waited.max() / 2] if len(inside) else inside
    if len(starts) < 2 or got[starts[-1]] - got[starts[0]] < (end - begin) / 3:
        return rate(got, rows, begin, end)
    first, last = starts[0], starts[-1]
    return float(rows[first:last].sum() / (got[last] - got[first]))


def timeline(got: Array, rows: Array, seconds: float, bin_s: float = PERIOD_S) -> list[float]:
    """Samples a second in each bin."""
    edges = np.arange(0.0, seconds + bin_s / 2, bin_s)
    return [round(rate(got, rows, a, b), 1) for a, b in itertools.pairwise(edges)]


def waits(asked: Array, got: Array, begin: float, end: float) -> dict[str, float]:
    """How long the loop waited for batches that it asked for between two times."""
    inside = (asked >= begin) & (asked < end)
    waited = (got - asked)[inside]
    if len(waited) == 0:
        return {"wait_share": 1.0, "p50_ms": 0.0, "p95_ms": 0.0, "p99_ms": 0.0}
    overlap = np.clip(np.minimum(got, end) - np.maximum(asked, begin), 0, None).sum()
    p50, p95, p99 = (1000 * float(np.quantile(waited, q)) for q in (0.5, 0.95, 0.99))
    return {
        "wait_share": float(overlap) / (end - begin),
        "p50_ms": p50,
        "p95_ms": p95,
        "p99_ms": p99,
    }


_SHOWN = ("workers", "io", "read_ahead", "ready_batches")


def _threads(decisions: list[dict[str, Any]], first: float, span: Span) -> float | None:
    """Workers, which may be processes, and readers; mean of the phase once settled."""
    found = []
    for line in decisions:
        if span.settled <= line["time_ns"] / 1e9 - first < span.end:
            knobs = line["knobs"]
            found.append(knobs["workers"] + min(knobs.get("io", 0), knobs.get("read_ahead", 0)))
    return float(np.mean(found)) if found else None


def _knob_timeline(decisions: list[dict[str, Any]], first: float) -> list[dict[str, Any]]:
    """When knobs changed, to what, and why."""
    changes: list[dict[str, Any]] = []
    for line in decisions:
        knobs = {k: line["decision"][k] for k in _SHOWN if k in line["decision"]}
        reason = line["reason"]
        if not changes or changes[-1]["knobs"] != knobs or reason:
            at = round(line["time_ns"] / 1e9 - first, 2)
            changes.append({"at": at, "knobs": knobs, "reason": reason})
    return changes


def figures(scenario: Scenario, notes: dict[str, Any]) -> dict[str, Any]:
    """Everything worth keeping of a run."""
    first = notes["first"]
    asked, got = np.array(notes["asked"]) - first, np.array(notes["got"]) - first
    rows = np.array(notes["rows"], dtype=float)
    phases = []
    for span in spans(scenario):
        phases.append(
            {
                "phase": str(span.phase),
                "settled": settled_rate(asked, got, rows, span.settled, span.end),
                "adapting": rate(got, rows, span.begin, span.settled),
                "whole": rate(got, rows, span.begin, span.end),
                "threads": _threads(notes["decisions"], first, span),
                **waits(asked, got, span.settled, span.end),
            }
        )
    seen, about = notes["seen"], notes["about"]
    control_s = about.get("control_cpu_s")
    return {
        "first_batch_s": first - notes["begin"],
        "phases": phases,
        "settled": _over_phases(scenario, phases, "settled"),
        "whole": _over_phases(scenario, phases, "whole"),
        "wait_share": _over_phases(scenario, phases, "wait_share"),
        "memory_bytes": max(0, seen["peak_bytes"] - seen["base_bytes"]),
        "budget_peak_bytes": about.get("stats", {}).get("budget_peak"),
        "longest_gap_s": seen["longest_gap_s"],
        "processes": seen["processes"],
        "os_threads": seen["threads"],
        "cpu_cores": notes["cpu_s"] / scenario.seconds,
        "control_cores": None if control_s is None else control_s / scenario.seconds,
        "other_cores": notes["other_cores"],
        "timeline": timeline(got, rows, scenario.seconds),
        "knobs": _knob_timeline(notes["decisions"], first),
        "verdict": about.get("verdict"),
    }


def _over_phases(scenario: Scenario, phases: list[dict[str, Any]], key: str) -> float:
    """Mean over the phases, by how long they are."""
    weights = [phase.seconds for phase in scenario.phases]
    return float(np.average([phase[key] for phase in phases], weights=weights))


def adapted_after_s(
    line: list[float], span: Span, wanted: float, window_s: float = 1.0
) -> float | None:
    """After what time in a phase a window's mean rate was first what is wanted; None: never."""
    begin, end = round(span.begin / PERIOD_S), round(span.end / PERIOD_S)
    width = round(window_s / PERIOD_S)
    for at in range(begin, min(end, len(line)) - width + 1):
        if float(np.mean(line[at : at + width])) >= wanted:
            return (at - begin) * PERIOD_S
    return None
