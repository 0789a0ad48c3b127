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
    ... and the loop does nothing but take batches      nothing runs beside their making, and a
                                                        library may use all cores for one: try
                                                        without processes

It begins with a worker a core, up to eight.  A trial with more stays if it pays, one with
fewer stays if it costs nothing, and both are taken back if not.  The number of processes never
changes what they make, so all of this is free to guess.

Workers must not inherit files that a dataset opened in the caller's process when it was first
used there.  So batches are made in that process only if they always will be from then on, or
if workers are persistent: those are forked from a process that has never made any.
"""

import math

from penstock.workers.settings import Settings

_CAP = 16  # processes, for items that only sleep
_FIRST = 8  # at most, before anything is known
_FEWEST = 2  # one would let the loop wait for every batch that takes longer than usual
_STRETCH_SECONDS = 0.02
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
_HERE_BATCHES, _HERE_SECONDS = 8, 0.1  # a stretch without processes


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

    def add(self, elapsed: float, spent: float, waited: float, cost: tuple[int, int, int]) -> None:
        self.count += 1
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

    def __init__(self, n_cores: int, can_return: bool = False) -> None:
        """can_return: workers can be called back after batches were made without them."""
        self._cores = n_cores
        self._can_return = can_return
        self.n_workers = max(_FEWEST, min(n_cores, _FIRST))
        self.is_inline = False
        self.is_for_good = False  # inline, and nothing will change that
        self._has_tried_inline = False
        self._inline_limit = math.inf  # seconds a batch; if it takes more, workers return
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
        if pinned is not None:
            self.is_inline = self.is_for_good = False
        is_other = n_workers not in (0, self.n_workers)
        if is_other:
            self.n_workers = n_workers
        if is_other or (was_held and not self._is_held):
            self._before, self._is_settled, self._has_grown = None, self.is_inline, False
            self._restart()

    def begin(self, spent: float) -> None:
        """An epoch's workers were asked for, which took so long."""
        self._epoch = _Stretch()
        self._epoch.spent = spent
        if not self._is_settled:  # or time goes on until all is looked at again
            self._restart()

    def end(self) -> None:
        """An epoch is over.  A short one may be over before processes are of any use."""
        seen = self._epoch
        is_quick = seen.spent > seen.made and seen.made < _SHORT_SECONDS
        if seen.count and is_quick and not self._is_held:
            self._go_inline()

    def observe(
        self, elapsed: float, spent: float, waited: float, cost: tuple[int, int, int]
    ) -> bool:
        """After each batch.  True: n_workers or is_inline changed."""
        if self._is_held:
            return False
        for sums in (self._epoch, self._stretch):
            sums.add(elapsed, spent, waited, cost)
        if self.is_inline:
            return self._observe_inline()
        if self._is_settled:
            if self._stretch.elapsed > _AGAIN_SECONDS:  # the machine may be another by now
                self._is_settled = False
                self._has_grown = False
                self._restart()
            return False
        if self._skip:  # still made by those that were there before, or beginners
            self._skip -= 1
            self._stretch = _Stretch()
            return False
        if self._stretch.count < max(4, self.n_workers) or self._stretch.elapsed < _STRETCH_SECONDS:
            return False
        before = self.n_workers
        self._judge(self._stretch)
        self._restart(is_changed=before != self.n_workers or self.is_inline)
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
        elif seen.spent > _SAVES * seen.made and seen.made < _CHEAP_SECONDS * seen.count:
            self._go_inline()
            return
        if seen.waited < _WAITS * seen.elapsed:
            at_work = math.ceil(_ROOM * seen.made / seen.elapsed)
            self._try(min(self.n_workers, max(_FEWEST, at_work)), seen)
        else:
            self._try(max(self.n_workers, self._worth_trying(seen)), seen)

    def _take_back(self, n_before: int, seen: _Stretch, is_more: bool) -> None:
        """What was tried is not worth it.  Where more workers for batches that sleep make no
        difference, they wait for one another, and fewer may make none either."""
        self.n_workers = n_before
        if is_more and seen.asleep > _SLEEPS and not self._has_grown:
            self._try(max(_FEWEST, n_before // 2), seen)
        else:
            self._settle(seen)

    def _worth_trying(self, seen: _Stretch) -> int:
        ceiling = max(self._cores, round(self._cores * seen.asleep))
        if seen.queued > _QUEUES * seen.busy:
            ceiling = max(ceiling, 2 * self._cores)
        ceiling = min(max(_CAP, self._cores), ceiling)
        return min(ceiling, 2 * self.n_workers)  # a trial that fails has not cost much

    def _try(self, n_workers: int, seen: _Stretch) -> None:
        if n_workers == self.n_workers:
            self._settle(seen)
        else:
            self._before = (self.n_workers, seen.period)
            self.n_workers = n_workers

    def _settle(self, seen: _Stretch) -> None:
        self._is_settled = True
        if self._can_return and not self._has_tried_inline and self._may_pay_inline(seen):
            self._has_tried_inline = self.is_inline = True
            # Made one after the other, here as there, batches cannot take less than what they
            # compute: only where they do has a library used more cores than a worker's one.
            computed = (seen.busy - seen.queued) / seen.count
            self._inline_limit = min(seen.period / _PAYS, _SAVES * computed)

    @staticmethod
    def _may_pay_inline(seen: _Stretch) -> bool:
        is_only_taking = seen.elapsed - seen.spent < _OWN * seen.elapsed
        return is_only_taking and seen.asleep < _SLEEPS

    def _observe_inline(self) -> bool:
        """After each batch made without workers.  True: they are called back."""
        seen = self._stretch
        if self._skip:  # the first ones: what a dataset does once in a process
            self._skip -= 1
            self._stretch = _Stretch()
        if self.is_for_good or seen.count < _HERE_BATCHES or seen.elapsed < _HERE_SECONDS:
            return False
        self._stretch = _Stretch()
        runs_beside = seen.elapsed - seen.spent > _OWN * seen.elapsed
        is_in_the_way = runs_beside and seen.spent > _WAITS * seen.elapsed
        if is_in_the_way or seen.spent > self._inline_limit * seen.count:
            self.is_inline = False
            self._restart()
        return not self.is_inline

    def _go_inline(self) -> None:
        self.is_inline = self.is_for_good = True
        self._is_settled = True
