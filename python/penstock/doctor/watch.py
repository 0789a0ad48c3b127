"""Watches the DataLoaders of a script that knows nothing of it.

torch's DataLoader is patched in two places: where one is made, to learn in which line, and
where one is iterated, to time how long each batch is waited for and how long the script is
busy with it.  Everything else goes through untouched.  Penstock's own, which iterates by itself,
is patched there as well.  So is every class made from them, unless its __iter__ never calls
theirs.  A process that was forked goes its own way.

What is seen is kept by the line that makes a loader: a script may make it anew for each epoch, and
only the newest is held.  Where a line makes several before any of them is iterated (train and
validation in a comprehension) they are told apart by their turn.
"""

import functools
import os
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, NamedTuple

import torch.utils.data as torch_data

from penstock.doctor.machine import Usage, usage_now
from penstock.torch import DataLoader as Ours

# The first batches of an iteration wait for workers to start, and are told apart.
N_STARTING = 2
# Reading /proc for every worker takes longer than some batches do.
USAGE_SECONDS = 1.0


class Enough(BaseException):
    """Ends the script: it has been watched long enough.  Not an Exception, which a script may catch."""


class Place(NamedTuple):
    """Where a loader was made, and how many were made there just before it."""

    file: str
    line: int
    turn: int


@dataclass
class Round:
    """Loaders that were made in one line since one of them was iterated."""

    n_made: int = 0
    is_iterated: bool = False


@dataclass
class Epoch:
    """One iteration."""

    start: float = 0.0  # seconds until its first batches were there
    n_batches: int = 0
    has_ended: bool = False

    @property
    def n_starting(self) -> int:
        return min(self.n_batches, N_STARTING)


@dataclass
class Watched:
    """What was seen of the loaders of one place.  Times in seconds."""

    loader: Any  # the newest
    file: str
    line: int
    n_batches: int = 0
    firsts: list[float] = field(default_factory=list)  # until the first batch of an iteration
    waits: list[float] = field(default_factory=list)  # for each later batch
    steps: list[float] = field(default_factory=list)  # what the script did with a batch
    first_steps: list[float] = field(default_factory=list)  # with the first of an iteration
    epochs: list[Epoch] = field(default_factory=list)
    before: Usage | None = None
    after: Usage | None = None
    verdict: str = ""  # of a loader of ours, its own

    @property
    def is_ours(self) -> bool:
        return isinstance(self.loader, Ours)

    @property
    def wait_share(self) -> float:
        """Of the time after start-up."""
        total = sum(self.waits) + sum(self.steps)
        return sum(self.waits) / total if total else 0.0

    @property
    def lost(self) -> float:
        """Seconds in all."""
        return sum(self.waits) + sum(epoch.start for epoch in self.epochs)

    @property
    def wait(self) -> float:
        """A batch after start-up, mean."""
        return fmean(self.waits) if self.waits else 0.0

    @property
    def step(self) -> float:
        """A batch, mean.  The first one of an iteration may take longer."""
        steps = self.steps or self.first_steps
        return fmean(steps) if steps else 0.0

    @property
    def epoch_batches(self) -> float:
        """In an iteration.  One that was left has as many as it had; of one that was cut off when
        the script was ended, as many count as its loader says."""
        *whole, newest = self.epochs or [Epoch()]
        if newest.has_ended:
            whole.append(newest)
        if not whole:
            return max(newest.n_batches, _length(self.loader))
        return fmean(epoch.n_batches for epoch in whole)

    @property
    def start(self) -> float:
        """Until the first batches of an iteration are there, mean."""
        return fmean(epoch.start for epoch in self.epochs) if self.epochs else 0.0

    @property
    def start_loss(self) -> float:
        """Of that, more than such batches usually are waited for; of each batch of an epoch."""
        lost = [max(0.0, one.start - one.n_starting * self.wait) for one in self.epochs]
        return fmean(lost) / self.epoch_batches if lost and self.epoch_batches else 0.0

    @property
    def start_share(self) -> float:
        """Of all time, lost at the starts of iterations."""
        total = self.wait + self.step + self.start_loss
        return self.start_loss / total if total else 0.0

    @property
    def lost_share(self) -> float:
        """Of all time: waiting, and starts."""
        total = self.wait + self.step + self.start_loss
        return (self.wait + self.start_loss) / total if total else 0.0


