"""What both ends remember: indexes and profiles, apart for storage and compute as on two machines, and the same before
every run, whatever ran before it.

Epochs that go before everything fill both directories, one for each policy that plans by what it has learned; a copy is
kept for each data set and policy, and every run begins with such a copy. So no run gains by what another came to
know, none lacks what its own policy would know by then, and the order of runs means nothing.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from bench.datasets import cache_root

STORAGE, COMPUTE, LOCAL = "storage", "compute", "local"  # the last: reads the files in place
_ENDS = (STORAGE, COMPUTE)
_ABOUT = "about.json"


def live(site: str, lane: int = 0) -> Path:
    """Where a site's programs keep theirs while they run; each of several runs at once has a lane of its own."""
    folder = cache_root() / "offload" / (f"{site}-{lane}" if lane else site)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def clear(lane: int = 0) -> None:
    """Nothing is known at either end."""
    for site in _ENDS:
        shutil.rmtree(live(site, lane))
        live(site, lane)


def _kept(data: str, policy: str) -> Path:
    return cache_root() / "offload" / "kept" / f"{data}-{policy}"


def keep(data: str, policy: str, about: dict[str, Any]) -> None:
    """What both ends know now is what runs of a data set begin with; `about` says where it comes from."""
    target = _kept(data, policy)
    part = target.with_name(target.name + ".part")  # never half a copy
    shutil.rmtree(part, ignore_errors=True)
    for site in _ENDS:
        shutil.copytree(live(site), part / site)
    (part / _ABOUT).write_text(json.dumps(about))
    shutil.rmtree(target, ignore_errors=True)
    part.rename(target)


def kept_about(data: str, policy: str) -> dict[str, Any]:
    """What was said when it was kept; nothing if nothing was."""
    try:
        found: dict[str, Any] = json.loads((_kept(data, policy) / _ABOUT).read_text())
    except (OSError, json.JSONDecodeError):
        return {}
    return found


def restore(data: str, policy: str, lane: int = 0) -> None:
    """Both ends know what was kept for a data set and a policy, and nothing else."""
    clear(lane)
    for site in _ENDS:
        shutil.copytree(_kept(data, policy) / site, live(site, lane), dirs_exist_ok=True)
