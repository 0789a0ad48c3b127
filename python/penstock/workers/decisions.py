"""The decision log of worker processes: lines of JSON as src/engine/decisions.c writes them.

There is no thread for it: a line is written while the loop takes a batch.  A period is at least
100 ms of the loop's time, waiting and its own step, and ends with a batch; or with the one after
which the tuner said something.  docs/policies.md has the keys.  Those of the state that worker
processes have no figure for are left out; what is not known of this period is null.

A log that cannot be written is given up, and what the loader gives as its reason begins with why
from then on.
"""

import itertools
import json
import os
import stat
import time
import weakref
from typing import TYPE_CHECKING, Any

from penstock.errors import InputOutputError
from penstock.workers.meter import Sums, variation
from penstock.workers.settings import Panel

if TYPE_CHECKING:
    from penstock.workers.facade import Workers

PERIOD_SECONDS = 0.1  # as the native loader's
_numbers = itertools.count(1)
_encode = json.JSONEncoder(separators=(",", ":")).encode


class DecisionLog:
    """Appends to a file.  One for a loader's life: workers may be others by and by."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Raises InputOutputError where it cannot be opened."""
        self.path = os.path.abspath(path)
        self.fault = ""  # why there is no log any more
        self._fd = _open(self.path)
        self._close = weakref.finalize(self, _close, self._fd, os.getpid())
        self._close.atexit = False
        self._name = f"{os.getpid()}-p{next(_numbers)}"  # native loaders have numbers alone
        self._period = 0
        self._is_fresh = True
        self._since = Sums()  # at the end of the last period
        self._n_said = 0
        self._knobs: dict[str, float] | None = None  # since then

    def begin(self, workers: "Workers") -> None:
        """These make the batches from now on, and their tuner knows nothing yet."""
        self._is_fresh = True
        self._knobs = self._knobs or Panel(workers).get_knobs()

    def batch_came(self, workers: "Workers", policy: str) -> None:
        """After each batch, when it was counted."""
        meter = workers.meter
        seconds = (meter.loop_ns - self._since.wait - self._since.step) * 1e-9
        has_said = meter.n_said != self._n_said
        if self.fault or not (has_said or seconds >= PERIOD_SECONDS):
            return
        meter.control.begin()
        now = meter.sums()
        self._period += 1
        self._write(self._line(workers, policy, now.since(self._since), has_said))
        self._since, self._n_said, self._is_fresh = now, meter.n_said, False
        self._knobs = Panel(workers).get_knobs()

    def _line(
        self, workers: "Workers", policy: str, period: Sums, has_said: bool
    ) -> dict[str, Any]:
        panel, said = Panel(workers), workers.meter.said if has_said else None
        after, table = panel.get_knobs(), panel.knob_table()
        before = self._knobs or after
        state = _state(workers, period)
        return {
            "v": 1,
            "loader": self._name,
            "period": self._period,
            "time_ns": time.monotonic_ns(),
            "engine": "processes",
            "policy": policy,
            "tuner": "processes" if workers.is_tuned else None,
            "fresh": self._is_fresh,
            "state": state,
            "seen": said.seen if said else None,
            "knobs": before,
            "limits": {name: line[2:4] for name, line in table.items()},
            "pinned": [name for name, line in table.items() if line[5]],
            "wanted": after | ({"workers": said.n_workers} if said else {}),
            "decision": after,
            "reason": said.reason if said else "",
            "outcome": _outcome(state, before),
        }

    def _write(self, line: dict[str, Any]) -> None:
        left = _encode(line).encode() + b"\n"
        try:
            while left:
                left = left[os.write(self._fd, left) :]
        except OSError as error:
            self.fault = f"the decision log cannot be written: {error.strerror}"
            self._close()


def _open(path: str) -> int:
    """As src/engine/ledger.c does: a pipe must not hold us up, and is refused."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
    try:
        fd = os.open(path, flags, 0o666)
    except OSError as error:
        raise _fault(f"cannot open '{path}': {error.strerror}") from error
    mode = os.fstat(fd).st_mode
    if stat.S_ISREG(mode) or stat.S_ISCHR(mode):
        return fd
    os.close(fd)
    raise _fault(f"'{path}' is not a regular file")


def _fault(text: str) -> InputOutputError:
    error = InputOutputError(f"decision log: {text}")
    error.code = "PEN_EIO"
    return error


def _close(fd: int, owner: int) -> None:
    if os.getpid() == owner:  # in a forked child the number may be another file's by now
        os.close(fd)


def _state(workers: "Workers", period: Sums) -> dict[str, float | None]:
    """What was measured in a period; times are of its batches."""
    settings, meter, n = workers.settings, workers.meter, period.batches
    n_open, n_ready, used = workers.queue()
    samples = period.samples if meter.knows_samples else None
    makes, steps = meter.makes.last(n), meter.steps.last(period.steps)
    return {
        "period_s": period.seconds,
        "wait_share": period.wait_share,
        "away": 0,
        "batches": n,
        "samples": samples,
        "batch_samples": None if samples is None else _share(samples, n),
        "step_s": _mean(period.step, period.steps),
        "step_cv": variation(steps),
        "batch_s": _mean(period.make, n),
        "batch_p95_s": sorted(makes)[int(0.95 * len(makes))] * 1e-9 if makes else None,
        "compute_s": _mean(period.compute, n),
        "queue_s": _mean(period.queue, n),
        "sleep_s": _mean(period.sleep, n),
        "ready": n_ready,
        "open": n_open,
        "busy_cores": _share(period.compute * 1e-9, period.seconds),
        "idle_share": _share(period.idle, period.crew),
        "budget_share": _share(used, settings.budget),
        "slab_share": _share(settings.largest, settings.budget),
        "cores": workers.n_cores,
    }


def _outcome(state: dict[str, float | None], knobs: dict[str, float]) -> dict[str, float | None]:
    samples = state["samples"]
    return {
        "samples_per_s": None if samples is None else _share(samples, state["period_s"] or 0),
        "wait_share": state["wait_share"],
        "threads": knobs["workers"],
        "budget_share": state["budget_share"],
        "process_cores": None,
    }


def _mean(total_ns: int, n: int) -> float | None:
    return total_ns * 1e-9 / n if n else None


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None
