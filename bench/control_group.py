"""A CPU quota for some processes. What this machine does not allow raises Unavailable, with a reason."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from bench.common import Unavailable

_CGROUP = Path("/sys/fs/cgroup")
_QUOTA_PERIOD_US, _LONGEST_PERIOD_US = 100_000, 1_000_000
_LEAST_QUOTA_US = 1000  # that the kernel takes
_PREFIX = "penstock-bench-"


def quota_us(cores: float) -> tuple[int, int]:
    """(time, in which period), microseconds; a small share needs a longer period. 0: no limit."""
    if not cores:
        return 0, _QUOTA_PERIOD_US
    period = min(max(_QUOTA_PERIOD_US, round(_LEAST_QUOTA_US / cores)), _LONGEST_PERIOD_US)
    return max(_LEAST_QUOTA_US, int(cores * period)), period


class ControlGroup:
    """A control group for a contestant's processor time; v2 if the cpu controller is there, else v1."""

    def __init__(self, name: str = "") -> None:
        self._shared = _CGROUP / "cgroup.subtree_control"
        self._has_shared = False  # the root's controller, which is taken back at the end
        with _needing_groups():
            controllers = _CGROUP / "cgroup.controllers"
            self._is_v2 = controllers.exists() and "cpu" in controllers.read_text().split()
            self.path = _CGROUP if self._is_v2 else _CGROUP / "cpu"
            _remove_leftovers(self.path)
            self.path /= f"{_PREFIX}{os.getpid()}" + (f"-{name}" if name else "")
            if self._is_v2 and "cpu" not in self._shared.read_text().split():
                self._shared.write_text("+cpu")
                self._has_shared = True
            try:
                self.path.mkdir()
            except OSError:
                self._restore()
                raise

    def add(self, pid: int) -> None:
        with _needing_groups():
            (self.path / "cgroup.procs").write_text(str(pid))

    def set(self, cores: float) -> None:
        quota, period = quota_us(cores)
        with _needing_groups():
            if self._is_v2:
                (self.path / "cpu.max").write_text(f"{quota or 'max'} {period}")
            else:
                (self.path / "cpu.cfs_quota_us").write_text("-1")  # else it may not fit the period
                (self.path / "cpu.cfs_period_us").write_text(str(period))
                (self.path / "cpu.cfs_quota_us").write_text(str(quota or -1))

    def remove(self) -> None:
        for _ in range(50):  # its processes take a moment to be gone
            with suppress(OSError):
                self.path.rmdir()
                break
            time.sleep(0.1)
        self._restore()

    def _restore(self) -> None:
        # A quota of somebody else's, which found the controller there, would end with it: better it stays.
        if self._has_shared and not any(_CGROUP.glob(f"{_PREFIX}*")):
            with suppress(OSError):
                self._shared.write_text("-cpu")


def _remove_leftovers(parent: Path) -> None:
    """Groups of benchmarks that were killed: nobody else would take them away."""
    for path in parent.glob(f"{_PREFIX}*"):
        pid = path.name.removeprefix(_PREFIX).partition("-")[0]
        if not Path("/proc", pid).exists():
            with suppress(OSError):
                path.rmdir()


@contextmanager
def _needing_groups() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Unavailable(f"no control group: {error.strerror}") from error
