"""Memory, processor time and bytes read of a process and its descendants, from /proc alone."""

from __future__ import annotations

import os
from pathlib import Path

_PROC = Path("/proc")


def descendants(pid: int) -> list[int]:
    """`pid` and every live process below it."""
    found, todo = [], [pid]
    while todo:
        current = todo.pop()
        found.append(current)
        for listing in _PROC.glob(f"{current}/task/*/children"):
            try:
                todo.extend(int(child) for child in listing.read_text().split())
            except OSError:
                continue  # the thread ended between listing and reading
    return found


def _fields(path: Path) -> dict[str, int]:
    """A /proc file of `Name:  number [unit]` lines."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return {}  # the process ended
    pairs = (line.split()[:2] for line in lines)
    return {
        pair[0][:-1]: int(pair[1]) for pair in pairs if pair[0].endswith(":") and pair[1].isdigit()
    }


def memory_kib(pid: int) -> tuple[int, int]:
    """(all memory, memory that cannot be dropped) of a tree, in KiB.

    Both are proportional set sizes: a page shared by n processes counts 1/n in each, so workers that share a
    batch or a library are not counted double. The second leaves out mapped files, which are page cache.
    """
    total = own = 0
    for process in descendants(pid):
        pss = _fields(_PROC / str(process) / "smaps_rollup")
        total += pss.get("Pss", 0)
        own += pss.get("Pss_Anon", 0) + pss.get("Pss_Shmem", 0)
    return total, own


def private_kib(pid: int) -> int:
    """Memory that a tree alone takes, in KiB: its anonymous pages, and its shared memory in full, once.

    A proportional set size counts the pages of shared memory that a process has touched. A batch that lies in a
    queue as a descriptor, or that the parent has mapped and not read yet, has none of those and is memory all
    the same; so here shared memory is what its files (memfds, /dev/shm) have been given.
    """
    anonymous, files = 0, {}
    for process in descendants(pid):
        anonymous += _fields(_PROC / str(process) / "smaps_rollup").get("Pss_Anon", 0)
        files |= _shared_files(_PROC / str(process))
    return anonymous + sum(files.values()) // 2


def _shared_files(process: Path) -> dict[tuple[int, int], int]:
    """The files in shared memory that a process has open or mapped: their size in half KiB, by (device, inode)."""
    found = {}
    for folder in ("fd", "map_files"):
        try:
            links = list((process / folder).iterdir())
        except OSError:
            continue  # the process ended
        for link in links:
            try:
                if os.readlink(link).startswith(("/memfd:", "/dev/shm/")):
                    about = link.stat()
                    found[about.st_dev, about.st_ino] = about.st_blocks
            except OSError:
                continue  # closed meanwhile
    return found


def bytes_read(pid: int) -> int:
    """Bytes a tree has asked for with read calls. Mapped files do not show up here."""
    return sum(_fields(_PROC / str(process) / "io").get("rchar", 0) for process in descendants(pid))


def cpu_seconds(pid: int) -> float:
    """Processor time a tree has used so far, with that of ended processes their parents have waited for."""
    ticks = 0
    for process in descendants(pid):
        try:
            text = (_PROC / str(process) / "stat").read_text()
        except OSError:
            continue  # the process ended
        # The name in brackets may hold spaces; utime, stime, cutime and cstime are fields 14 to 17.
        ticks += sum(int(value) for value in text.rpartition(")")[2].split()[11:15])
    return ticks / os.sysconf("SC_CLK_TCK")


def machine_busy_seconds() -> float:
    """Processor time the whole machine has spent on anything, including what a hypervisor took away."""
    user, nice, system, _idle, _iowait, *rest = map(int, (_PROC / "stat").read_text().split()[1:9])
    return (user + nice + system + sum(rest)) / os.sysconf(
        "SC_CLK_TCK"
    )  # rest: irq, softirq, steal
