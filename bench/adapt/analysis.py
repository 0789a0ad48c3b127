"""From runs to findings: what each entrant reached in a scenario, and whether `model` did what it should."""

from __future__ import annotations

from statistics import fmean, median
from typing import Any

from bench.adapt.entrants import FIXED, MODEL, ORACLE, POLICIES, best_of_torch
from bench.adapt.measure import adapted_after_s
from bench.adapt.scenarios import ADAPTING_S, PERIOD_S, PYTHON_ITEMS, Phase, Scenario, spans
from bench.common import Check
from bench.stats import anova, paired, summary

REACHES = 0.95  # of the oracle
MORE = 1.1  # times the oracle's memory and threads
CONTROL = 0.01  # of a core
BOTTLENECK = 0.1  # of the time waited with the defaults: loading is what is slow
LESS_WAIT = 0.3

Runs = dict[str, list[dict[str, Any]]]


def values(runs: list[dict[str, Any]], key: str) -> list[float]:
    return [run[key] for run in runs if run[key] is not None]


def matched(
    ours: list[dict[str, Any]], theirs: list[dict[str, Any]], key: str = "settled"
) -> tuple[list[float], list[float]]:
    """Values of runs of the same seed; of all where seeds were not noted, as they once were not."""
    if not all("seed" in run for run in (*ours, *theirs)):
        return values(ours, key), values(theirs, key)
    by_seed = {run["seed"]: run[key] for run in theirs}
    pairs = [(run[key], by_seed.get(run["seed"])) for run in ours]
    pairs = [(a, b) for a, b in pairs if a is not None and b is not None]
    return [a for a, _ in pairs], [b for _, b in pairs]


def shown(runs: Runs) -> list[str]:
    """Entrants in order, of torch's only the best."""
    rates = {name: fmean(values(of, "settled")) for name, of in runs.items() if of}
    best = best_of_torch(list(rates), rates)
    kept = [name for name in rates if not name.startswith("torch-") or name == best]
    return sorted(kept, key=lambda name: -rates[name])


def phase_ratios(runs: Runs, key: str = "settled") -> list[float]:
    """`model` over the oracle, phase by phase."""
    found = []
    for index in range(len(runs[MODEL][0]["phases"])):
        ours, best = (
            fmean(run["phases"][index][key] for run in runs[name]) for name in (MODEL, ORACLE)
        )
        found.append(ours / best if best else 1.0)
    return found


