"""num_workers="auto": as many processes as pay, or none.

What counts is the time that the loop spends waiting in next().  It is measured over stretches
of batches, and compared with what the batch's own making takes:

    batches are cheap, and next() takes nearly as       no processes: handing over costs more
      long as making one would
    it hardly waits                                     enough workers; give back the idle
    it waits, and workers sleep (disk, network, locks)  more workers than cores may pay: try;
                                                        if they do not, half may do as well
    it waits, and workers compute                       one a core; where other programs want
                                                        the cores too, try two
    batches are made as fast as memory is copied, and   no processes: handing over is what they
      the loop does nothing but take them                 do all the time

It begins with a worker a core, up to eight.  A trial with more stays if it pays, one with
fewer stays if it costs nothing, and both are taken back if not.  The number of processes never
changes what they make, so all of this is free to guess.

Batches are never made in the caller's process before it is known that they always will be: a
dataset may open files when first used, and workers must not inherit those.
"""

import math

from penstock.workers.settings import Settings

_CAP = 16  # processes, for items that only sleep
_FIRST = 8  # at most, before anything is known
_FEWEST = 2  # one would let the loop wait for every batch that takes longer than usual
_STRETCH_SECONDS = 0.1
_AGAIN_SECONDS = 30
_PAYS = 0.93  # a trial must take this part of the time, or less
_SLEEPS = 1.5  # a batch's time, in times of what it computes
_QUEUES = 0.25  # of the computing time spent in the queue: others want the cores
_ROOM = 1.5  # workers to keep, for each that was at work on average
_WAITS = 0.1  # of the time: less than that is not worth a process
_SAVES = 0.75  # of a cheap batch's time next() may take, or processes are not worth it
_CHEAP_SECONDS = 0.003  # a batch that takes longer loses nothing by being handed over
_SHORT_SECONDS = 0.3  # an epoch that takes longer loses nothing by starting processes
_OWN = 0.1  # of the time: a loop that does more than that is worth running beside
_COPIED = 1e9  # bytes a second that a worker makes: no more than moving them about
_HALF = 0.45  # of a worker's time for a batch that next() takes: two bring no more than that


class _Stretch:
    """Sums over some batches, all in seconds."""

    def __init__(self) -> None:
        self.count = 0
        self.elapsed = 0.0  # from batch to batch
        self.spent = 0.0  # of that, in next()
        self.waited = 0.0  # of that, for a result
        self.made = 0.0  # in a worker, for making it
        self.busy = 0.0  # of that, on a core or in the queue for one
        self.queued = 0.0  # of that, in the queue
        self.nbytes = 0

    def add(
        self, elapsed: float, spent: float, waited: float, cost: tuple[int, int, int], nbytes: int
    ) -> None:
        self.count += 1
        self.nbytes += nbytes
        self.elapsed += elapsed
        self.spent += spent
        self.waited += waited
        self.made += cost[0] * 1e-9
        self.busy += cost[1] * 1e-9
        self.queued += cost[2] * 1e-9

    @property
    def period(self) -> float:
        return self.elapsed / self.count

    @property
    def asleep(self) -> float:
        """A batch's time, in times of what it computes; 1: it never sleeps."""
        return self.made / max(self.busy, 1e-9)


