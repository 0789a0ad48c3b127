"""Many jobs on one store: they share its link and its processors, each with a host and a device of its own.

The link is shared evenly, and what one does not need goes to the others. Of the processors each job has a fair minimum
if it can use it; the rest goes where a second of it saves most bytes, which is a price that all jobs see:
each climbs its ladder as long as a step gains more than the price. All jobs run all the time (nobody has finished
yet), so shares are those of a steady state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from bench.offload.planning import Job, Ladder, Outcome, Site, outcome

FAIR = 0.5  # of an even share: what each job has at least
_ROUNDS = 60
_CLOSE = 1e-4


@dataclass(frozen=True)
class Tenant:
    """A job, its policy and what it has for itself; its site's link and storage are the whole store's."""

    job: Job
    policy: str
    site: Site


def share_link(demands: Sequence[float], capacity: float) -> list[float]:
    """Evenly, as far as each can use it; what is left over goes evenly to all, so that nobody is without."""
    shares, left, todo = [0.0] * len(demands), capacity, len(demands)
    for index in sorted(range(len(demands)), key=lambda i: demands[i]):
        shares[index] = min(demands[index], left / todo)
        left -= shares[index]
        todo -= 1
    return [share + left / len(demands) for share in shares]


def cores_at(ladder: Ladder, site: Site) -> np.ndarray:
    """Storage cores that a job keeps busy at every place of its ladder, were there enough of them."""
    device, host, storage, network = ladder.stages(replace(site, storage_cores=1.0))
    pace = np.maximum.reduce([device, host, network])
    return np.asarray(storage / np.maximum(pace, 1e-12))


def wanted_place(ladder: Ladder, site: Site) -> int:
    """How far a job would go if the storage had endless cores."""
    return ladder.place(replace(site, storage_cores=1e12))


def share_cores(
    ladders: Sequence[Ladder], sites: Sequence[Site], cores: float, fair: float = FAIR
) -> list[float]:
    """By bytes saved per second, with a fair minimum; what is left over goes to those who want more, else evenly."""
    most = [wanted_place(ladder, site) for ladder, site in zip(ladders, sites, strict=True)]
    busy = [cores_at(ladder, site) for ladder, site in zip(ladders, sites, strict=True)]
    wants = [float(of[k]) for of, k in zip(busy, most, strict=True)]
    least = [min(want, fair * cores / len(ladders)) for want in wants]

    def at_price(price: float) -> list[float]:
        places = [
            min(k, int(np.searchsorted(-ladder.gains, -price, side="right")))
            for ladder, k in zip(ladders, most, strict=True)
        ]
        return [max(low, float(of[k])) for low, of, k in zip(least, busy, places, strict=True)]

    gains = np.concatenate([ladder.gains for ladder in ladders])
    prices = np.append(np.sort(gains), np.inf)  # at the last nobody climbs
    low, high = 0, len(prices) - 1
    while low < high:  # the lowest price that all can be served at
        middle = (low + high) // 2
        if sum(at_price(prices[middle])) <= cores:
            high = middle
        else:
            low = middle + 1
    shares = at_price(prices[low])
    if low:  # a step below not all can be served: those that would climb there share what is left
        shares = _towards(shares, at_price(prices[low - 1]), cores)
    return _with_rest(shares, wants, cores)


def _towards(shares: list[float], more: list[float], cores: float) -> list[float]:
    rest = cores - sum(shares)
    wanted = [above - share for above, share in zip(more, shares, strict=True)]
    if rest <= 0 or sum(wanted) <= rest:
        return shares
    return [s + rest * w / sum(wanted) for s, w in zip(shares, wanted, strict=True)]


def _with_rest(shares: list[float], wants: list[float], cores: float) -> list[float]:
    total = sum(shares)
    if total >= cores:  # raw files alone take more than there is
        return [share * cores / total for share in shares]
    unmet = [max(0.0, want - share) for want, share in zip(wants, shares, strict=True)]
    rest = cores - total
    given = min(rest, sum(unmet))
    if given:
        shares = [s + given * u / sum(unmet) for s, u in zip(shares, unmet, strict=True)]
    return [share + (rest - given) / len(shares) for share in shares]


def _demand(of: Ladder, site: Site) -> float:
    """Bytes a second that a job would take if the link had no end."""
    k = of.place(site)
    device, host, storage, _ = (float(stage[k]) for stage in of.stages(site))
    return float(of.size[k]) / max(device, host, storage, 1e-12)


def run_together(tenants: Sequence[Tenant], link: float, cores: float) -> list[Outcome]:
    """Everybody's epoch, shares such that nobody's need changes them any more."""
    n = len(tenants)
    links, shares = [link / n] * n, [cores / n] * n
    for _ in range(_ROUNDS):
        sites = [
            replace(tenant.site, link=b, storage_cores=c)
            for tenant, b, c in zip(tenants, links, shares, strict=True)
        ]
        ladders = [t.job.ladder(t.policy, site) for t, site in zip(tenants, sites, strict=True)]
        next_shares = share_cores(ladders, sites, cores)
        demands = [_demand(of, site) for of, site in zip(ladders, sites, strict=True)]
        next_links = share_link(demands, link)
        # Half way each time: shares and needs that chase each other settle.
        moved = max(
            max(abs(a - b) / link for a, b in zip(links, next_links, strict=True)),
            max(abs(a - b) / cores for a, b in zip(shares, next_shares, strict=True)),
        )
        links = [(a + b) / 2 for a, b in zip(links, next_links, strict=True)]
        shares = [(a + b) / 2 for a, b in zip(shares, next_shares, strict=True)]
        if moved < _CLOSE:
            break
    sites = [
        replace(tenant.site, link=b, storage_cores=c)
        for tenant, b, c in zip(tenants, links, shares, strict=True)
    ]
    return [outcome(t.job.ladder(t.policy, s), s) for t, s in zip(tenants, sites, strict=True)]
