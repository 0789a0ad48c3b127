"""What may be turned while worker processes run, by hand or by the tuner.

    workers         processes; 1 to 256, or as many as there are where that is part of the stream
    ready_batches   batches under way or waiting

One `Settings` lives as long as its loader, whatever pools and epochs come and go, and any thread
may turn it: the thread that takes batches looks at it with each of them.  A number that is set is
pinned; a number that was asked for when the loader was made is, too.
"""

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from penstock.workers.facade import Workers

AHEAD_BYTES = 32 << 20  # batches that lie ready, where nobody said how many shall
READY_MAX = 1024


class Settings:
    """prefetch  batches under way or ready, a worker, as asked for; None: as many as pay
    budget    bytes of batches under way, each as large as the largest so far, or made and not taken

    The budget is kept as far as anybody can know.  How large a batch is shows when it arrives, which
    may be long before its turn: from then on no more are asked for than there is room for of that
    size.  Those that workers have by then cannot be unmade, and one there must always be.
    """

    def __init__(self, prefetch: int | None, budget: int) -> None:
        self.prefetch = prefetch
        self.budget = budget
        self.n_workers: int | None = None  # pinned
        self.n_ready: int | None = None  # pinned
        self.whole_because = ""  # why epochs open with whole batches: see penstock.workers.opening
        self.is_held = False  # by policy "fixed": the tuner rests
        self.largest = 0  # bytes that a batch takes, as far as is known

    def saw(self, nbytes: int) -> None:
        """A batch takes so many."""
        self.largest = max(self.largest, nbytes)

    @property
    def is_ready_pinned(self) -> bool:
        return self.n_ready is not None or self.prefetch is not None

    def window(self, n_workers: int, in_turn: bool) -> int:
        """How many batches shall be under way or waiting, with so many workers."""
        if not self.largest:
            return min(n_workers, self.n_ready or n_workers)  # until it is known how large it is
        if self.n_ready is not None:
            wanted = self.n_ready
        elif self.prefetch is None and not in_turn:
            wanted = n_workers + max(1, min(n_workers, AHEAD_BYTES // self.largest))
        else:
            wanted = (self.prefetch or 2) * n_workers
        return max(1, min(wanted, self.budget // self.largest))


class Line(NamedTuple):
    """A knob as penstock.knobs.Knob has it."""

    unit: str
    text: str
    min: float
    max: float
    is_integer: bool
    is_pinned: bool


class Panel:
    """The knobs of a `Workers`, as penstock.knobs.Knobs turns them."""

    def __init__(self, workers: "Workers") -> None:
        self._workers = workers

    def get_knobs(self) -> dict[str, float]:
        workers = self._workers
        return {"workers": workers.num_workers, "ready_batches": workers.window}

    def knob_table(self) -> dict[str, tuple[str, str, float, float, bool, bool]]:
        workers = self._workers
        fewest, most = workers.worker_range
        return {
            "workers": Line(
                "processes",
                "processes that make batches; 0: the caller's own does",
                fewest,
                most,
                True,
                workers.are_workers_pinned,
            ),
            "ready_batches": Line(
                "batches",
                "batches under way or waiting",
                *self._ready_range(),
                True,
                workers.settings.is_ready_pinned or workers.worker_range[1] == 0,
            ),
        }

    def _ready_range(self) -> tuple[int, int]:
        """Where workers seed themselves as torch's do, a sampler is asked as far ahead as there."""
        workers, settings = self._workers, self._workers.settings
        if workers.worker_range[1] == 0:
            return 0, 0
        most = READY_MAX
        if workers.job.seeding.in_turn and not workers.job.iterable:
            most = (settings.prefetch or 2) * workers.num_workers
        if settings.largest:
            most = min(most, settings.budget // settings.largest)
        return 1, max(1, most)

    def set_knobs(self, values: dict[str, float]) -> None:
        """All or none."""
        table = self.knob_table()
        numbers = {}
        for name, value in values.items():
            fewest, most = table[name][2:4]
            if not fewest <= value <= most or value != int(value):
                raise ValueError(f"{name} must be {fewest:g} to {most:g} here")
            numbers[name] = int(value)
        if "ready_batches" in numbers:
            self._workers.settings.n_ready = numbers["ready_batches"] or None
        if "workers" in numbers:
            self._workers.pin(numbers["workers"])

    def release_knob(self, name: str) -> None:
        if name == "workers":
            self._workers.unpin()
        else:
            self._workers.settings.n_ready = self._workers.settings.prefetch = None
