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
fewer stays if it costs nothing, and both are taken back if not.  No more are tried than memory
holds, each as large as those that there are.  The number of processes never changes what they
make, so all of this is free to guess.

What is settled is looked at again after a while, and soon where a batch's making or the loop's
step became another by a quarter and stays so for some batches, as src/policy/model.c does.  Where
that changed nothing it must stay so for twice as many the next time: a loop that is slow and fast
by turns is left alone.

Batches are never made in the caller's process before it is known that they always will be: a
dataset may open files when first used, and workers must not inherit those.
"""

import math
from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

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
_CHANGED = 1.25  # times as much, or as little
_TELLS = 0.05  # of the time from batch to batch: what is below that makes no difference
_STAYS_NEW = 8  # batches on end: then it is no chance
_STAYS_NEW_MAX = 1024
_FEW = 5  # batches, of which the middle one is believed
_HALF = 0.45  # of a worker's time for a batch that next() takes: two bring no more than that


class Said(NamedTuple):
    """What was decided, why, and on what figures."""

    n_workers: int  # from now on; 0: batches are made in the caller's process
    reason: str
    seen: dict[str, float]


class _Taken(NamedTuple):
    """One batch; what it is made of is explained below."""

    elapsed: float
    spent: float
    waited: float
    cost: tuple[int, int, int]
    nbytes: int


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

    def add(self, one: _Taken) -> None:
        self.count += 1
        self.nbytes += one.nbytes
        self.elapsed += one.elapsed
        self.spent += one.spent
        self.waited += one.waited
        self.made += one.cost[0] * 1e-9
        self.busy += one.cost[1] * 1e-9
        self.queued += one.cost[2] * 1e-9

    @property
    def period(self) -> float:
        return self.elapsed / self.count

    @property
    def asleep(self) -> float:
        """A batch's time, in times of what it computes; 1: it never sleeps."""
        return self.made / max(self.busy, 1e-9)

    @property
    def waits(self) -> float:
        """Percent of the time."""
        return 100 * self.waited / max(self.elapsed, 1e-9)

    def as_figures(self) -> dict[str, float]:
        """Means of a batch, in seconds and bytes."""
        names = "elapsed", "spent", "waited", "made", "busy", "queued"
        means = {f"{name}_s": getattr(self, name) / max(self.count, 1) for name in names}
        return {"batches": self.count} | means | {"bytes": self.nbytes / max(self.count, 1)}


class _Usual:
    """What a batch's making and the loop's step were when it was settled, and whether they have
    changed.  Medians: a batch that is late now and then says nothing."""

    def __init__(self, patience: int = _STAYS_NEW) -> None:
        """patience: of so many batches on end the change must be seen."""
        self.patience = patience
        self.since = _Stretch()  # of the batches on end
        self._usual: tuple[float, float] | None = None  # making, step
        self._least = 0.0
        self._last: deque[tuple[float, float, float]] = deque(maxlen=_STAYS_NEW)
        self._ways = (0, 0)
        self._skip = 0

    def rest(self, n_batches: int) -> None:
        """So many that come are a worker's first, which may open files."""
        self._skip = n_batches

    def is_over(self, one: _Taken) -> bool:
        """After each batch.  True: it is not as it was, and that stays so."""
        if self._skip:
            self._skip -= 1
            return False
        self._last.append((one.cost[0] * 1e-9, one.elapsed - one.spent, one.elapsed))
        if self._usual is None:
            self._learn()
            return False
        ways = self._look(self._usual)
        if ways != self._ways:
            self._ways, self.since = ways, _Stretch()
        if ways == (0, 0):
            return False
        self.since.add(one)
        return self.since.count >= self.patience

    def _learn(self) -> None:
        if len(self._last) < _STAYS_NEW:
            return
        making, step, elapsed = map(_middle, zip(*self._last, strict=True))
        self._usual, self._least = (making, step), _TELLS * elapsed
        self._last = deque(maxlen=_FEW)

    def _look(self, usual: tuple[float, float]) -> tuple[int, int]:
        """Of each, 1 where there is more of it than usual, -1 where there is less."""
        if len(self._last) < _FEW:
            return 0, 0
        makes, steps, _ = zip(*self._last, strict=True)
        return self._way(_middle(makes), usual[0]), self._way(_middle(steps), usual[1])

    def _way(self, now: float, usual: float) -> int:
        now, usual = max(now, self._least), max(usual, self._least)
        return (now >= _CHANGED * usual) - (usual >= _CHANGED * now)


