"""Processor time of this process, of those below it and of all that compete with it, and how long
some task waited for storage.

Counted is what concerns us: of the cores, those that this process may run on; of storage, what our
control group waits for, or one above it.  What the kernel does not tell here is None.
"""

import os
import re
import time
from dataclasses import dataclass
from pathlib import Path

from penstock.workers.limits import groups

ROOT = Path("/")
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Usage:
    """Seconds since some beginning, each."""

    at: float
    main: float  # processor time of this process
    workers: float | None  # and of the processes below it, also of those that have ended
    busy: dict[int, float] | None  # of everybody, by the cores that we may run on
    io_stalled: float | None  # in which some task waited for storage (PSI)


@dataclass(frozen=True)
class Load:
    """Between two usages.  Cores: how many were busy on average."""

    main_cores: float
    worker_cores: float | None
    other_cores: float | None  # that others take of those that we might use
    io_share: float | None

    @classmethod
    def between(cls, before: Usage, after: Usage, n_usable: int) -> "Load":
        """`n_usable`: as many cores may be busy for us at once."""
        span = max(after.at - before.at, 1e-9)
        main = (after.main - before.main) / span
        workers = _difference(before.workers, after.workers, span)
        other = None
        if workers is not None and before.busy is not None and after.busy is not None:
            cores = before.busy.keys() & after.busy.keys()
            everyone = sum(after.busy[core] - before.busy[core] for core in cores) / span
            # Where a quota allows us fewer cores than there are, others may have the rest.
            n_spare = max(0, len(cores) - n_usable)
            other = max(0.0, everyone - main - workers - n_spare)
        return cls(main, workers, other, _difference(before.io_stalled, after.io_stalled, span))


def _difference(before: float | None, after: float | None, span: float) -> float | None:
    return None if before is None or after is None else (after - before) / span


def usage_now(root: Path = ROOT) -> Usage:
    times = os.times()
    living = _below(root, os.getpid())
    return Usage(
        at=time.monotonic(),
        main=times.user + times.system,
        workers=None if living is None else times.children_user + times.children_system + living,
        busy=_busy(root),
        io_stalled=_io_stalled(root),
    )


def _below(root: Path, pid: int) -> float | None:
    """Of living descendants; those that have ended are counted with their parents."""
    if not (root / f"proc/{pid}/task/{pid}/children").exists():  # CONFIG_PROC_CHILDREN
        return None
    total = 0.0
    waiting = _children(root, pid)
    while waiting:
        child = waiting.pop()
        total += _cpu_of(root, child)
        waiting += _children(root, child)
    return total


def _children(root: Path, pid: int) -> list[int]:
    found: list[int] = []
    try:
        for task in (root / f"proc/{pid}/task").iterdir():
            found += map(int, (task / "children").read_text().split())
    except OSError:  # it has ended
        pass
    return found


def _cpu_of(root: Path, pid: int) -> float:
    try:
        # The name, in brackets, may hold anything; utime, stime, cutime, cstime are 12 fields on.
        fields = (root / f"proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) / TICKS
    except (OSError, ValueError, IndexError):
        return 0.0


def _busy(root: Path) -> dict[int, float] | None:
    """User, nice and system time of each core in our mask."""
    allowed = os.sched_getaffinity(0)
    try:
        lines = re.findall(r"^cpu(\d+) (\d+) (\d+) (\d+)", (root / "proc/stat").read_text(), re.M)
    except (OSError, ValueError):
        return None
    found = {int(core): sum(map(int, times)) / TICKS for core, *times in lines}
    return {core: found[core] for core in found.keys() & allowed} or None


def _io_stalled(root: Path) -> float | None:
    """Of the nearest group that tells; the root's is the machine's."""
    files = [folder / "io.pressure" for folder in groups(root, "io")]
    for file in [*files, root / "proc/pressure/io"]:
        try:
            some = next(line for line in file.read_text().splitlines() if line.startswith("some"))
            return int(some.rpartition("total=")[2]) / 1e6
        except (OSError, ValueError, StopIteration):
            continue
    return None