def adapting_times(scenario: Scenario, runs: Runs) -> list[float | None]:
    """Median over seeds of the seconds until `model` was at 95 % of the oracle, phase by phase."""
    found: list[float | None] = []
    for span in spans(scenario):
        wanted = REACHES * fmean(run["phases"][span.index]["settled"] for run in runs[ORACLE])
        times = [adapted_after_s(run["timeline"], span, wanted) for run in runs[MODEL]]
        reached = sorted(float("inf") if t is None else t for t in times)
        middle = reached[len(reached) // 2]
        found.append(None if middle == float("inf") else middle)
    return found


def _mean_threads(runs: list[dict[str, Any]]) -> float | None:
    seen = [p["threads"] for run in runs for p in run["phases"] if p["threads"] is not None]
    return fmean(seen) if seen else None


def most_memory(runs: list[dict[str, Any]]) -> float:
    """MB, of any seed: memory that one run needs has to be there."""
    return float(max(values(runs, "memory_bytes"))) / 1e6


def thread_check(threads: float | None, most: float | None) -> Check:
    """Threads that carry samples, or processes that make batches."""
    what = "threads at most the oracle's and 10 %"
    if threads is None or most is None:
        return Check(what, None, "they were not noted")
    return Check(what, threads <= MORE * most, f"{threads:.1f} against {most:.1f}")


def against_oracle(scenario: Scenario, runs: Runs) -> list[Check]:
    if not runs.get(ORACLE) or not runs.get(MODEL):
        return []
    ratios, times = phase_ratios(runs), adapting_times(scenario, runs)
    late = [t for t in times if t is None or t > ADAPTING_S]
    told = ", ".join("never" if t is None else f"{t / PERIOD_S:.0f}" for t in times)
    checks = [
        Check(
            "at least 95 % of the oracle",
            min(ratios) >= REACHES,
            ", ".join(f"{100 * r:.0f} %" for r in ratios),
        ),
        Check("within 20 periods", not late, f"{told} periods"),
    ]
    checks.append(thread_check(_mean_threads(runs[MODEL]), _mean_threads(runs[ORACLE])))
    memory, limit = most_memory(runs[MODEL]), most_memory(runs[ORACLE])
    told = f"{memory:.0f} against {limit:.0f} MB"
    checks.append(Check("memory at most the oracle's and 10 %", memory <= MORE * limit, told))
    return checks


def is_ahead(theirs: list[dict[str, Any]], ours: list[dict[str, Any]]) -> bool:
    """Faster than `model`, beyond what chance explains; with one seed, beyond 5 %."""
    test = paired(*matched(ours, theirs))
    if test is None:
        return fmean(values(ours, "settled")) < REACHES * fmean(values(theirs, "settled"))
    return bool(test["difference"] + test["half"] < 0)


def against_others(runs: Runs) -> list[Check]:
    if not runs.get(MODEL):
        return []
    ours = runs[MODEL]
    others = [name for name in shown(runs) if name not in (MODEL, ORACLE)]
    ahead = [name for name in others if is_ahead(runs[name], ours)]
    checks = [Check("nobody is ahead", not ahead, ", ".join(ahead) or "nobody")]
    return checks + less_waiting(runs, others)


def wait_a_sample(of: list[dict[str, Any]]) -> float:
    """Seconds waited for each sample: the same training waits so long, whoever is faster."""
    return fmean(values(of, "wait_share")) / max(fmean(values(of, "settled")), 1e-9)


def less_waiting(runs: Runs, others: list[str]) -> list[Check]:
    """Than with the defaults and than peers, where they are waited for and the oracle shows that it can be less."""
    waited = {name: wait_a_sample(of) for name, of in runs.items()}
    shares = {name: fmean(values(of, "wait_share")) for name, of in runs.items()}
    named = [name for name in others if name == FIXED or not name.startswith("penstock")]
    named = [
        n
        for n in named
        if shares[n] > BOTTLENECK and waited.get(ORACLE, 0) <= (1 - LESS_WAIT) * waited[n]
    ]
    if not named:
        return []
    less = {name: 1 - waited[MODEL] / waited[name] for name in named}
    told = ", ".join(f"than {name} {100 * share:.0f} %" for name, share in less.items())
    return [Check("waits at least 30 % less for a sample", min(less.values()) >= LESS_WAIT, told)]


def within_budget(what: str, scenario: dict[str, Any], runs: Runs) -> Check:
    """By their own count, and as seen from outside; who is above is named."""
    budget = scenario["memory_budget"]
    # Batches in the loop's hands have left the budget, and threads have stacks: seen from outside, so much more.
    room = budget + 2 * scenario["batch_bytes"] + 32e6
    counted = {
        name: max(values(of, "budget_peak_bytes"), default=None) for name, of in runs.items()
    }
    seen = {name: max(values(of, "memory_bytes")) for name, of in runs.items()}
    above = [name for name in runs if (counted[name] or 0) > budget or seen[name] > room]
    told = f"{max(seen.values()) / 1e6:.0f} MB seen, {room / 1e6:.0f} allowed"
    known = [one for one in counted.values() if one is not None]
    if known:
        told = f"{max(known) / 1e6:.0f} MB by its own count, {budget / 1e6:.0f} allowed; {told}"
    if above:
        return Check(what, False, f"{told}; above: {', '.join(above)}")
    return Check(what, True if len(known) == len(runs) else None, told)


def budget_checks(scenario: dict[str, Any], runs: Runs) -> list[Check]:
    """`model`, and apart from it whoever else is ours."""
    if not scenario["memory_budget"]:
        return []
    ours = {name: of for name, of in runs.items() if name.startswith("penstock") and of}
    parts = (
        ("memory within the budget", {n: of for n, of in ours.items() if n == MODEL}),
        ("memory of other policies within it", {n: of for n, of in ours.items() if n != MODEL}),
    )
    return [within_budget(what, scenario, part) for what, part in parts if part]


def control_check(runs: list[dict[str, Any]]) -> Check:
    """Nobody controls for nothing: no time at all was not measured, as once that of worker processes."""
    shares = [share for share in values(runs, "control_cores") if share]
    what = "control below 1 % of a core"
    if len(shares) < len(runs):
        return Check(what, None, "it was not measured")
    return Check(what, max(shares) < CONTROL, f"{100 * max(shares):.2f} %")


def stream_check(scenario: dict[str, Any]) -> Check | None:
    """Batches of worker processes whose knobs nobody turned show nothing."""
    verified = scenario.get("verified") or {}
    if "equal" not in verified:
        problem = verified.get("problem")
        return Check("the stream of one thread", None, str(problem)) if verified else None
    says_little = scenario["data"] in PYTHON_ITEMS and not verified["changes"]
    told = f"{verified['batches']} batches, {verified['changes']} changes of knobs"
    holds = None if verified["equal"] and says_little else verified["equal"]
    return Check("the stream of one thread", holds, told)


def limits(scenario: dict[str, Any], runs: Runs) -> list[Check]:
    """What no run of ours may do."""
    checks = budget_checks(scenario, runs)
    if runs.get(MODEL):
        checks.append(control_check(runs[MODEL]))
    stream = stream_check(scenario)
    return [*checks, stream] if stream else checks


def read_scenario(stored: dict[str, Any]) -> Scenario:
    """The scenario as it was run."""
    phases = tuple(Phase(**phase) for phase in stored["phases"])
    return Scenario(stored["name"], stored["title"], phases, stored["data"], stored["step_ms"])


def findings(stored: dict[str, Any]) -> list[Check]:
    runs: Runs = {name: of for name, of in stored["runs"].items() if of}
    scenario = read_scenario(stored)
    return against_oracle(scenario, runs) + against_others(runs) + limits(stored, runs)


def tests(runs: Runs) -> dict[str, Any]:
    """Paired t-tests of `model` with each of the others, and ANOVA over policies."""
    ours = runs.get(MODEL, [])
    pairs = {name: paired(*matched(ours, of)) for name, of in runs.items() if name != MODEL}
    groups = [values(runs[name], "settled") for name in POLICIES if runs.get(name)]
    return {"paired": pairs, "anova": anova(groups)}


def row(runs: Runs, name: str) -> dict[str, Any]:
    """An entrant's line of the table."""
    of = runs[name]
    settled = summary(values(of, "settled"))
    best = fmean(values(runs[ORACLE], "settled")) if runs.get(ORACLE) else None
    phases = [phase for run in of for phase in run["phases"]]
    return {
        "name": name,
        **settled,
        "of_oracle": settled["mean"] / best if best else None,
        "adapting": fmean(phase["adapting"] for phase in phases),
        "wait_share": fmean(values(of, "wait_share")),
        **{key: median(phase[key] for phase in phases) for key in ("p50_ms", "p95_ms", "p99_ms")},
        "memory_mb": most_memory(of),
        "threads": _mean_threads(of),
        "os_threads": max(values(of, "os_threads")),
        "processes": max(values(of, "processes")),
        "cores": fmean(values(of, "cpu_cores")),
        "control": max(values(of, "control_cores"), default=None),
        "other_cores": fmean(values(of, "other_cores")),
    }
