"""One epoch's batches, in order: made here, by a pool, or by copies of an iterable dataset."""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from penstock.workers.failure import Failure
from penstock.workers.job import Batch, IterableFetcher, Job, MapFetcher, Position
from penstock.workers.meter import Meter
from penstock.workers.opening import Opening
from penstock.workers.pool import Pool, total
from penstock.workers.settings import Settings
from penstock.workers.tuner import Tuner
from penstock.workers.wire import Result


class Stream(Iterator[Any]):
    """One epoch's batches, in order.  Raises what a dataset raised, where it happened.

    Ends by itself when exhausted, when dropped, or by close().  `delivered` counts the batches
    taken so far, `n_items` those of the last one, None where only its maker knows.  A stream that
    was inherited through a fork raises ForkError.
    """

    delivered: int = 0
    n_items: int | None = None

    def state(self) -> dict[str, Any] | None:
        """Iterable datasets: where the *consumed* stream stands, picklable; for epoch(state=).
        None for map-style datasets: their position is the sampler's."""
        return None

    def close(self) -> None:
        """Leave the epoch.  Processes end, unless they are persistent."""
        self.end_with(StopIteration())

    def end_with(self, end: BaseException) -> None:
        """Leave the epoch; who asks for more gets this."""
        raise NotImplementedError


class PoolStream(Stream):
    """Batches that a pool makes.  A persistent pool belongs to the stream that is under way: who
    has left it touches it no more, because by then it may be the next one's."""

    def __init__(self, pool: Pool, is_own: bool) -> None:
        self._pool = pool
        self._is_own = is_own
        self._has_left = False

    def __next__(self) -> Any:
        try:
            return self._take_next()
        except Exception:
            raise
        except BaseException:  # half-way, and a batch may be lost: it is not gone on with
            self.end_with(RuntimeError("this iteration was interrupted: begin another"))
            raise

    def _take_next(self) -> Any:
        raise NotImplementedError

    def _drop_rest(self, end: BaseException) -> None:
        raise NotImplementedError

    def end_with(self, end: BaseException) -> None:
        if self._has_left:
            return
        self._has_left = True
        self._drop_rest(end)
        if self._is_own:
            self._pool.close()
        elif not self._pool.is_closed:
            self._pool.forget_all()


class InlineStream(Stream):
    """Batches made in the caller's process, when they are asked for."""

    def __init__(
        self,
        job: Job,
        fetcher: MapFetcher | IterableFetcher,
        batches: Iterable[Batch],
        epoch: int,
        state: dict[str, Any] | None,
    ) -> None:
        self._job = job
        self._fetcher: Any = fetcher
        self._epoch = epoch
        self._copy = _Copy.of(state, 0, 1)
        self._positions: Iterator[Any] = self._copy if job.iterable else iter(batches)

    def __next__(self) -> Any:
        what = next(self._positions)
        data, note = self._fetcher.fetch(self._epoch, what)
        self.delivered += 1
        self.n_items = self._job.n_items(what)
        self._copy.took(note)
        return data

    def state(self) -> dict[str, Any] | None:
        return _state([self._copy], 0) if self._job.iterable else None

    def end_with(self, end: BaseException) -> None:
        self._positions = iter(())


class _Asked(NamedTuple):
    """A batch under way."""

    batch: Batch
    numbers: list[int]  # to ask the pool for it by: one, or one a part


