"""Processor time of this process and of those below it, and how long some task waited for storage.

What /proc does not tell here is None.
"""

import os
import time
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Usage:
    """Seconds since some beginning, each."""

    at: float
    main: float  # processor time of this process
    workers: float  # and of the processes below it, also of those that have ended
    everyone: float | None  # of all processes of the machine
    io_stalled: float | None  # in which some task waited for storage (PSI)


@dataclass(frozen=True)
class Load:
    """Between two usages.  Cores: how many were busy on average."""

    main_cores: float
    worker_cores: float
    other_cores: float | None
    io_share: float | None

    @classmethod
    def between(cls, before: Usage, after: Usage) -> "Load":
        span = max(after.at - before.at, 1e-9)
        main = (after.main - before.main) / span
        workers = (after.workers - before.workers) / span
        everyone = _difference(before.everyone, after.everyone, span)
        other = None if everyone is None else max(0.0, everyone - main - workers)
        return cls(main, workers, other, _difference(before.io_stalled, after.io_stalled, span))


def _difference(before: float | None, after: float | None, span: float) -> float | None:
    return None if before is None or after is None else (after - before) / span


def usage_now() -> Usage:
    times = os.times()
    ended = times.children_user + times.children_system
    return Usage(
        at=time.monotonic(),
        main=times.user + times.system,
        workers=ended + _below(os.getpid()),
        everyone=_everyone(),
        io_stalled=_io_stalled(),
    )


def _below(pid: int) -> float:
    """Of living descendants; those that have ended are counted with their parents."""
    total = 0.0
    waiting = _children(pid)
    while waiting:
        child = waiting.pop()
        total += _cpu_of(child)
        waiting += _children(child)
    return total


def _children(pid: int) -> list[int]:
    found: list[int] = []
    try:
        for task in (PROC / str(pid) / "task").iterdir():
            found += map(int, (task / "children").read_text().split())
    except OSError:  # it has ended, or the kernel does not tell
        pass
    return found


def _cpu_of(pid: int) -> float:
    try:
        # The name, in brackets, may hold anything; utime, stime, cutime, cstime are 12 fields on.
        fields = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) / TICKS
    except (OSError, ValueError, IndexError):
        return 0.0


def _everyone() -> float | None:
    try:
        fields = (PROC / "stat").read_text().split("\n", 1)[0].split()
        user, nice, system = map(int, fields[1:4])
        return (user + nice + system) / TICKS
    except (OSError, ValueError):
        return None


def _io_stalled() -> float | None:
    try:
        text = (PROC / "pressure" / "io").read_text()
        some = next(line for line in text.splitlines() if line.startswith("some"))
        return int(some.rpartition("total=")[2]) / 1e6
    except (OSError, ValueError, StopIteration):
        return None
