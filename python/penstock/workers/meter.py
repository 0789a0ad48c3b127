"""What a loop waited, and what worker processes did meanwhile: sums, and the recent past of them.

The loop's time is waiting (in next()) and its own step between two batches; what lies between two
epochs is neither.  A batch's making is computing, standing in the queue for a core, and sleep
(disk, network, locks).  Batches made in the caller's own process have no queue told apart: it counts
as sleep there, and where they take a moment only, all of it is computing.  Their computing is that of
all threads of the process, which may be more than the time they took.  What ends in an error was
waited for, and is no batch.  One thread at a time counts; any may look.
"""

import itertools
import math
import operator
import time
from array import array
from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from penstock.workers.tuner import Said

_RECENT_SECONDS = 10
_TRAIL = 60  # seconds
_TIMES = 512  # batches whose times are kept
_WHILE_NS = 500_000_000
_QUICK_NS = 200_000  # a batch made here in less is not worth asking the kernel for its CPU time


class Sums(NamedTuple):
    """All times in ns, since the beginning or over a stretch."""

    batches: int = 0
    wait: int = 0
    step: int = 0
    make: int = 0
    busy: int = 0  # of that, on a core or in the queue for one
    queue: int = 0  # of that, in the queue
    crew: int = 0  # workers times time
    inline: int = 0  # batches made in the caller's process
    nbytes: int = 0  # of results
    steps: int = 0
    samples: int = 0  # of batches whose number of them is known

    def since(self, other: "Sums") -> "Sums":
        return Sums(*(now - before for now, before in zip(self, other, strict=True)))

    @property
    def seconds(self) -> float:
        return (self.wait + self.step) * 1e-9

    @property
    def wait_share(self) -> float | None:
        whole = self.wait + self.step
        return self.wait / whole if whole else None

    @property
    def compute(self) -> int:
        return self.busy - self.queue

    @property
    def sleep(self) -> int:
        return max(0, self.make - self.busy)

    @property
    def idle(self) -> int:
        """Of the workers' time, without a batch in hand."""
        return max(0, self.crew - self.make)


# Places of the sums that are still growing.
(
    _BATCHES,
    _WAIT,
    _STEP,
    _MAKE,
    _BUSY,
    _QUEUE,
    _CREW,
    _INLINE,
    _NBYTES,
    _STEPS,
    _SAMPLES,
) = range(len(Sums._fields))


class Change(NamedTuple):
    """The number of workers became another, or was thought about; 0: the caller's process makes
    batches."""

    time_ns: int
    before: int
    after: int
    reason: str = ""  # of the tuner; nobody says why a knob was turned by hand


class Recent:
    """The last of some numbers, oldest first.  Held as numbers: objects that live for a while among
    the many that do not would keep whole pages of theirs."""

    def __init__(self, size: int = _TIMES) -> None:
        self._values = array("q", bytes(8 * size))
        self._count = 0

    def append(self, value: int) -> None:
        self._values[self._count % len(self._values)] = value
        self._count += 1

    def __len__(self) -> int:
        return min(self._count, len(self._values))

    def __iter__(self) -> Iterator[int]:
        return iter(self.last(len(self)))

    def last(self, n: int) -> list[int]:
        """So many of them, or as many as there are."""
        n = min(n, len(self))
        end = self._count % len(self._values)
        begin = end - n
        if begin >= 0:
            return self._values[begin:end].tolist()
        return (self._values[begin:] + self._values[:end]).tolist()


def variation(times: list[int]) -> float | None:
    """Deviation over mean; None of none."""
    total = sum(times)
    if not total:
        return 0.0 if times else None
    squares = sum(map(operator.mul, times, times))  # whole numbers: nothing is rounded away
    return math.sqrt(len(times) * squares - total * total) / total


class Control:
    """Processor time of the loop's thread that goes into all this: counting, the tuner, its log, and
    what `penstock top` is told.

    Looking at that clock takes as long as counting a batch.  Batches that are made in the caller's
    process in a moment are therefore counted unseen; what is written and shown meanwhile is not.
    """

    def __init__(self) -> None:
        self.ns = 0
        self._begin = -1

    def begin(self) -> None:
        """From here on; or from where it was begun and not ended."""
        if self._begin < 0:
            self._begin = time.thread_time_ns()

    def end(self) -> None:
        if self._begin >= 0:
            self.ns += time.thread_time_ns() - self._begin
            self._begin = -1

    def void(self) -> None:
        """What was begun was interrupted, and nobody knows when."""
        self._begin = -1