class Watch:
    """Patches torch while entered.  Raises Enough out of a loader once `seconds` have passed since
    the first batch."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._records: dict[Place, Watched] = {}
        self.deadline: float | None = None
        self.on_first_batch: Callable[[], object] = lambda: None
        self._places: dict[int, Place] = {}  # by the loader's id
        self._rounds: defaultdict[tuple[str, int], Round] = defaultdict(Round)
        self._kinds: dict[tuple[str, int], type] = {}  # what each line made last
        self._pid = os.getpid()

    def __enter__(self) -> "Watch":
        theirs = torch_data.DataLoader
        self._real = theirs.__init__, theirs.__iter__, Ours.__iter__
        real_init = theirs.__init__
        watch = self

        @functools.wraps(real_init)  # some read the signature
        def init(loader: Any, *args: Any, **kwargs: Any) -> None:
            place = watch._place()
            watch._places[id(loader)] = place  # over one that is gone and had the same id
            watch._kinds[place[:2]] = type(loader)
            real_init(loader, *args, **kwargs)

        theirs.__init__ = init  # type: ignore[method-assign]
        theirs.__iter__ = self._watched(theirs.__iter__)  # type: ignore[method-assign]
        Ours.__iter__ = self._watched(Ours.__iter__)  # type: ignore[method-assign]
        return self

    def __exit__(self, *exc: object) -> None:
        theirs = torch_data.DataLoader
        theirs.__init__, theirs.__iter__, Ours.__iter__ = self._real  # type: ignore[method-assign]

    def _watched(self, real_iter: Callable[[Any], Any]) -> Callable[[Any], Any]:
        @functools.wraps(real_iter)
        def iterate(loader: Any) -> Iterator[Any]:
            began_at = time.perf_counter()
            real = real_iter(loader)
            if os.getpid() != self._pid or isinstance(real, _WatchedIterator):
                return real  # ours leaves some datasets to torch's
            return _WatchedIterator(real, self, self._record(loader), began_at)

        return iterate

    @property
    def seen(self) -> list[Watched]:
        return list(self._records.values())

    @property
    def unseen(self) -> list[str]:
        """Loaders that were made, and not iterated where that is seen."""
        iterated = {place[:2] for place in self._records}
        return [
            f"{os.path.basename(file)}:{line}  {_describe(kind)}"
            for (file, line), kind in self._kinds.items()
            if (file, line) not in iterated
        ]

    def _place(self) -> Place:
        """Of a loader that is being made."""
        where = _caller()
        if self._rounds[where].is_iterated:
            self._rounds[where] = Round()
        self._rounds[where].n_made += 1
        return Place(*where, self._rounds[where].n_made - 1)

    def _record(self, loader: Any) -> Watched:
        """One that was made before this began is known by its id."""
        place = self._places.get(id(loader), Place("", 0, id(loader)))
        self._rounds[place[:2]].is_iterated = True
        watched = self._records.setdefault(place, Watched(loader, place.file, place.line))
        watched.loader = loader
        return watched

    def batch_came(self) -> None:
        now = time.monotonic()
        if self.deadline is None:
            self.deadline = now + self.seconds
            self.on_first_batch()
        elif now > self.deadline:
            raise Enough


class _WatchedIterator:
    """torch's iterator, with a watch in hand."""

    def __init__(self, real: Any, watch: Watch, record: Watched, began_at: float) -> None:
        self._real, self._watch, self._record = real, watch, record
        self._n = 0
        self._epoch = Epoch(start=time.perf_counter() - began_at)  # workers were made
        self._left_at: float | None = None

    def __iter__(self) -> "_WatchedIterator":
        return self

    def __next__(self) -> Any:
        try:
            return self._take()
        except (StopIteration, Enough) as end:
            self._epoch.has_ended = isinstance(end, StopIteration)
            self._note_usage(is_last=True)
            raise

    def _take(self) -> Any:
        asked_at = time.perf_counter()
        record = self._record
        if self._left_at is not None:
            steps = record.steps if self._n >= N_STARTING else record.first_steps
            steps.append(asked_at - self._left_at)
        self._watch.batch_came()
        asked_at = time.perf_counter()
        batch = next(self._real)  # at the end, the last step has been counted, and no wait is
        waited = time.perf_counter() - asked_at
        self._count(waited)
        self._note_usage()
        self._left_at = time.perf_counter()
        return batch

    def _count(self, waited: float) -> None:
        record = self._record
        if self._n == 0:
            record.firsts.append(waited)
            record.epochs.append(self._epoch)
        if self._n < N_STARTING:
            self._epoch.start += waited
        else:
            record.waits.append(waited)
        self._n += 1
        self._epoch.n_batches += 1
        record.n_batches += 1

    def _note_usage(self, is_last: bool = False) -> None:
        record = self._record
        if record.before is None and self._n == N_STARTING:
            record.before = usage_now()
        elif self._n > N_STARTING:
            after = record.after
            if is_last or after is None or time.monotonic() - after.at >= USAGE_SECONDS:
                record.after = usage_now()
                record.verdict = _verdict(record)

    def __len__(self) -> int:
        return len(self._real)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def _length(loader: Any) -> int:
    """0: it does not know."""
    try:
        return len(loader)
    except Exception:  # a dataset's own
        return 0


def _verdict(record: Watched) -> str:
    """While it runs: the script may close it."""
    try:
        return record.loader.verdict() if record.is_ours else ""
    except Exception:  # one of DataPipes has none
        return ""


def _describe(kind: type) -> str:
    """A class of loaders, and what may be why none of its batches are seen."""
    who_iterates = next(cls for cls in kind.__mro__ if "__iter__" in vars(cls))
    is_watched = who_iterates in (torch_data.DataLoader, Ours)
    return kind.__name__ if is_watched else f"{kind.__name__}, which has an __iter__ of its own"


def _caller() -> tuple[str, int]:
    """The line outside of torch, of ours and of this file that is making a loader."""
    frame = sys._getframe(1)
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module != __name__ and not module.startswith(("torch.utils.data", "penstock.torch")):
            return frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back  # type: ignore[assignment]
    return "", 0
