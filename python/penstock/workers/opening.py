"""How an epoch opens: its first batches are made by all workers together.

A batch is one worker's, which keeps handing over cheap, but lets a loop that begins wait as long as
a batch takes one of them, however many there are, and lets them all end at the same moment.  So the
first batch is made by all n, an n-th of its items each, the next by n - 1, and so on down to one:
the first is there n times as soon, and those after it follow one by one.

Going over to whole batches takes time itself, as n of them are half done on average before one is
there.  A loop that is slower than its workers does not notice.  One that waits does, so it stays
with parts, a third of n, until enough lie ready; if their handing over costs next to nothing.

Each part is collated by its worker, and parts are put together in the caller's process.  How that is
done is known of torch's own default_collate, and where there is none.  Whatever goes wrong, an error of
an item included, the batch is made again as a whole, and what then happens is what counts; the loader's
later epochs open with whole batches.

It is done where it pays by what was measured before: not in a loader's first epoch, nor for items that
cost less than handing them over, nor where parts would take more memory than lies ready anyhow.
"""

import itertools
import math
import sys
from collections.abc import Sequence
from typing import Any

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
        is_worth_it = (
            settings.opens_together
            and _can_part(job)
            and _pays(making, settings.largest, n_workers)
            and _has_room(settings, n_workers)
        )
        self._n_parts = n_workers if is_worth_it else 1
        third = math.ceil(n_workers / 3)
        self._fewest = third if third * _HANDED <= _NEXT_TO_NOTHING * making else 1
        self._enough = n_workers // 2

    def tasks(self, batch: Batch, n_ready: int) -> Sequence[Batch | Part]:
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

    def give_up(self) -> None:
        """Something went wrong with a part: whole batches from now on, in later epochs as well."""
        self._settings.opens_together = False
        self._n_parts = 1

    def join(self, parts: list[Any]) -> Any:
        """The batch that they are parts of.  Raises ValueError where that cannot be told."""
        return _join(parts) if self._is_collated else list(itertools.chain.from_iterable(parts))


def _join(parts: Sequence[Any]) -> Any:
    """What default_collate makes of all items, from what it made of some: tensors, lists of text, and
    lists and dicts of those for what is in each item.  Which kind of number it makes goes by the items,
    so parts may differ in that: then the whole may be either."""
    first = parts[0]
    kind = type(first)
    if any(type(part) is not kind for part in parts):
        raise ValueError("parts of different types")
    if kind is dict:
        if any(part.keys() != first.keys() for part in parts):
            raise ValueError("parts with different keys")
        return {key: _join([part[key] for part in parts]) for key in first}
    if kind is list:
        if any(isinstance(text, str | bytes) for text in first):
            return list(itertools.chain.from_iterable(parts))
        return [_join(column) for column in zip(*parts, strict=True)]
    torch = sys.modules["torch"]
    if kind is not torch.Tensor or any(part.dtype is not first.dtype for part in parts):
        raise ValueError("parts of which nobody knows the whole")
    return torch.cat(parts)


def _can_part(job: Job) -> bool:
    """Whether items are made one by one and collated by nobody's own code."""
    if job.iterable or not job.auto_collate or job.seeding.in_turn:
        return False
    if getattr(job.dataset, "__getitems__", None):
        return False
    data = sys.modules.get("torch.utils.data")
    return job.collate is None or (data is not None and job.collate is data.default_collate)


def _pays(making: float, nbytes: int, n_workers: int) -> bool:
    """making: seconds that a batch takes one worker."""
    saved = making - making / n_workers
    return saved > _PAYS * (nbytes / _COPIED + n_workers * _HANDED)


def _has_room(settings: Settings, n_workers: int) -> bool:
    """A part may stand in as much shared memory as a batch; there are fewer than n * n at a time."""
    n_bytes = settings.largest * n_workers * n_workers
    return 0 < n_bytes <= min(AHEAD_BYTES, settings.budget // 4)


def _parts(batch: Batch, n_parts: int) -> list[Part]:
    size, rest = divmod(len(batch.indices), n_parts)
    parts, begin = [], 0
    for number in range(n_parts):
        end = begin + size + (number < rest)
        occurrences = batch.occurrences and batch.occurrences[begin:end]
        parts.append(Part(batch.indices[begin:end], batch.number, occurrences))
        begin = end
    return parts
