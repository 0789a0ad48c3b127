"""How many cores and how much memory this process may use: the machine's, or its cgroup's share.

A quota of cores counts together with those of the groups above, so the least on the way from our
own group up to the root is taken.  A process that is moved to another group later is not followed.
"""

import math
import os
from collections.abc import Iterator
from pathlib import Path


def usable_cores(root: Path = Path("/")) -> int:
    """Those that we may run on, or as many as the quota of processor time amounts to, if less."""
    quotas = (quota for folder in _cpu_groups(root) for quota in (_quota_v2(folder), _quota_v1(folder)))  # fmt: skip
    return max(1, math.ceil(min([float(len(os.sched_getaffinity(0))), *quotas])))


def _cpu_groups(root: Path) -> Iterator[Path]:
    """Folders of our groups, each with those above it.  In a container a path may be the host's,
    and not be there; the mount's own folder is the container's then."""
    paths = {"": "", "cpu": ""}
    for line in _text(root / "proc/self/cgroup").split("\n"):
        names, _, path = line.partition(":")[2].partition(":")  # "4:cpu,cpuacct:/a/b", "0::/a/b"
        for name in names.split(","):
            if name in paths and path:
                paths[name] = path
    mounts = {"sys/fs/cgroup": "", "sys/fs/cgroup/unified": "", "sys/fs/cgroup/cpu": "cpu"}
    for mount, name in mounts.items():
        parts = [part for part in paths[name].split("/") if part]
        for n in range(len(parts), -1, -1):
            yield root.joinpath(mount, *parts[:n])


def _quota_v2(folder: Path) -> float:
    """cpu.max: "max 100000" or "150000 100000"."""
    quota, _, period = _text(folder / "cpu.max").partition(" ")
    return _ratio(quota, period)


def _quota_v1(folder: Path) -> float:
    """A quota of -1 is none."""
    return _ratio(_text(folder / "cpu.cfs_quota_us"), _text(folder / "cpu.cfs_period_us"))


def _ratio(quota: str, period: str) -> float:
    try:
        cores = int(quota) / int(period)
    except (ValueError, ZeroDivisionError, OverflowError):
        return math.inf
    return cores if cores > 0 else math.inf


def _text(path: Path) -> str:
    """The start of a file; empty if there is none."""
    try:
        with path.open("rb") as file:
            return file.read(16384).decode("utf-8", "surrogateescape")
    except (OSError, ValueError):
        return ""


def usable_memory() -> int:
    """Bytes that could be had now: the machine's, or the cgroup's if that is less."""
    found = 1 << 62
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            found = int(line.split()[1]) << 10
    for limit, used in (
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        (
            "/sys/fs/cgroup/memory/memory.limit_in_bytes",
            "/sys/fs/cgroup/memory/memory.usage_in_bytes",
        ),
    ):
        try:
            found = min(found, int(Path(limit).read_text()) - int(Path(used).read_text()))
        except (OSError, ValueError):
            continue
    return max(found, 64 << 20)
