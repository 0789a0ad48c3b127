"""The findings as Markdown, generated from the JSON alone."""

from __future__ import annotations

from typing import Any

from bench.adapt.analysis import findings, row, shown, tests
from bench.adapt.entrants import MODEL
from bench.common import table

_HEAD = (
    "entrant",
    "samples/s",
    "of oracle",
    "first 2 s",
    "waits",
    "p50 / p95 / p99 ms",
    "MB",
    "threads",
    "processes",
    "cores",
    "p against model",
)


def _number(value: float | None, form: str = "{:.0f}") -> str:
    return "-" if value is None else form.format(value)


def _cells(line: dict[str, Any], test: dict[str, Any] | None) -> tuple[str, ...]:
    half = f" ± {line['half']:.0f}" if line["half"] is not None else ""
    threads = (
        _number(line["threads"], "{:.1f}")
        if line["threads"] is not None
        else str(line["os_threads"])
    )
    return (
        line["name"],
        f"{line['mean']:.0f}{half}",
        _number(None if line["of_oracle"] is None else 100 * line["of_oracle"], "{:.0f} %"),
        f"{line['adapting']:.0f}",
        f"{100 * line['wait_share']:.0f} %",
        f"{line['p50_ms']:.0f} / {line['p95_ms']:.0f} / {line['p99_ms']:.0f}",
        f"{line['memory_mb']:.0f}",
        threads,
        str(line["processes"]),
        f"{line['cores']:.1f}",
        _number(test["p"] if test else None, "{:.3f}"),
    )


def _phases(stored: dict[str, Any]) -> str:
    from bench.adapt.scenarios import Phase

    return "; ".join(f"{p['seconds']:g} s {Phase(**p)}" for p in stored["phases"])


def scenario_text(stored: dict[str, Any]) -> list[str]:
    """One scenario: its table, what it shows, and who could not take part."""
    out = [f"### {stored['name']}: {stored['title']}", ""]
    if stored.get("skipped"):
        return [*out, f"skipped: {stored['skipped']}", ""]
    step = f", a step of {stored['step_ms']:g} ms" if stored["step_ms"] else ""
    out += [f"{_phases(stored)}; batches of {stored['batch_size']}{step}.", ""]
    runs = {name: of for name, of in stored["runs"].items() if of}
    if runs:
        found = tests(runs)
        rows = [
            _cells(row(runs, n), found["paired"].get(n) if n != MODEL else None)
            for n in shown(runs)
        ]
        out += [*table(_HEAD, rows), ""]
        if found["anova"]:
            out += [
                f"ANOVA, that policies are alike: F = {found['anova']['f']:.1f}, "
                f"p = {found['anova']['p']:.3g}.",
                "",
            ]
    for check in findings(stored):
        mark = {True: "yes", False: "**no**", None: "not told"}[check.holds]
        out.append(f"- {check.what}: {mark} ({check.told})")
    for phase, best in stored.get("oracle", {}).items():
        out.append(f"- oracle, {phase}: " + ", ".join(f"{k} {v:g}" for k, v in best.items()))
    if stored.get("torch_rates"):
        rates = stored["torch_rates"].items()
        told = ", ".join(f"{n} {r:.0f}" if isinstance(r, float) else f"{n} {r}" for n, r in rates)
        out.append(f"- samples/s of DataLoaders, a short run each: {told}")
    out += [f"- {name}: {why}" for name, why in stored.get("problems", {}).items()]
    return [*out, ""]


_PREFACE = """# Does it adapt? Results

Written by `python -m bench.adapt`; [bench/README.md](../bench/README.md#does-it-adapt) has what is done, to whom and how.
Rates and waits are of the time after the first 20 periods of each phase; those have a column of their own.
MB, threads of the system and processes are the most of any seed.
"""
_DISTURBED = """
**Other programs were at work: these figures show that everything runs, not who is faster.** `cores` says what each got.
"""
_QUIET = 0.15  # cores


def text(report: dict[str, Any]) -> str:
    machine, how = report["machine"], report["how"]
    out = [
        _PREFACE,
        f"{report['date']}, {machine['cpu']}, {machine['cores']} cores, {machine['memory_gib']} GiB; "
        f"seeds: {how['seeds']}; phases x {how['scale']:g}{'; quick' if how['quick'] else ''}. "
        f"Other programs used {_others(report):.1f} cores on average.",
        _DISTURBED if _others(report) > _QUIET else "",
    ]
    for stored in report["scenarios"]:
        out += scenario_text(stored)
    return "\n".join(out)


def _others(report: dict[str, Any]) -> float:
    """Cores that others used, where that was no part of the scenario. Beside several processes it is this benchmark
    itself, which adds their memory up page by page."""
    seen = [
        run["other_cores"]
        for stored in report["scenarios"]
        if not any(p["hogs"] for p in stored["phases"])
        for of in stored["runs"].values()
        for run in of
        if run["processes"] == 1
    ]
    return sum(seen) / len(seen) if seen else 0.0
