"""What a loader of worker processes says about itself: counters, times, and one line of advice.

The words and keys are those of the native loader where both have the thing.  What nobody counts
here, bytes that a dataset reads for one, is None.
"""

import time
from typing import Any

from penstock.knobs import Knobs
from penstock.workers.decisions import DecisionLog
from penstock.workers.facade import Workers
from penstock.workers.limits import cores_lately, memory_of
from penstock.workers.meter import Change, Sums, variation
from penstock.workers.settings import READY_MAX, Panel

_EARLY = 3  # batches
_WAITS = 0.02  # of the time: less than that, training is the slower side
_TELLS_APART = 0.03  # of the time: the whole run is told where it differs by that
_SLEEPS = 0.5  # of a batch's making
_QUEUES = 0.25  # of the time that batches want a core
_IDLE = 0.4  # of the workers' time
_FULL = 0.8  # of the cores


class Account:
    """A look at a `Workers`, whenever it is asked."""

    def __init__(self, workers: Workers, policy: str, log: DecisionLog | None = None) -> None:
        self._workers = workers
        self._policy = policy
        self._log = log

    @property
    def knobs(self) -> Knobs:
        return Knobs(Panel(self._workers))

    def stats(self) -> dict[str, int]:
        """Counters since creation; times in ns."""
        workers, sums = self._workers, self._workers.meter.sums()
        n_open, n_ready, used = workers.queue()
        known = {"samples": sums.samples} if workers.meter.knows_samples else {}
        return known | {
            "batches": sums.batches,
            "batches_inline": sums.inline,
            "bytes_out": sums.nbytes,
            "wait_ns": sums.wait + workers.meter.first_ns,
            "first_batch_ns": workers.meter.first_ns,
            "step_ns": sums.step,
            "make_ns": sums.make,
            "compute_ns": sums.compute,
            "queue_ns": sums.queue,
            "sleep_ns": sums.sleep,
            "idle_ns": sums.idle,
            "control_ns": workers.meter.control.ns,
            "workers": workers.n_running,
            "open": n_open,
            "ready": n_ready,
            "budget_bytes": workers.settings.budget,
            "budget_used": used,
        }

    def telemetry(self, *, with_memory: bool = True) -> dict[str, Any]:
        """Times by stage, queues, memory; `recent` is about the last ten seconds.  Looking at the
        memory of large processes takes milliseconds."""
        workers, sums = self._workers, self._workers.meter.sums()
        recent = workers.meter.recent()
        n_open, n_ready, used = workers.queue()
        return {
            "time_ns": time.monotonic_ns(),
            "batches": sums.batches,
            "samples": sums.samples if workers.meter.knows_samples else None,
            "bytes_in": None,
            "bytes_out": sums.nbytes,
            "stages": self._stages(sums),
            "wait_s": (sums.wait + workers.meter.first_ns) * 1e-9,
            "idle_s": sums.idle * 1e-9,
            "wait_share": sums.wait_share,
            "recent": {
                "seconds": recent.seconds,
                "batches": recent.batches,
                "wait_share": recent.wait_share,
                "busy_cores": recent.compute * 1e-9 / recent.seconds if recent.seconds else None,
            },
            "workers": workers.n_running,
            "whole_because": workers.settings.whole_because or None,
            "open_batches": n_open,
            "ready_batches": n_ready,
            "budget_bytes": workers.settings.budget,
            "budget_used": used,
            "workers_pss_bytes": memory_of(workers.pids.values()) if with_memory else None,
        }

    def _stages(self, sums: Sums) -> dict[str, dict[str, Any]]:
        meter = self._workers.meter
        stages = {
            "make": _stage(sums.batches, sums.make, list(meter.makes)),
            "wait": _stage(sums.batches, sums.wait + meter.first_ns, list(meter.waits)),
            "step": _stage(sums.steps, sums.step, list(meter.steps)),
        }
        parts = {"compute": sums.compute, "queue": sums.queue, "sleep": sums.sleep}
        return stages | {name: _stage(sums.batches, ns, []) for name, ns in parts.items()}

    def status(self, *, with_memory: bool = True) -> dict[str, Any]:
        """All of it, with the knobs and what became of them."""
        status, knobs = self.telemetry(with_memory=with_memory), self.knobs
        return status | {
            "first_batch_s": self._workers.meter.first_ns * 1e-9,
            "policy": self._policy,
            "reason": self.reason,
            "verdict": self.verdict(),
            "knobs": {
                name: {
                    "value": knobs[name],
                    "min": line.min,
                    "max": line.max,
                    "unit": line.unit,
                    "pinned": line.is_pinned,
                }
                for name, line in knobs.table().items()
            },
            "decisions": [self._decision(one) for one in list(self._workers.meter.changes)],
            "wait_shares": self._workers.meter.wait_shares(),
        }

    def _decision(self, one: Change) -> dict[str, Any]:
        changed = {"workers": [one.before, one.after]} if one.before != one.after else {}
        about = {"time_ns": one.time_ns, "policy": self._policy, "reason": one.reason}
        return about | {"changed": changed}

    @property
    def reason(self) -> str:
        """What the tuner last said, "" where it rests; first, why there is no log any more."""
        rests = self._policy == "fixed" or self._workers.are_workers_pinned
        said = self._workers.meter.said
        fault = self._log.fault if self._log is not None else ""
        return "; ".join(filter(None, (fault, said.reason if said and not rests else "")))

    def verdict(self) -> str:
        """One line: how much the loop waits, for what, and what would help."""
        whole, recent = self._workers.meter.sums(), self._workers.meter.recent()
        if whole.batches < _EARLY:
            return f"too early to tell: {whole.batches} batches so far"
        sums = recent if recent.batches >= _EARLY else whole
        share, share_whole = sums.wait_share or 0.0, whole.wait_share or 0.0
        line = f"training waits {_percent(share)} of the time"
        if abs(share - share_whole) >= _TELLS_APART:
            line += f" ({_percent(share_whole)} since the beginning)"
        if share < _WAITS:
            cores = cores_lately()
            used = min(sums.compute * 1e-9 / max(sums.seconds, 1e-9), cores)
            return f"{line}: it is the slower side; loading takes {used:.1f} of {cores} cores"
        return f"{line}: {self._advice(sums)}"

    def _advice(self, sums: Sums) -> str:
        workers, cores = self._workers, cores_lately()
        making = max(sums.make / max(sums.batches, 1), 1) * 1e-6
        busy = min(sums.compute * 1e-9 / max(sums.seconds, 1e-9), cores)
        at_most = _gain(sums)
        if sums.inline > sums.batches / 2 or workers.num_workers == 0:
            made = f"batches are made in this process, {making:.1f} ms each"
            return made + self._advice_inline(making * 1e-3, at_most)
        n = workers.num_workers
        if sums.idle > _IDLE * sums.crew:
            return (
                f"batches are late though {n} workers are idle "
                f"{100 * sums.idle / sums.crew:.0f} % of the time: the step varies, or handing "
                f"over takes long; next step: {self._more_ready(n)}{at_most}"
            )
        if sums.sleep > _SLEEPS * sums.make:
            asleep = 100 * sums.sleep / sums.make
            step = "a faster source"
            if self._is_ours_to_say() and n < workers.worker_range[1]:
                step = f"workers={min(2 * n, workers.worker_range[1])}, or a faster source"
            return (
                f"{n} workers sleep {asleep:.0f} % of a batch's {making:.0f} ms (disk, network, "
                f"locks); next step: {step}{at_most}"
            )
        if sums.queue > _QUEUES * sums.busy:
            return (
                f"{n} workers stand in the queue for a core {100 * sums.queue / sums.busy:.0f} % "
                f"of their time; next step: fewer other programs, or more cores{at_most}"
            )
        found = f"compute-bound, {busy:.1f} of {cores} cores busy with {making:.0f} ms a batch"
        if busy < _FULL * cores and n < min(cores, workers.worker_range[1]):
            return f"{found}; next step: workers={min(cores, workers.worker_range[1])}{at_most}"
        return f"{found}; next step: more cores, or native operations (penstock.torch.explain)"

    def _advice_inline(self, making: float, at_most: str) -> str:
        """Where batches take so many seconds here."""
        workers = self._workers
        if workers.is_inline:
            return f"; next step: num_workers='auto'{at_most}"
        if workers.is_outgrown(making):
            return (
                ": handing them over took longer once, and would not now; "
                f"next step: a new loader, which tries workers again{at_most}"
            )
        if workers.has_left:
            return ": handing them over would take as long; next step: dearer parts native"
        if workers.num_workers == 0:
            return ": a daemonic process has no workers; next step: dearer parts native"
        return ", until workers took over just now"

    def _more_ready(self, n: int) -> str:
        """More batches ahead, as far as the knob goes; then, what makes it go further."""
        workers, most = self._workers, int(self.knobs.table()["ready_batches"].max)
        more = min(workers.window + n, most)
        if workers.job.iterable:
            more -= more % n  # each copy has as many
        if more > workers.window:
            return f"ready_batches={more}"
        settings = workers.settings
        if settings.largest and most == max(1, settings.budget // settings.largest):
            return "a larger memory_budget, or smaller batches"
        if most < READY_MAX:  # as far as torch asks a sampler
            return f"prefetch_factor={(settings.prefetch or 2) + 1}"
        return "a steadier step"

    def _is_ours_to_say(self) -> bool:
        """How many workers there shall be: the tuner, if it may, has tried that."""
        return self._policy == "fixed" or self._workers.are_workers_pinned


def _gain(sums: Sums) -> str:
    """No loader is faster than its consumer."""
    gain = (sums.wait + sums.step) / max(sums.step, 1)
    return f", at most {gain:.1f}x" if 1.05 <= gain < 100 else ""


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %" if share < _WAITS else f"{100 * share:.0f} %"


def _stage(count: int, total: int, times: list[int]) -> dict[str, Any]:
    """Sums are of all batches, percentiles and variation of the last 512."""
    times.sort()

    def quantile(q: float) -> float | None:
        return times[min(int(q * len(times)), len(times) - 1)] * 1e-9 if times else None

    return {
        "count": count,
        "total_s": total * 1e-9,
        "mean_s": total * 1e-9 / count if count else None,
        "p50_s": quantile(0.5),
        "p95_s": quantile(0.95),
        "p99_s": quantile(0.99),
        "variation": variation(times),
    }