class MapStream(PoolStream):
    """Batches of a map-style dataset, made by a pool; in the caller's process once the tuner
    finds that to be faster."""

    def __init__(
        self,
        pool: Pool,
        job: Job,
        inline: Callable[[Iterator[Batch]], InlineStream],
        batches: Iterator[Batch],
        epoch: int,
        *,
        settings: Settings,
        tuner: Tuner | None,
        meter: Meter,
        is_own: bool,
    ) -> None:
        super().__init__(pool, is_own)
        self._control = meter.control
        self._job = job
        self._make_inline = inline
        self._batches = batches
        self._epoch = epoch
        self._settings = settings
        self._tuner = tuner
        self._under_way: deque[_Asked] = deque()
        self._submitted = 0
        self._end: BaseException | None = None  # what follows the batches under way
        self._inline: InlineStream | None = None
        self._last = time.perf_counter()
        self._pinned: int | None = None  # workers, as last seen
        self._followed: tuple[Any, ...] = ()  # all that _follow goes by, likewise
        self._follow()
        self._opening = Opening(job, meter, settings, pool.n_workers)
        self._fill()

    def _take_next(self) -> Any:
        if self._inline is not None and not self._has_left:
            value = next(self._inline)
            self.delivered += 1
            self.n_items = self._inline.n_items
            return value
        self._follow()
        if not self._under_way:
            self._fill()
        if not self._under_way:
            return self._next_behind()
        begin = time.perf_counter()
        asked = self._under_way.popleft()
        self.n_items = self._job.n_items(asked.batch)
        results = self._results(asked)
        waited = time.perf_counter() - begin
        self._fill()
        value = self._value(asked.batch, results)
        self.delivered += 1
        if self._tuner is not None:
            self._tune(self._tuner, begin, waited, results)
        return value

    def _results(self, asked: _Asked) -> list[Result]:
        """One, or those of a batch's parts."""
        if len(asked.numbers) == 1:
            return [self._pool.result(asked.numbers[0])]
        results = self._pool.results(asked.numbers)
        if results[0].kind == "value":
            return results
        return self._as_a_whole(asked.batch, str(self._pool.value(results[0]).exception()))

    def _as_a_whole(self, batch: Batch, why: str) -> list[Result]:
        """This batch, of which the parts were of no use; and those behind it that are in parts."""
        self._opening.give_up(why)
        number = self._pool.submit(self._epoch, batch)
        for place, asked in enumerate(self._under_way):
            if len(asked.numbers) > 1:
                self._pool.forget(asked.numbers)
                again = self._pool.submit(self._epoch, asked.batch)
                self._under_way[place] = _Asked(asked.batch, [again])
        return [self._pool.result(number)]

    def _value(self, batch: Batch, results: list[Result]) -> Any:
        """The batch, or the exception that there is instead of it."""
        values = [self._pool.value(result) for result in results]
        if results[0].kind == "error":
            raise values[0].exception()
        if len(values) == 1:
            value, note = values[0]
            if note is False:  # its items are such that parts would be of no use
                self._opening.give_up("items are not alike")
            return value
        try:
            whole = self._opening.join(values)
        except Exception as error:  # of different shapes, say: a worker tells that
            why = str(error)
        else:
            self._pool.count(results)
            return whole
        del values
        return self._value(batch, self._as_a_whole(batch, why))

    def _follow(self) -> None:
        """Make so what was set meanwhile."""
        if self._tuner is None:
            return
        pinned, is_held = self._settings.n_workers, self._settings.is_held
        now = pinned, is_held, self._pool.n_workers, self._tuner.n_workers
        if now == self._followed:
            return
        self._followed = now
        if pinned != self._pinned and not self._pool.is_closed:
            self._pinned = pinned
            if pinned is not None and pinned != self._pool.n_workers:
                self._pool.resize(pinned)
        self._tuner.follow(self._settings, self._pool.n_workers)

    def _next_behind(self) -> Any:
        """Nothing is under way any more: the epoch is over, or goes on without workers."""
        if self._end is None:
            self._inline = self._make_inline(self._batches)
            self._pool.close()
            return self._take_next()
        if self._tuner is not None and not self._has_left:
            self._control.begin()
            self._tuner.end()
            self._control.end()
        end, self._end = self._end, StopIteration()
        self.close()
        try:
            raise end
        finally:
            del end  # it holds this frame

    def _fill(self) -> None:
        """Keep as much under way as is allowed."""
        window = self._window()
        while self._end is None and len(self._under_way) < window:
            try:
                batch = next(self._batches)
            except StopIteration:
                self._end = StopIteration()
                return
            except Exception as error:
                self._end = error
                return
            lane = self._submitted % self._pool.n_workers if self._pool.in_turn else 0
            opening = self._opening
            *parts, last = opening.tasks(batch, 0 if opening.is_over else self._pool.n_ready)
            numbers = [self._pool.submit(self._epoch, part, is_last=False) for part in parts]
            numbers.append(self._pool.submit(self._epoch, last, lane))
            self._under_way.append(_Asked(batch, numbers))
            self._submitted += 1

    def _window(self) -> int:
        if self._tuner is not None and self._tuner.is_inline:
            return 0
        window = self._settings.window(self._pool.n_workers, self._pool.in_turn)
        self._pool.set_window(window)
        return window

    def _tune(self, tuner: Tuner, begin: float, waited: float, results: list[Result]) -> None:
        self._control.begin()  # which whoever counts the batch ends
        now = time.perf_counter()
        spent = now - begin
        is_changed = tuner.observe(now - self._last, spent, waited, *total(results))
        self._last = now
        if is_changed and not tuner.is_inline:
            self._pool.resize(tuner.n_workers)

    def _drop_rest(self, end: BaseException) -> None:
        self._batches = iter(())
        if self._inline is not None:
            self._inline.end_with(end)
        if self._end is None or not isinstance(end, StopIteration):
            self._end = end
        self._under_way.clear()