def _middle(values: Iterable[float]) -> float:
    ordered = sorted(values)
    return ordered[len(ordered) // 2]


class Tuner:
    """Chooses how many workers run.  One for a loader's life: what it learnt stays."""

    def __init__(
        self,
        n_cores: int,
        can_leave: bool = True,
        say: Callable[[Said], None] = lambda said: None,
        fits: Callable[[int], int] = lambda n_workers: n_workers,
    ) -> None:
        """can_leave: whether batches may be made without workers at all; say: is told of all that
        is decided; fits: of so many workers, as many as memory holds."""
        self.n_cores = n_cores
        self._can_leave = can_leave
        self._say = say
        self._fits = fits
        self._words: list[str] = []  # to be said
        self._told = -1  # workers, when something was said last
        self.n_workers = max(_FEWEST, min(n_cores, _FIRST))
        self.is_inline = False  # for good
        self._handing: float | None = None  # seconds of next() with workers, before it was
        self._is_held = False  # decides nothing: see follow()
        self._is_settled = False
        self._usual = _Usual()  # since it was settled
        self._examined: int | None = None  # workers, where a change is why it is looked at again
        self._has_grown = False  # and it paid
        self._before: tuple[int, _Stretch] | None = None  # workers, and how it was before a trial
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
            self._examined = None
            self._restart()

    def begin(self, spent: float) -> None:
        """An epoch's workers were asked for, which took so long."""
        before, self._epoch = self._epoch.count, _Stretch()
        self._epoch.spent = spent
        # Short epochs are looked at together, without their beginnings; something must be left.
        usual = 2 * self.n_workers
        n_first = min(usual, before // 2) if before else usual
        if self._is_settled:
            self._usual.rest(n_first)
        else:
            self._skip = n_first

    def end(self) -> None:
        """An epoch is over.  A short one may be over before processes are of any use."""
        seen = self._epoch
        is_quick = seen.spent > seen.made and seen.made < _SHORT_SECONDS
        if seen.count and is_quick and self._can_leave and not self._is_held:
            self._handing = seen.spent / seen.count
            self._words.append(
                f"no workers: an epoch takes {seen.spent:.2g} s with them, {seen.made:.2g} s without"
            )
            self._go_inline()
            self._tell(seen)

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
        one = _Taken(elapsed, spent, waited, cost, nbytes)
        self._epoch.add(one)
        if self._skip:  # still made by those that were there before, or beginners
            self._skip -= 1
            return False
        self._stretch.add(one)
        if self._is_settled and not self._looks_again(one):
            return False
        if self._stretch.count < max(4, self.n_workers) or self._stretch.elapsed < _STRETCH_SECONDS:
            return False
        before, seen = self.n_workers, self._stretch
        self._judge(seen)
        self._tell(seen)
        self._restart(is_changed=before != self.n_workers)
        return before != self.n_workers or self.is_inline

    def _looks_again(self, one: _Taken) -> bool:
        """Whether what is settled is to be judged anew, and can be already."""
        if self._usual.is_over(one):
            self._words = ["what a batch or the step takes has changed"]
            self._examined, self._stretch = self.n_workers, self._usual.since
        elif self._stretch.elapsed > _AGAIN_SECONDS:  # the machine may be another by now
            self._examined = None
            self._restart()
        else:
            return False
        self._is_settled = self._has_grown = False
        return self._skip == 0

    def _settle(self) -> None:
        """This is the number, for now."""
        is_as_before = self._examined == self.n_workers
        self._examined = None
        longer = min(2 * self._usual.patience, _STAYS_NEW_MAX)
        self._usual = _Usual(longer if is_as_before else _STAYS_NEW)
        self._is_settled = True

    def _restart(self, is_changed: bool = True) -> None:
        self._stretch = _Stretch()
        self._skip = 2 * self.n_workers if is_changed else 0

    def _tell(self, seen: _Stretch) -> None:
        words, self._words = self._words, []
        if words:
            self._told = 0 if self.is_inline else self.n_workers
            self._say(Said(self._told, "; ".join(words), seen.as_figures()))

    def _judge(self, seen: _Stretch) -> None:
        if self._before is not None:
            if self._finish_trial(*self._before, seen):
                self._choose(seen)
        elif self._can_leave and (_is_cheap(seen) or _is_copying(seen)):
            self._handing = seen.spent / seen.count
            self._words.append(
                f"no workers: next() takes {1e3 * self._handing:.2g} ms with them, making a batch "
                f"{1e3 * seen.made / seen.count:.2g} ms"
            )
            self._go_inline()
        else:
            why = self._choose(seen)
            is_news = self._words or self.n_workers != self._told
            if self._is_settled and is_news:
                self._words.append(f"{self.n_workers} workers stay: {why}")

    def _finish_trial(self, n_before: int, old: _Stretch, seen: _Stretch) -> bool:
        """Whether what was tried stays."""
        self._before = None
        is_more = n_before < self.n_workers
        is_back = seen.period > (_PAYS * old.period if is_more else old.period / _PAYS)
        self._words.append(
            f"{self.n_workers} workers {f'go back to {n_before}' if is_back else 'stay'}: "
            f"{1 / old.period:.3g} to {1 / seen.period:.3g} batches/s, "
            f"waiting {old.waits:.0f} to {seen.waits:.0f} %"
        )
        if is_back:
            self._take_back(n_before, seen, is_more)
        else:
            self._has_grown = self._has_grown or is_more
        return not is_back

    def _choose(self, seen: _Stretch) -> str:
        """Try another number, or settle.  Says why."""
        why = f"the loop waits {seen.waits:.0f} % of the time"
        if seen.waited < _WAITS * seen.elapsed:
            at_work = seen.made / seen.elapsed
            why += f", {at_work:.1f} are at work"
            n_workers = min(self.n_workers, max(_FEWEST, math.ceil(_ROOM * at_work)))
        else:
            why += _manner(seen)
            n_workers = wanted = max(self.n_workers, self._worth_trying(seen))
            if wanted > self.n_workers:  # looking at memory takes a while
                n_workers = max(self.n_workers, self._fits(wanted))
            if n_workers < wanted:
                why += f", memory holds {n_workers} workers and not {wanted}"
        self._try(n_workers, seen, why)
        return why

    def _take_back(self, n_before: int, seen: _Stretch, is_more: bool) -> None:
        """What was tried is not worth it.  Where more workers for batches that sleep make no
        difference, they wait for one another, and fewer may make none either."""
        self.n_workers = n_before
        if is_more and seen.asleep > _SLEEPS and not self._has_grown:
            self._try(max(_FEWEST, n_before // 2), seen, "workers may wait for one another")
        else:
            self._settle()

    def _worth_trying(self, seen: _Stretch) -> int:
        ceiling = max(self.n_cores, round(self.n_cores * seen.asleep))
        if seen.queued > _QUEUES * seen.busy:
            ceiling = max(ceiling, 2 * self.n_cores)
        ceiling = min(max(_CAP, self.n_cores), ceiling)
        return min(ceiling, 2 * self.n_workers)  # a trial that fails has not cost much

    def _try(self, n_workers: int, seen: _Stretch, why: str) -> None:
        if n_workers == self.n_workers:
            self._settle()
            return
        self._words.append(f"try {n_workers} workers: {why}")
        self._before = (self.n_workers, seen)
        self.n_workers = n_workers

    def _go_inline(self) -> None:
        self.is_inline = True
        self._is_settled = True

    def is_outgrown(self, making: float) -> bool:
        """It went inline, but would not any more if batches took so long to make, in seconds."""
        return self._handing is not None and self._handing <= _SAVES * making


def _manner(seen: _Stretch) -> str:
    """What workers do while the loop waits."""
    if seen.asleep > _SLEEPS:
        return f", workers sleep {100 * (1 - 1 / seen.asleep):.0f} % of a batch's making"
    if seen.queued > _QUEUES * seen.busy:
        return ", workers stand in the queue for the cores"
    return ", workers compute"


def _is_cheap(seen: _Stretch) -> bool:
    return seen.spent > _SAVES * seen.made and seen.made < _CHEAP_SECONDS * seen.count


def _is_copying(seen: _Stretch) -> bool:
    """Large batches that cost little but their memory, which several workers share: that is as
    fast in one process, whose libraries may use all cores for it, and takes less of it."""
    is_only_taking = seen.elapsed - seen.spent < _OWN * seen.elapsed
    is_shared = seen.spent > _HALF * seen.made
    return is_only_taking and is_shared and seen.nbytes > _COPIED * seen.made
