"""How an epoch opens: its first batches are made by all workers together.

A batch is one worker's, which keeps handing over cheap, but lets a loop that begins wait as long as
a batch takes one of them, however many there are, and lets them all end at the same moment.  So the
first batch is made by all n, an n-th of its items each, the next by n - 1, and so on down to one:
the first is there n times as soon, and those after it follow one by one.

Going over to whole batches takes time itself, as n of them are half done on average before one is
there.  A loop that is slower than its workers does not notice.  One that waits does, so it stays
with parts, a third of n, until enough lie ready; if their handing over costs next to nothing.

Each part is collated by its worker, and parts are put together in the caller's process.  That gives
the same batch where all items are alike (alike.py), which workers look at with their first batch and
with every part.  Whatever goes wrong, an error of an item included, the batch is made again as a
whole, and what then happens is what counts; from then on the loader has whole batches only.

It is done where it pays by what was measured before: not in a loader's first epoch, nor for items that
cost less than handing them over, nor where parts would take more memory than lies ready anyhow.
"""

import itertools
import math
import sys
from collections.abc import Sequence
from typing import Any

from penstock.workers.alike import UnlikeError
from penstock.workers.job import Batch, Job, Part
from penstock.workers.meter import Meter
from penstock.workers.settings import AHEAD_BYTES, Settings

_ITEMS = 2  # a part: fewer do not show whether they stand in the same memory
_RECENT = 8  # batches whose making is believed
_PAYS = 4  # times what it costs
_COPIED = 1e9  # bytes a second
_HANDED = 2e-4  # seconds a part
_NEXT_TO_NOTHING = 0.01  # of a batch's making


class Opening:
    """Of one epoch."""

    def __init__(self, job: Job, meter: Meter, settings: Settings, n_workers: int) -> None:
        self._settings = settings
        self._is_collated = job.collate is not None
        makes = meter.makes.last(_RECENT)
        making = sum(makes) / max(1, len(makes)) * 1e-9
        copying = settings.largest / _COPIED
        third = math.ceil(n_workers / 3)
        is_worth_it = (
            not settings.whole_because
            and job.can_part
            and making - making / n_workers > _PAYS * (copying + n_workers * _HANDED)
            and _has_room(settings, n_workers, third)
        )
        self._n_parts = n_workers if is_worth_it else 1
        is_cheap = copying + third * _HANDED <= _NEXT_TO_NOTHING * making
        self._fewest = third if is_cheap else 1
        self._enough = n_workers // 2

    @property
    def is_over(self) -> bool:
        return self._n_parts == 1

    def tasks(self, batch: Batch, n_ready: int) -> Sequence[Batch]:
        """What to ask workers for, so that this batch is made: the next of the epoch, while so many
        lie ready."""
        if n_ready >= self._enough:
            self._fewest = 1
        n_parts = self._n_parts
        self._n_parts = max(n_parts - 1, min(n_parts, self._fewest))
        if n_parts > 1 and isinstance(batch.indices, list | tuple):
            n_parts = min(n_parts, len(batch.indices) // _ITEMS)
            return _parts(batch, n_parts) if n_parts > 1 else (batch,)
        return (batch,)

    def join(self, parts: list[tuple[Any, Any]]) -> Any:
        """The batch that they are parts of; each comes with what its items are.  Raises where that
        cannot be told, UnlikeError or what torch raises."""
        if any(kind != parts[0][1] for _, kind in parts):
            raise UnlikeError("parts of different kinds")
        values = [value for value, _ in parts]
        return _join(values) if self._is_collated else list(itertools.chain.from_iterable(values))

    def give_up(self, why: str) -> None:
        """Whole batches from now on, in later epochs as well."""
        self._settings.whole_because = why
        self._n_parts = 1


def _has_room(settings: Settings, n_workers: int, third: int) -> bool:
    """A part may stand in as much shared memory as a batch, and all that are under way may be in
    parts."""
    n_all = n_workers * (n_workers + 1) // 2 + third * settings.window(n_workers, in_turn=False)
    return 0 < settings.largest * n_all <= min(AHEAD_BYTES, settings.budget // 4)


def _parts(batch: Batch, n_parts: int) -> list[Part]:
    size, rest = divmod(len(batch.indices), n_parts)
    parts, begin = [], 0
    for number in range(n_parts):
        end = begin + size + (number < rest)
        occurrences = batch.occurrences and batch.occurrences[begin:end]
        parts.append(Part(batch.indices[begin:end], batch.number, occurrences))
        begin = end
    return parts


def _join(parts: Sequence[Any]) -> Any:
    """What default_collate makes of all items, which are alike, from what it made of some: tensors,
    text as it is, and lists and dicts of those for what is in each item."""
    first = parts[0]
    if isinstance(first, dict):
        return {key: _join([part[key] for part in parts]) for key in first}
    if isinstance(first, list | tuple):
        if first and isinstance(first[0], str | bytes):
            return type(first)(itertools.chain.from_iterable(parts))
        return [_join(column) for column in zip(*parts, strict=True)]
    if any(not part.is_contiguous() for part in parts):  # stacked, it might be so again, or not
        raise UnlikeError("tensors that are not in order")
    return sys.modules["torch"].cat(parts)