class Meter:
    """Counts.  begin() and end() stand around next(); the pool calls made() in between.  Who calls
    end() also ends `control`, when all that follows a batch is done."""

    def __init__(self) -> None:
        self.control = Control()
        self.first_ns = 0  # the wait for the very first batch, which is no part of the sums
        self.knows_samples = True  # of all batches so far
        self.changes: deque[Change] = deque(maxlen=16)
        self.said: Said | None = None  # by the tuner, last
        self.n_said = 0
        self._is_due = False  # what was said has not come to pass
        self.each_while: Callable[[], None] | None = None  # after a batch, about twice a second
        self._while = 0
        self.waits = Recent()
        self.steps = Recent()
        self.makes = Recent()
        self._sums = [0] * len(Sums._fields)
        self._trail: deque[tuple[int, Sums]] = deque(maxlen=_TRAIL + 1)
        self._came = self._left = 0
        self._cpu = -1
        self._is_slow_here = False  # the last batch was made in this process, and took a while
        self._has_made = False
        self._n_workers: int | None = None  # that made the last batch

    def begin(self) -> None:
        """The loop asks for a batch."""
        self._came = time.perf_counter_ns()
        self._cpu = time.process_time_ns() if self._is_slow_here else -1
        self._has_made = False
        self.control.void()

    def made(self, cost: tuple[int, int, int], nbytes: int, n_workers: int) -> None:
        """A worker's batch is there."""
        self._has_made, self._is_slow_here = True, False
        self._add_cost(*cost)
        self._sums[_NBYTES] += nbytes
        self._made_by(n_workers)

    def say(self, said: Said) -> None:
        """The tuner decides.  What it said before and never came to pass is noted as it is."""
        if self._is_due and self._n_workers is not None:
            self._note(self._n_workers, is_due=True)
        self.said, self._is_due = said, True
        self.n_said += 1

    def _made_by(self, n_workers: int) -> None:
        is_due = self._is_due and self.said is not None and self.said.n_workers == n_workers
        if n_workers != self._n_workers or is_due:
            self._note(n_workers, is_due)

    def _note(self, n_workers: int, is_due: bool) -> None:
        reason = self.said.reason if is_due and self.said is not None else ""
        if self._n_workers is not None:
            self.changes.append(Change(time.monotonic_ns(), self._n_workers, n_workers, reason))
        self._n_workers = n_workers
        self._is_due = self._is_due and not is_due

    def _add_cost(self, make: int, busy: int, queue: int) -> None:
        sums = self._sums
        sums[_MAKE] += make
        sums[_BUSY] += busy
        sums[_QUEUE] += queue
        self.makes.append(make)

    def end(self, is_error: bool = False, n_samples: int | None = None) -> None:
        """It has one, of so many samples if that is known, or an exception in its place."""
        now, sums = time.perf_counter_ns(), self._sums
        spent = now - self._came
        if self._has_made or spent > _QUICK_NS:
            self.control.begin()
        if not self._has_made and not is_error:
            self._made_here(spent)
        elif self._left:
            sums[_CREW] += (self._n_workers or 0) * (now - self._left)
        if not is_error:
            sums[_BATCHES] += 1
            sums[_SAMPLES] += n_samples or 0
            self.knows_samples = self.knows_samples and n_samples is not None
        if not self.first_ns:
            self.first_ns = spent
        else:
            sums[_WAIT] += spent
            self.waits.append(spent)
            if self._left:
                sums[_STEP] += self._came - self._left
                sums[_STEPS] += 1
                self.steps.append(self._came - self._left)
        self._left = now
        if not self._trail or now - self._trail[-1][0] >= 1_000_000_000:
            self._trail.append((now, self.sums()))
        if now >= self._while:
            self._one_while(now)

    def _one_while(self, now: int) -> None:
        is_first, self._while = not self._while, now + _WHILE_NS
        if self.each_while is not None and not is_first:  # short runs are not worth a look
            self.control.begin()
            self.each_while()

    def _made_here(self, spent: int) -> None:
        busy = spent if self._cpu < 0 else time.process_time_ns() - self._cpu
        self._add_cost(spent, busy, 0)
        self._is_slow_here = spent > _QUICK_NS
        self._sums[_INLINE] += 1
        self._made_by(0)

    def rest(self) -> None:
        """An epoch is over: what comes until the next one is no step."""
        self._left = 0

    def sums(self) -> Sums:
        return Sums(*self._sums)

    @property
    def loop_ns(self) -> int:
        """The loop's time so far, as in the sums."""
        return self._sums[_WAIT] + self._sums[_STEP]

    def recent(self) -> Sums:
        """Of the last ten seconds or so; less where there was less."""
        now, trail = self.sums(), list(self._trail)
        if not trail:
            return now
        reach = trail[-1][0] - _RECENT_SECONDS * 1_000_000_000
        base = next(sums for time_ns, sums in trail if time_ns >= reach)
        return now.since(base)

    def wait_shares(self) -> list[float]:
        """Of each of the last seconds, oldest first; a step that is longer makes a longer one."""
        trail = [sums for _, sums in list(self._trail)]
        shares = (b.since(a).wait_share for a, b in itertools.pairwise(trail))
        return [share for share in shares if share is not None]
