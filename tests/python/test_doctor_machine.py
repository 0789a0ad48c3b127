"""What `penstock doctor` reads of the machine, from files as kernels write them."""

import os
from pathlib import Path

import pytest

from penstock.doctor.machine import TICKS, Load, Usage, usage_now


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


# --- cores ---


def stat(n_cores: int) -> str:
    """Core 3 was busy for 3 + 30 + 300 seconds."""
    cores = [f"cpu{i} {i * TICKS} {10 * i * TICKS} {100 * i * TICKS} 7 8 9 0 0 0 0" for i in range(n_cores)]  # fmt: skip
    return "\n".join(["cpu  1 2 3 4 5 6 7 0 0 0", *cores, "intr 5 cpu9 1 1 1", "ctxt 77", ""])


def test_cores_that_we_may_not_run_on_are_not_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, {"proc/stat": stat(64)})
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 3, 70})
    assert usage_now(tmp_path).busy == {0: 0.0, 3: 333.0}


@pytest.mark.parametrize("files", [{}, {"proc/stat": ""}, {"proc/stat": "cpu  1 2 3 4\n"}])
def test_cores_that_are_not_told_are_not_known(files: dict[str, str], tmp_path: Path) -> None:
    assert usage_now(write(tmp_path, files)).busy is None


@pytest.mark.parametrize(
    ("n_cores", "n_usable", "everyone", "other"),
    [
        (2, 2, 1.5, 0.0),  # that is us
        (2, 2, 2.0, 0.5),
        (2, 2, 1.0, 0.0),  # ticks are coarse
        (64, 2, 41.5, 0.0),  # a quota of 2: there is room for both
        (64, 2, 64.0, 0.5),
        (64, 64, 41.5, 40.0),
        (2, 64, 2.0, 0.5),
    ],
)
def test_others_count_where_they_compete(
    n_cores: int, n_usable: int, everyone: float, other: float
) -> None:
    before = Usage(5, 0, 0, dict.fromkeys(range(n_cores), 9.0), None)
    after = Usage(6, 1.0, 0.5, dict.fromkeys(range(n_cores), 9.0 + everyone / n_cores), None)
    assert Load.between(before, after, n_usable).other_cores == pytest.approx(other)


def test_cores_that_come_and_go_are_not_counted() -> None:
    before, after = Usage(0, 0, 0, {0: 500.0, 1: 1.0}, None), Usage(1, 0, 0, {1: 1.5, 2: 700.0}, None)  # fmt: skip
    assert Load.between(before, after, 2).other_cores == pytest.approx(0.5)


# --- workers ---


def test_living_workers_are_counted(tmp_path: Path) -> None:
    pid, times = os.getpid(), " ".join(["S", *"0" * 10, str(2 * TICKS), str(TICKS), "0", "0"])
    children = {f"proc/{pid}/task/{pid}/children": "77 78 ", "proc/77/stat": f"77 (a) b) {times} 5"}
    ended = os.times()
    found = usage_now(write(tmp_path, children)).workers
    assert found == pytest.approx(3.0 + ended.children_user + ended.children_system)


def test_workers_that_the_kernel_does_not_list_are_not_known(tmp_path: Path) -> None:
    unlisted = usage_now(write(tmp_path, {"proc/stat": stat(4)}))
    assert unlisted.workers is None
    before = Usage(unlisted.at - 1, unlisted.main, None, unlisted.busy, None)
    load = Load.between(before, unlisted, 4)
    assert load.worker_cores is None
    assert load.other_cores is None, "the workers would be among them"


# --- storage ---


def pressure(seconds: int) -> str:
    full = "full avg10=0.00 avg60=0.00 avg300=0.00 total=1\n"
    return f"some avg10=0.05 avg60=0.28 avg300=0.53 total={seconds * 1_000_000}\n{full}"


@pytest.mark.parametrize(
    ("files", "seconds"),
    [
        ({}, None),
        ({"proc/pressure/io": pressure(9)}, 9),
        ({"proc/pressure/io": pressure(9), "sys/fs/cgroup/a/b/io.pressure": pressure(3)}, 3),
        ({"proc/pressure/io": pressure(9), "sys/fs/cgroup/unified/a/b/io.pressure": pressure(3)}, 3),
        # the group above holds ours, too
        ({"proc/pressure/io": pressure(9), "sys/fs/cgroup/a/io.pressure": pressure(5)}, 5),
        # a container's own mount
        ({"proc/pressure/io": pressure(9), "sys/fs/cgroup/io.pressure": pressure(4)}, 4),
        ({"proc/pressure/io": pressure(9), "sys/fs/cgroup/a/b/io.pressure": ""}, 9),
        ({"proc/pressure/io": "some total=much\n"}, None),
    ],
)  # fmt: skip
def test_waiting_for_storage_is_that_of_our_group(
    files: dict[str, str], seconds: int | None, tmp_path: Path
) -> None:
    groups = {"proc/self/cgroup": "4:memory:/m\n0::/a/b\n"}
    assert usage_now(write(tmp_path, groups | files)).io_stalled == seconds
