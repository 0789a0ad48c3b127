"""Cores and memory that worker processes may use, from files as kernels write them."""

import math
import os
import time
from pathlib import Path

import pytest

from penstock.workers import limits
from penstock.workers.limits import memory_left, memory_of, resident_of, usable_cores, usable_memory


@pytest.fixture
def sixteen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(16)))


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


CFS = "sys/fs/cgroup/cpu/cpu.cfs_"


@pytest.mark.usefixtures("sixteen")
@pytest.mark.parametrize(
    ("files", "n_cores"),
    [
        ({}, 16),
        ({"sys/fs/cgroup/cpu.max": "max 100000\n"}, 16),
        ({"sys/fs/cgroup/cpu.max": "200000 100000\n"}, 2),
        ({"sys/fs/cgroup/cpu.max": "150000 100000\n"}, 2),
        ({"sys/fs/cgroup/cpu.max": "1000 100000\n"}, 1),
        ({"sys/fs/cgroup/cpu.max": "9900000 100000\n"}, 16),
        ({"sys/fs/cgroup/a/b/cpu.max": "max 100000\n", "sys/fs/cgroup/a/cpu.max": "300000 100000\n"}, 3),
        ({"sys/fs/cgroup/unified/a/cpu.max": "400000 100000"}, 4),
        ({f"{CFS}quota_us": "-1\n", f"{CFS}period_us": "100000\n"}, 16),
        ({f"{CFS}quota_us": "500000\n", f"{CFS}period_us": "100000\n"}, 5),
        ({"sys/fs/cgroup/cpu/c/cpu.cfs_quota_us": "600000", "sys/fs/cgroup/cpu/c/cpu.cfs_period_us": "100000"}, 6),
        ({f"{CFS}quota_us": "500000\n"}, 16),
        ({f"{CFS}quota_us": "500000\n", f"{CFS}period_us": "0\n"}, 16),
        ({"sys/fs/cgroup/cpu.max": ""}, 16),
        ({"sys/fs/cgroup/cpu.max": "-5 x \0"}, 16),
        ({"sys/fs/cgroup/cpu.max": "9" * 9000}, 16),
        ({"sys/fs/cgroup/cpu.max": "9" * 4000 + " 1"}, 16),
        ({"proc/self/cgroup": "a\n0\n::\n0::/\0\n", "sys/fs/cgroup/cpu.max": "200000 100000"}, 2),
    ],
)  # fmt: skip
def test_cores_are_those_of_the_quota(files: dict[str, str], n_cores: int, tmp_path: Path) -> None:
    groups = {"proc/self/cgroup": "4:cpu,cpuacct:/c\n3:memory:/m\n0::/a/b\n"}
    assert usable_cores(write(tmp_path, groups | files)) == n_cores


def test_cores_are_found_on_this_machine() -> None:
    assert 1 <= usable_cores() <= len(os.sched_getaffinity(0))