class _Copy(Iterator[Position]):
    """How far one worker's copy of an iterable dataset was consumed; iterating gives what to
    ask it for next."""

    def __init__(self, number: int, state: Any, has_ended: bool) -> None:
        self.taken = number
        self.note = state
        self.has_ended = has_ended
        self._asked = number

    @classmethod
    def of(cls, state: dict[str, Any] | None, worker: int, n_workers: int) -> "_Copy":
        if state is None:
            return cls(0, None, False)
        if len(state["workers"]) != n_workers:
            raise ValueError(
                f"the state is of {len(state['workers'])} workers, not {n_workers}: an iterable "
                "dataset's stream depends on their number"
            )
        return cls(**state["workers"][worker])

    def __next__(self) -> Position:
        # A state belongs to the place it was taken at; further on, the worker goes on by itself.
        note = self.note if self._asked == self.taken else None
        self._asked += 1
        return Position(self._asked - 1, note)

    def took(self, note: Any) -> None:
        self.taken += 1
        self.note = note


def _state(copies: list[_Copy], turn: int) -> dict[str, Any]:
    return {
        "turn": turn,
        "workers": [
            {"number": copy.taken, "state": copy.note, "has_ended": copy.has_ended}
            for copy in copies
        ],
    }


class IterableStream(PoolStream):
    """Batches of copies of an iterable dataset, one a worker, taken in turn as torch does."""

    def __init__(
        self,
        pool: Pool,
        job: Job,
        epoch: int,
        state: dict[str, Any] | None,
        *,
        settings: Settings,
        is_own: bool,
    ) -> None:
        super().__init__(pool, is_own)
        self._epoch = epoch
        self._settings = settings
        self._end: BaseException = StopIteration()
        self.n_items = job.n_items(Position(0))
        n_workers = pool.n_workers
        self._copies = [_Copy.of(state, worker, n_workers) for worker in range(n_workers)]
        self._turn = 0 if state is None else int(state["turn"])
        self._under_way: list[deque[int]] = [deque() for _ in self._copies]
        self._fill()

    def _take_next(self) -> Any:
        while not all(copy.has_ended for copy in self._copies):
            worker = self._turn
            if self._copies[worker].has_ended:
                self._turn = (worker + 1) % len(self._copies)
                continue
            if not self._under_way[worker]:  # there was no room for it before its turn
                self._ask(worker)
            result = self._pool.result(self._under_way[worker].popleft())
            value = self._pool.value(result)
            self._turn = (worker + 1) % len(self._copies)
            if result.kind == "end":
                self._copies[worker].has_ended = True
                self._under_way[worker].clear()
                continue
            self._fill()
            if isinstance(value, Failure):
                raise value.exception()
            self._copies[worker].took(value[1])
            self.delivered += 1
            return value[0]
        self.end_with(self._end)
        end, self._end = self._end, StopIteration()
        try:
            raise end
        finally:
            del end  # it holds this frame

    def _fill(self) -> None:
        """Keep as much under way as is allowed: as many of each copy, or where that is less than one
        of each, of those whose turn comes next."""
        n_copies = len(self._copies)
        window = self._settings.window(n_copies, in_turn=True)
        each = max(1, window // n_copies)
        self._pool.set_window(min(window, each * n_copies))
        n_open = sum(map(len, self._under_way))
        for ahead in range(n_copies):
            worker = (self._turn + ahead) % n_copies
            n_more = min(each - len(self._under_way[worker]), window - n_open)
            if not self._copies[worker].has_ended and n_more > 0:
                n_open += n_more
                for _ in range(n_more):
                    self._ask(worker)

    def _ask(self, worker: int) -> None:
        number = self._pool.submit(self._epoch, next(self._copies[worker]), worker)
        self._under_way[worker].append(number)

    def state(self) -> dict[str, Any]:
        return _state(self._copies, self._turn)

    def _drop_rest(self, end: BaseException) -> None:
        self._end = end
        for copy in self._copies:
            copy.has_ended = True