class Tuner:
    """Chooses how many workers run.  One for a loader's life: what it learnt stays."""

    def __init__(self, n_cores: int, can_leave: bool = True) -> None:
        """can_leave: whether batches may be made without workers at all."""
        self._cores = n_cores
        self._can_leave = can_leave
        self.n_workers = max(_FEWEST, min(n_cores, _FIRST))
        self.is_inline = False  # for good
        self._is_held = False  # decides nothing: see follow()
        self._is_settled = False
        self._has_grown = False  # and it paid
        self._before: tuple[int, float] | None = None  # workers and time a batch, before a trial
        self._skip = 0
        self._stretch = _Stretch()
        self._epoch = _Stretch()

    def follow(self, settings: Settings, n_workers: int) -> None:
        """Before each batch: whether it may decide, and how many there are by now."""
        pinned, was_held = settings.n_workers, self._is_held
        self._is_held = settings.is_held or pinned is not None
        is_other = n_workers not in (0, self.n_workers)
        if is_other:
            self.n_workers = n_workers
        if is_other or (was_held and not self._is_held):
            self._before, self._is_settled, self._has_grown = None, self.is_inline, False
            self._restart()

    def begin(self, spent: float) -> None:
        """An epoch's workers were asked for, which took so long."""
        before, self._epoch = self._epoch.count, _Stretch()
        self._epoch.spent = spent
        if not self._is_settled:  # short epochs are looked at together, without their beginnings
            usual = 2 * self.n_workers
            self._skip = min(usual, before // 2) if before else usual  # something must be left

    def end(self) -> None:
        """An epoch is over.  A short one may be over before processes are of any use."""
        seen = self._epoch
        is_quick = seen.spent > seen.made and seen.made < _SHORT_SECONDS
        if seen.count and is_quick and self._can_leave and not self._is_held:
            self._go_inline()

    def observe(
        self,
        elapsed: float,
        spent: float,
        waited: float,
        cost: tuple[int, int, int],
        nbytes: int = 0,
    ) -> bool:
        """After each batch.  True: n_workers or is_inline changed."""
        if self._is_held:
            return False
        self._epoch.add(elapsed, spent, waited, cost, nbytes)
        if self._skip:  # still made by those that were there before, or beginners
            self._skip -= 1
            return False
        self._stretch.add(elapsed, spent, waited, cost, nbytes)
        if self._is_settled:
            if self._stretch.elapsed > _AGAIN_SECONDS:  # the machine may be another by now
                self._is_settled = False
                self._has_grown = False
                self._restart()
            return False
        if self._stretch.count < max(4, self.n_workers) or self._stretch.elapsed < _STRETCH_SECONDS:
            return False
        before = self.n_workers
        self._judge(self._stretch)
        self._restart(is_changed=before != self.n_workers)
        return before != self.n_workers or self.is_inline

    def _restart(self, is_changed: bool = True) -> None:
        self._stretch = _Stretch()
        self._skip = 2 * self.n_workers if is_changed else 0

    def _judge(self, seen: _Stretch) -> None:
        if self._before is not None:
            n_before, period_before = self._before
            self._before = None
            is_more = n_before < self.n_workers
            if seen.period > (_PAYS * period_before if is_more else period_before / _PAYS):
                self._take_back(n_before, seen, is_more)
                return
            self._has_grown = self._has_grown or is_more
        elif self._can_leave and (_is_cheap(seen) or _is_copying(seen)):
            self._go_inline()
            return
        if seen.waited < _WAITS * seen.elapsed:
            at_work = math.ceil(_ROOM * seen.made / seen.elapsed)
            self._try(min(self.n_workers, max(_FEWEST, at_work)), seen.period)
        else:
            self._try(max(self.n_workers, self._worth_trying(seen)), seen.period)

    def _take_back(self, n_before: int, seen: _Stretch, is_more: bool) -> None:
        """What was tried is not worth it.  Where more workers for batches that sleep make no
        difference, they wait for one another, and fewer may make none either."""
        self.n_workers = n_before
        if is_more and seen.asleep > _SLEEPS and not self._has_grown:
            self._try(max(_FEWEST, n_before // 2), seen.period)
        else:
            self._is_settled = True

    def _worth_trying(self, seen: _Stretch) -> int:
        ceiling = max(self._cores, round(self._cores * seen.asleep))
        if seen.queued > _QUEUES * seen.busy:
            ceiling = max(ceiling, 2 * self._cores)
        ceiling = min(max(_CAP, self._cores), ceiling)
        return min(ceiling, 2 * self.n_workers)  # a trial that fails has not cost much

    def _try(self, n_workers: int, period: float) -> None:
        if n_workers == self.n_workers:
            self._is_settled = True
        else:
            self._before = (self.n_workers, period)
            self.n_workers = n_workers

    def _go_inline(self) -> None:
        self.is_inline = True
        self._is_settled = True


def _is_cheap(seen: _Stretch) -> bool:
    return seen.spent > _SAVES * seen.made and seen.made < _CHEAP_SECONDS * seen.count


def _is_copying(seen: _Stretch) -> bool:
    """Large batches that cost little but their memory, which several workers share: that is as
    fast in one process, whose libraries may use all cores for it, and takes less of it."""
    is_only_taking = seen.elapsed - seen.spent < _OWN * seen.elapsed
    is_shared = seen.spent > _HALF * seen.made
    return is_only_taking and is_shared and seen.nbytes > _COPIED * seen.made
