"""Means with their intervals, paired t-tests, and one-way analysis of variance; None where there are too few."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, stdev
from typing import Any

from scipy import stats


def summary(values: Sequence[float]) -> dict[str, Any]:
    """Mean, deviation, and the half width of the mean's 95 % interval (Student's)."""
    mean, n = fmean(values), len(values)
    if n < 2:
        return {"n": n, "mean": mean, "deviation": None, "half": None}
    deviation = stdev(values)
    half = float(stats.t.ppf(0.975, n - 1)) * deviation / n**0.5
    return {"n": n, "mean": mean, "deviation": deviation, "half": half}


def paired(ours: Sequence[float], theirs: Sequence[float]) -> dict[str, Any] | None:
    """Mean difference, its 95 % interval and the two-sided p; pairs are runs of the same seed."""
    if len(ours) != len(theirs) or len(ours) < 2:
        return None
    differences = [a - b for a, b in zip(ours, theirs, strict=True)]
    found = summary(differences)
    if found["deviation"] == 0:
        return {"difference": found["mean"], "half": 0.0, "p": 1.0 if found["mean"] == 0 else 0.0}
    p = float(stats.ttest_rel(ours, theirs).pvalue)
    return {"difference": found["mean"], "half": found["half"], "p": p}


def anova(groups: Sequence[Sequence[float]]) -> dict[str, Any] | None:
    """F and p of "all policies are alike"."""
    groups = [group for group in groups if len(group) >= 2]
    if len(groups) < 2 or all(stdev(group) == 0 for group in groups):
        return None
    found = stats.f_oneway(*groups)
    return {"f": float(found.statistic), "p": float(found.pvalue), "groups": len(groups)}
