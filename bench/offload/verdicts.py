"""From runs to findings: what each policy sends and how long it takes beside `none`, and what was to be shown."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

from bench.common import Check
from bench.offload.grid import BASELINE, OURS, PAPER, all_runs
from bench.stats import summary

WITHIN = 1.03  # of the best policy's time
IDLE_LOSS, IDLE_BYTES = 1.02, 0.99
BUSY_LINK = 0.9  # of its rate, headers included: the link is what everybody waits for
# Data set: less traffic and less time than `none`, at least, on a link that stays the bottleneck.
WANTED = {"imagenet": (2.6, 2.0), "photos": (5.8, 4.0)}
# SOPHON (HotStorage '24, doi 10.1145/3655038.3665947): times less traffic on its own data, which ours resembles.
PAPER_TRAFFIC = {"imagenet": (1.2, "ImageNet"), "photos": (2.2, "OpenImages")}
NEAR_PAPER = 0.15  # how far from the paper's `sophon` may be: other files

Stored = dict[str, Any]


def runs_of(stored: Stored, policy: str) -> dict[str, dict[str, Any]]:
    """By seed."""
    found: dict[str, dict[str, Any]] = stored["runs"].get(policy, {})
    return found


def of_sample(stored: Stored, run: dict[str, Any], figure: str) -> float:
    """A figure of a run, a sample. Where few batches were counted, some of which came together, their pace may be
    faster than the link could bring them: then the time is the link's."""
    value: float = run[figure]
    if figure == "seconds":
        value = max(value, run["bytes"] * 8e-6 / stored["cell"]["link"])
    return value / run["samples"]


def ratios(stored: Stored, policy: str, figure: str, base: str = BASELINE) -> list[float]:
    """How many times less a sample than `base`, seed by seed: the same samples and the same crops, or some of them."""
    theirs, ours = (
        {seed: of_sample(stored, run, figure) for seed, run in of.items() if figure in run}
        for of in (runs_of(stored, base), runs_of(stored, policy))
    )
    return [theirs[seed] / ours[seed] for seed in sorted(ours) if seed in theirs]


def per_sample(stored: Stored, policy: str, figure: str) -> float:
    """Mean over seeds."""
    return fmean(of_sample(stored, run, figure) for run in runs_of(stored, policy).values())


def link_mbit(stored: Stored, policy: str) -> float:
    """What crossed the link, Mbit/s."""
    return fmean(run["bytes"] * 8e-6 / run["elapsed_s"] for run in runs_of(stored, policy).values())


def shown(found: dict[str, Any] | None, digits: int = 2) -> str:
    """A mean, and half the width of its interval where there is one."""
    if found is None:
        return "-"
    half = "" if found["half"] is None else f" ± {found['half']:.{digits}f}"
    return f"{found['mean']:.{digits}f}{half}"


def row(stored: Stored, policy: str, images: int) -> dict[str, Any]:
    """A policy's line of a cell's table."""
    runs = runs_of(stored, policy).values()
    traffic, speed = (ratios(stored, policy, figure) for figure in ("bytes", "seconds"))
    settled = [run["settled_s"] for run in runs if "settled_s" in run]
    cold = [run["cold_s"] for run in runs if "cold_s" in run and run["samples"] == images]
    return {
        "policy": policy,
        "samples": max(run["samples"] for run in runs),
        "kb": per_sample(stored, policy, "bytes") / 1e3,
        "traffic": summary(traffic) if traffic else None,
        "epoch_s": per_sample(stored, policy, "seconds") * images,
        "speed": summary(speed) if speed else None,
        "cold_s": fmean(cold) if cold else None,
        "storage_ms": 1e3 * per_sample(stored, policy, "storage_cpu_s"),
        "compute_ms": 1e3 * per_sample(stored, policy, "compute_cpu_s"),
        "wait": fmean(run["wait_s"] / run["elapsed_s"] for run in runs),
        "link_mbit": link_mbit(stored, policy),
        "settled_s": fmean(settled) if settled else None,
        "first_s": fmean(run["first_batch_s"] for run in runs),
        "equal": sum(run["equal"] is True for run in runs),
        "runs": len(runs),
    }


def times(stored: Stored) -> dict[str, float]:
    """Seconds a sample of each policy that ran."""
    return {p: per_sample(stored, p, "seconds") for p, of in stored["runs"].items() if of}


def best(stored: Stored) -> str | None:
    """The policy that was fastest."""
    found = times(stored)
    return min(found, key=lambda policy: found[policy], default=None)


def best_other(stored: Stored) -> str | None:
    """The fastest policy beside `auto`."""
    others = {policy: seconds for policy, seconds in times(stored).items() if policy != OURS}
    return min(others, key=others.__getitem__, default=None)


def behind(stored: Stored) -> float | None:
    """`auto`'s time over that of the best other policy; None where either is missing."""
    found, rival = times(stored), best_other(stored)
    return found[OURS] / found[rival] if OURS in found and rival else None


