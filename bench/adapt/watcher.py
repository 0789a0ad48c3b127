"""Watches a run from outside: memory, processes and threads, from /proc.

A process alone is looked at every 10 ms: its resident pages that no file backs. In a tree pages are shared since
the fork, and counting each once takes the kernel long: that is done four times a second.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from bench.process_tree import descendants, private_kib

_PERIOD_S = 0.01
_FAMILY_PERIOD_S = 0.25  # processes come and go less often
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass
class Seen:
    """`base` was there before the loader was made: the interpreter and its libraries."""

    base_bytes: int = 0
    peak_bytes: int = 0
    processes: int = 0
    threads: int = 0
    samples: int = 0
    longest_gap_s: float = 0.0
    errors: list[str] = field(default_factory=list)


def own_bytes(pid: int) -> int:
    """Of one process: resident and not of a file. One short read, so that it can be done often."""
    try:
        fields = Path(f"/proc/{pid}/statm").read_bytes().split()
        return (int(fields[1]) - int(fields[2])) * _PAGE
    except (OSError, IndexError):
        return 0  # it ended


def _threads(pids: list[int]) -> int:
    count = 0
    for pid in pids:
        with suppress(OSError):
            count += len(os.listdir(f"/proc/{pid}/task"))
    return count


class Watcher:
    """A thread that looks until it is told to stop."""

    def __init__(self, pid: int) -> None:
        self._pid, self._end = pid, threading.Event()
        self.seen = Seen(base_bytes=own_bytes(pid))
        self._thread = threading.Thread(target=self._look, name="watch", daemon=True)
        self._thread.start()

    def _look(self) -> None:
        seen, last, family, family_at = self.seen, time.monotonic(), [self._pid], 0.0
        while not self._end.wait(_PERIOD_S):
            now = time.monotonic()
            if now - family_at > _FAMILY_PERIOD_S:
                family, family_at = descendants(self._pid), now
                seen.processes = max(seen.processes, len(family))
                seen.threads = max(seen.threads, _threads(family))
                if len(family) > 1:
                    self._count_family(family)
            if len(family) == 1:
                seen.peak_bytes = max(seen.peak_bytes, own_bytes(self._pid))
            seen.samples += 1
            seen.longest_gap_s, last = max(seen.longest_gap_s, now - last), now

    def _count_family(self, family: list[int]) -> None:
        """Processes are read one after another: pages that one had alone and shares a moment later, because it
        forked, would count twice. So it counts only if nobody came or went meanwhile."""
        found = 1024 * private_kib(self._pid)
        if set(descendants(self._pid)) == set(family):
            self.seen.peak_bytes = max(self.seen.peak_bytes, found)

    def stop(self) -> Seen:
        self._end.set()
        self._thread.join()
        return self.seen