def test_cores_are_looked_up_anew_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each time costs the files of every group."""
    now, found = 10**12, [3, 5]
    monkeypatch.setattr(limits, "_lately", (0, 0))
    monkeypatch.setattr(limits, "usable_cores", lambda: found.pop(0))
    monkeypatch.setattr(time, "monotonic_ns", lambda: now)
    assert [limits.cores_lately() for _ in range(9)] == 9 * [3]
    now += 399_999_999
    assert limits.cores_lately() == 3
    now += 1
    assert limits.cores_lately() == 5


# --- memory ---

GIB = 1 << 30
MACHINE = "MemTotal: 16777216 kB\nMemFree: 1 kB\nMemAvailable: 8388608 kB\n"
A, V1 = "sys/fs/cgroup/a/memory.", "sys/fs/cgroup/memory/m/memory."


def stat(inactive: int, active: int, prefix: str = "") -> str:
    """Files in memory (shmem) are among `file`, and cannot be dropped."""
    return (
        f"anon 5\nfile {9 * GIB}\n{prefix}inactive_file {inactive}\n{prefix}active_file {active}\n"
    )


@pytest.mark.parametrize(
    ("files", "n_bytes"),
    [
        ({}, 8 * GIB),
        ({"proc/meminfo": "MemTotal: 16777216 kB\n"}, 16 * GIB),
        ({"proc/meminfo": "MemAvailable: x\n\0"}, GIB),
        ({f"{A}max": "max\n", f"{A}current": "5\n"}, 8 * GIB),
        ({f"{A}max": f"{3 * GIB}\n"}, 3 * GIB),
        ({f"{A}max": f"{3 * GIB}\n", f"{A}current": f"{GIB}\n"}, 2 * GIB),
        ({f"{A}high": f"{2 * GIB}\n", f"{A}max": f"{3 * GIB}\n", f"{A}current": f"{GIB}\n"}, GIB),
        ({f"{A}max": f"{99 * GIB}\n", f"{A}current": f"{GIB}\n"}, 8 * GIB),
        # the group above has less left, though its limit is higher
        ({"sys/fs/cgroup/a/b/memory.max": f"{3 * GIB}", "sys/fs/cgroup/a/b/memory.current": "0",
          f"{A}max": f"{6 * GIB}", f"{A}current": f"{4 * GIB}"}, 2 * GIB),
        ({"sys/fs/cgroup/unified/a/memory.max": f"{5 * GIB}"}, 5 * GIB),
        # a dataset in the page cache takes nothing away
        ({f"{A}max": f"{4 * GIB}", f"{A}current": f"{4 * GIB}", f"{A}stat": stat(2 * GIB, GIB)}, 3 * GIB),
        ({f"{A}max": f"{4 * GIB}", f"{A}current": f"{GIB}", f"{A}stat": stat(2 * GIB, GIB)}, 4 * GIB),
        ({f"{A}max": f"{4 * GIB}", f"{A}current": f"{3 * GIB}", f"{A}stat": "inactive_file 5\n"}, GIB),
        ({f"{V1}limit_in_bytes": f"{4 * GIB}", f"{V1}usage_in_bytes": f"{3 * GIB}"}, GIB),
        ({f"{V1}limit_in_bytes": "9223372036854771712", f"{V1}usage_in_bytes": "5"}, 8 * GIB),
        # of v1, the whole subtree counts
        ({f"{V1}limit_in_bytes": f"{4 * GIB}", f"{V1}usage_in_bytes": f"{4 * GIB}",
          f"{V1}stat": stat(1, 1) + stat(GIB, 0, "total_")}, GIB),
        ({"sys/fs/cgroup/memory/memory.limit_in_bytes": f"{2 * GIB}"}, 2 * GIB),
        ({f"{A}max": f"{GIB}", f"{A}current": f"{2 * GIB}"}, 64 << 20),  # nothing is left
        ({f"{A}max": "0"}, 8 * GIB),
        ({f"{A}max": "-5 x \0"}, 8 * GIB),
        ({f"{A}max": "9" * 9000}, 8 * GIB),
        ({f"{A}max": f"{4 * GIB}", f"{A}current": "much", f"{A}stat": "\0\n\n"}, 4 * GIB),
    ],
)  # fmt: skip
def test_memory_is_what_the_tightest_group_has_left(
    files: dict[str, str], n_bytes: int, tmp_path: Path
) -> None:
    usual = {"proc/meminfo": MACHINE, "proc/self/cgroup": "3:memory:/m\n0::/a/b\n"}
    assert usable_memory(write(tmp_path, usual | files)) == n_bytes


def test_memory_where_nothing_is_told(tmp_path: Path) -> None:
    assert usable_memory(tmp_path) == GIB
    assert memory_left(tmp_path) == math.inf


def test_what_is_left_may_be_nothing(tmp_path: Path) -> None:
    usual = {"proc/meminfo": MACHINE, "proc/self/cgroup": "3:memory:/m\n0::/a/b\n"}
    full = {f"{A}max": f"{GIB}", f"{A}current": f"{2 * GIB}"}
    assert memory_left(write(tmp_path, usual | full)) == 0


def test_processes_have_memory_unless_nobody_tells() -> None:
    assert memory_of([]) == resident_of([]) == 0
    assert resident_of([1 << 30]) is None
    own = memory_of([os.getpid()])
    assert own is None or 0 < own <= (resident_of([os.getpid()]) or 0)
    assert memory_of([os.getpid(), 1 << 30]) is None, "one of them is not there"


def test_memory_is_found_on_this_machine() -> None:
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 64 << 20 <= usable_memory() <= pages