@dataclass(frozen=True)
class Judged:
    """How far `auto` is behind the best other policy in a cell; ahead is below 1."""

    plain: float  # mean time over mean time: this alone decides
    pairs: dict[str, Any] | None  # the mean of the common seeds' ratios, and its 95 % interval

    @property
    def is_within(self) -> bool:
        """The 3 %."""
        return self.plain <= WITHIN

    @property
    def is_told_apart(self) -> bool | None:
        """Whether the whole interval is on the same side of the limit; None: there is no interval."""
        if self.pairs is None or self.pairs["half"] is None:
            return None
        far, half = self.pairs["mean"] - WITHIN, self.pairs["half"]
        return bool(far + half <= 0 if self.is_within else far - half > 0)


def judge(stored: Stored) -> Judged | None:
    """`auto` beside the best other policy; None where either is missing."""
    plain, rival = behind(stored), best_other(stored)
    if plain is None or rival is None:
        return None
    pairs = ratios(stored, rival, "seconds", OURS)
    return Judged(plain, summary(pairs) if pairs else None)


def of_kind(report: dict[str, Any], kind: str) -> dict[str, Stored]:
    """Cells of an experiment that ran."""
    return {
        key: stored
        for key, stored in report["cells"].items()
        if stored["cell"]["kind"] == kind and any(stored["runs"].values())
    }


def _first(report: dict[str, Any], stored: Stored) -> str:
    """How many times less time the first epoch of `auto` took than epochs of `none`, who has nothing to learn."""
    cold_s = report.get("first", {}).get(f"{stored['cell']['data']}/{OURS}")
    theirs = [run["cold_s"] for run in runs_of(stored, BASELINE).values() if "cold_s" in run]
    if not cold_s or not theirs:
        return ""
    return f"; {fmean(theirs) / cold_s:.2f} in its very first epoch, nothing known at either end"


def headline(report: dict[str, Any], stored: Stored) -> list[Check]:
    """Traffic and time where the link is what is slow; `sophon` beside the paper's."""
    data, checks = stored["cell"]["data"], []
    traffic, speed = WANTED.get(data, (None, None))
    for what, figure, least, more in (
        ("traffic", "bytes", traffic, ""),
        ("time", "seconds", speed, ""),
        ("time from a cold start", "cold_s", speed, _first(report, stored)),
    ):
        found = ratios(stored, OURS, figure)
        if found:
            told = f"{shown(summary(found))} times{more}"
            holds = None if least is None else fmean(found) >= least
            goal = f" at least {least:g} times" if least else ""
            checks.append(Check(f"{data}: {what}{goal} less than {BASELINE}", holds, told))
    if runs_of(stored, OURS):
        busy = link_mbit(stored, OURS) / stored["cell"]["link"]
        what = f"{data}: the link stays the bottleneck under {OURS}"
        checks.append(Check(what, busy >= BUSY_LINK, f"{100 * busy:.0f} % of it in use"))
    theirs = ratios(stored, PAPER, "bytes")
    if theirs and data in PAPER_TRAFFIC:
        reported, name = PAPER_TRAFFIC[data]
        is_near = abs(fmean(theirs) / reported - 1) <= NEAR_PAPER
        told = f"{shown(summary(theirs))} times, the paper {reported:g} on {name}"
        checks.append(Check(f"{data}: {PAPER} near the paper's", is_near, told))
    return checks


def storage_cores(stored: Stored, policy: str) -> float:
    """Processor time a second that the node's process used."""
    runs = runs_of(stored, policy).values()
    return fmean(run["storage_cpu_s"] / run["seconds"] for run in runs)


def _files_alone(ample: Stored) -> str:
    """What the node takes where it sends files as they are: of a tenth not all is left for offloading."""
    if not runs_of(ample, BASELINE):
        return ""
    cores, ms = storage_cores(ample, BASELINE), per_sample(ample, BASELINE, "storage_cpu_s") * 1e3
    return f"; to send files alone took {cores:.3f} cores, {ms:.2f} ms a sample ({BASELINE})"


def tenth(report: dict[str, Any], stored: Stored) -> list[Check]:
    """With a tenth of the CPU `auto` still sends less than `sophon` with all of it, both at once."""
    data = stored["cell"]["data"]
    pairs = ratios(stored, OURS, "bytes", PAPER)
    if not pairs:
        return []
    found = summary(pairs)
    ours, theirs = (per_sample(stored, policy, "bytes") / 1e3 for policy in (OURS, PAPER))
    quota = fmean(run["quota"] for run in runs_of(stored, OURS).values())
    ample = report["cells"].get(f"headline/{data}")
    alone = _files_alone(ample) if ample else ""
    told = (
        f"{shown(found)} times less ({_counted(stored, len(pairs))}): {ours:.1f} against {theirs:.1f} KB a sample, "
        f"{quota:.4f} cores{alone}"
    )
    if found["half"] is not None and abs(found["mean"] - 1) <= found["half"]:
        told += "; the interval does not tell them apart"
    what = f"{data}: a tenth of the CPU, and still less traffic than {PAPER} with all"
    return [Check(what, found["mean"] > 1, told)]


