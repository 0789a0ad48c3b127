"""How many cores and how much memory this process may use: the machine's, or its cgroup's share.

A limit counts together with those of the groups above (a systemd slice, a Slurm job), so the least
on the way from our own group up to the root is taken, as src/telemetry/limits.c does.  A process
that is moved to another group later is not followed.

What a group has left is its limit without what it cannot give back.  Page cache it can: reading a
dataset fills a group up to its limit with that, and the kernel drops it for whoever needs memory.
"""

import math
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

_LATELY_NS = 400_000_000  # as src/engine/control.c
_lately = (0, 0)  # cores, and until when that holds
_PAGE = os.sysconf("SC_PAGE_SIZE")
_LEAST_BYTES = 64 << 20  # said in any case: less makes no batch
_UNKNOWN_BYTES = 1 << 30  # where nobody tells


def usable_cores(root: Path = Path("/")) -> int:
    """Those that we may run on, or as many as the quota of processor time amounts to, if less."""
    quotas = (quota for folder in groups(root, "cpu") for quota in (_quota_v2(folder), _quota_v1(folder)))  # fmt: skip
    return max(1, math.ceil(min([float(len(os.sched_getaffinity(0))), *quotas])))


def cores_lately() -> int:
    """usable_cores(), no older than 400 ms: for who asks again and again."""
    global _lately
    now = time.monotonic_ns()
    if now >= _lately[1]:
        _lately = usable_cores(), now + _LATELY_NS
    return _lately[0]


def resident_of(pids: Iterable[int]) -> int | None:
    """Bytes of these processes, pages that several have counted in each; None: nobody tells."""
    try:
        return sum(int(Path(f"/proc/{pid}/statm").read_bytes().split()[1]) for pid in pids) * _PAGE
    except (OSError, ValueError, IndexError):
        return None


def memory_of(pids: Iterable[int]) -> int | None:
    """Bytes of these processes, pages that several have counted in parts; None: nobody tells.  The
    kernel looks at every page for that, milliseconds where there are many."""
    total = 0
    for pid in pids:
        try:
            text = Path(f"/proc/{pid}/smaps_rollup").read_text()
            total += int(text.partition("\nPss:")[2].split(maxsplit=1)[0]) << 10
        except (OSError, ValueError, IndexError):
            return None
    return total


def usable_memory(root: Path = Path("/")) -> int:
    """Bytes that could be had now: the machine's, or what the tightest of our groups has left."""
    found = memory_left(root)
    return _UNKNOWN_BYTES if found == math.inf else max(int(found), _LEAST_BYTES)


def memory_left(root: Path = Path("/")) -> float:
    """The same as it is, be it nothing; infinite where nobody tells."""
    return min([_machine_has(root), *(_group_has(folder) for folder in groups(root, "memory"))])


def groups(root: Path, controller: str) -> Iterator[Path]:
    """Folders of our groups, each with those above it.  In a container a path may be the host's,
    and not be there; the mount's own folder is the container's then."""
    paths = {"": "", controller: ""}
    for line in _text(root / "proc/self/cgroup").split("\n"):
        names, _, path = line.partition(":")[2].partition(":")  # "4:cpu,cpuacct:/a/b", "0::/a/b"
        for name in names.split(","):
            if name in paths and path:
                paths[name] = path
    mounts = ("sys/fs/cgroup", ""), ("sys/fs/cgroup/unified", ""), (f"sys/fs/cgroup/{controller}", controller)  # fmt: skip
    for mount, name in mounts:
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


def _machine_has(root: Path) -> float:
    """MemAvailable; of kernels before it (3.14), all that there is."""
    values = _values(_text(root / "proc/meminfo"))
    kib = _count(values.get("MemAvailable:", values.get("MemTotal:", "")))
    return math.inf if kib is None else kib << 10


def _group_has(folder: Path) -> float:
    """A group above its limit has nothing left."""
    files = "memory.max", "memory.high", "memory.limit_in_bytes"
    limits = [count for name in files if (count := _count(_text(folder / name)))]
    if not limits:
        return math.inf
    used = _count(_text(folder / "memory.current") or _text(folder / "memory.usage_in_bytes"))
    return max(0, min(limits) - max(0, (used or 0) - _file_pages(folder)))


def _file_pages(folder: Path) -> int:
    """Page cache that can be dropped; files in memory (tmpfs) are no part of it.  v1 lists a group
    alone and, with "total_", its whole subtree, which is what counts."""
    values = _values(_text(folder / "memory.stat"))
    for prefix in ("total_", ""):
        inactive = _count(values.get(f"{prefix}inactive_file", ""))
        active = _count(values.get(f"{prefix}active_file", ""))
        if inactive is not None and active is not None:
            return inactive + active
    return 0


def _values(text: str) -> dict[str, str]:
    """Lines of a name and a number; a unit behind it is left out."""
    lines = (line.split() for line in text.split("\n"))
    return {words[0]: words[1] for words in lines if len(words) > 1}


def _count(text: str) -> int | None:
    """None for "max" and for what is no number, nor one that memory can have: v1 has no word for
    "no limit", and shows the largest number of whole pages."""
    digits = text.strip()
    is_count = digits.isascii() and digits.isdigit() and len(digits) < 16
    return int(digits) if is_count else None