def _counted(stored: Stored, n_seeds: int) -> str:
    """How many runs a mean is of, and whether what it compares ran under the same conditions."""
    if not stored["cell"].get("is_beside"):
        return f"{n_seeds} seeds, one run after another" if n_seeds > 1 else "one seed"
    return f"{n_seeds} pairs, both at once" if n_seeds > 1 else "one pair"


def _lost(stored: Stored, why: str) -> list[Check]:
    """Whether `auto` keeps up with `none` where the network is not what is slow, and what it sends."""
    if not ratios(stored, OURS, "seconds"):
        return []
    time, sent = (
        summary([100 / ratio for ratio in ratios(stored, OURS, figure)])
        for figure in ("seconds", "bytes")
    )
    what = f"{stored['cell']['data']}: not bound by I/O but by {why}"
    told = f"{shown(sent, 1)} % of the bytes of {BASELINE}"
    half = time["half"]
    is_apart = half is not None and abs(time["mean"] - 100 * IDLE_LOSS) > half
    unsure = "" if is_apart else ", which does not tell it apart from 2 %"
    of = _counted(stored, len(ratios(stored, OURS, "seconds")))
    return [
        Check(
            f"{what}, {OURS} loses less than 2 %",
            time["mean"] < 100 * IDLE_LOSS,
            f"{shown(time, 1)} % of its time ({of}){unsure}, {told}",
        ),
        Check(f"{what}, {OURS} offloads nothing", sent["mean"] > 100 * IDLE_BYTES, told),
    ]


def idle(stored: Stored) -> list[Check]:
    """A job that waits for its device."""
    return _lost(stored, "its device")


def client(stored: Stored) -> list[Check]:
    """A job that waits for its own processor."""
    return _lost(stored, "its own processor")


def grid(cells: dict[str, Stored]) -> list[Check]:
    """Everywhere within 3 % of the best policy, or ahead."""
    found = {key: of for key, stored in cells.items() if (of := judge(stored)) is not None}
    if not found:
        return []
    n_within = sum(of.is_within for of in found.values())
    unsure = [of.is_within for of in found.values() if of.is_told_apart is False]
    n_alone = sum(of.is_told_apart is None for of in found.values())
    worst = max(found, key=lambda key: found[key].plain)
    told = (
        f"{n_within} of {len(found)}; not told apart from 3 % are {sum(unsure)} of those within and "
        f"{len(unsure) - sum(unsure)} of those beyond, {n_alone} have no interval; "
        f"at worst {found[worst].plain:.3f} of the best other's time, {worst}"
    )
    what = f"{OURS} within 3 % of the best policy in every cell"
    return [Check(what, n_within == len(found), told)]


def same_batches(report: dict[str, Any]) -> list[Check]:
    """Every batch of every run is that of the local stream."""
    runs = list(all_runs(report))
    if not runs:
        return []
    equal, known = (sum(run["equal"] is value for run in runs) for value in (True, None))
    holds = False if equal + known < len(runs) else (True if equal == len(runs) else None)
    return [Check("batches equal the local stream's", holds, f"{equal} of {len(runs)} runs")]


def settling(report: dict[str, Any]) -> dict[str, Any] | None:
    """How long `auto` took to find its share, over all runs, and in how many that was before anything counted."""
    runs = [
        run
        for stored in report["cells"].values()
        for run in runs_of(stored, OURS).values()
        if "settled_s" in run
    ]
    if not runs:
        return None
    return {
        "median_s": median(run["settled_s"] for run in runs),
        "longest_s": max(run["settled_s"] for run in runs),
        "before": sum(run["settled_s"] <= run["warm_s"] for run in runs),
        "runs": len(runs),
    }


def warm_up(report: dict[str, Any], policies: tuple[str, ...]) -> tuple[float, float] | None:
    """The shortest and the longest time before anything counted, seconds, start included."""
    found = [
        run["warm_s"]
        for stored in report["cells"].values()
        for policy in policies
        for run in runs_of(stored, policy).values()
        if "warm_s" in run
    ]
    return (min(found), max(found)) if found else None


def findings(report: dict[str, Any]) -> list[Check]:
    checks = same_batches(report)
    for stored in of_kind(report, "headline").values():
        checks += headline(report, stored)
    for stored in of_kind(report, "tenth").values():
        checks += tenth(report, stored)
    for stored in of_kind(report, "idle").values():
        checks += idle(stored)
    for stored in of_kind(report, "client").values():
        checks += client(stored)
    return checks + grid(of_kind(report, "grid"))
