"""Who makes the batches of a DataLoader: chosen when it is made, asked for every epoch.

    native     dataset and transforms are all compiled: threads, no Python a sample (native.py)
    partly     the first operations are native, the rest Python, inside worker processes
    python     worker processes run the dataset as it is; with num_workers=0 this one does
    None       torch's own iterators, for what we leave alone: DataPipes

Every engine has a start(loader, work), which gives the batches of an epoch as a `Source`.
"""

import itertools
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

from torch.utils.data import IterDataPipe, MapDataPipe, default_collate

from penstock import workers
from penstock._core import Dataset
from penstock.loader import Path, Policy, budget_bytes
from penstock.torch.compiled import NotCompiled, compile_dataset, warn_of_python
from penstock.torch.native import NativeEngine
from penstock.torch.order import Ahead, Source, Task, Work, n_ahead
from penstock.torch.partly import Key, PartlyCompiled
from penstock.torch.translate import flat, translate
from penstock.transforms import Transform


class Engine(Protocol):
    def start(self, loader: Any, work: Work) -> Source: ...
    def identity(self) -> dict[str, Any]: ...
    def n_bad(self) -> int: ...
    def set_policy(self, policy: Policy) -> None: ...
    def close(self) -> None: ...


class PythonEngine:
    """Runs a Python dataset in worker processes, or in this one."""

    def __init__(self, dataset: Any, decision_log: Path | None = None) -> None:
        self._dataset = dataset
        self._log = None if decision_log is None else workers.DecisionLog(decision_log)
        self._workers: workers.Workers | None = None
        self._settings: workers.Settings | None = None  # these and the meter outlive workers
        self._meter: workers.Meter | None = None
        self._asked: tuple[Any, ...] = ()  # when the settings were made
        self._seeding: workers.Seeding | None = None
        self._policy: Policy = "model"
        self._shown = workers.Shown(self)
        self._last: weakref.ref[PythonSource] | None = None

    def start(self, loader: Any, work: Work) -> "PythonSource":
        """Persistent workers serve one iteration at a time: an older one ends."""
        older = self._last() if self._last is not None and loader._is_persistent else None
        if older is not None:
            older.is_superseded = True
        source = self._start(loader, work)
        self._last = weakref.ref(source)
        return source

    def _start(self, loader: Any, work: Work) -> "PythonSource":
        seeding = _seeding(loader, work)
        if isinstance(self._dataset, PartlyCompiled):
            self._dataset.seed = work.seed
        if self._workers is None or seeding != self._seeding:
            self._workers, self._seeding = self._make(loader, seeding), seeding
        if loader._order_kind == "iterable":
            stream = self._workers.epoch(epoch=work.epoch, state=work.state)
            return PythonSource(stream, self._workers.meter, work.first, note=self._noting())
        # Where a worker seeds once, its generators stand where earlier batches left them: a
        # resume makes those batches again.
        n_again = work.first if seeding.in_turn else 0
        tasks = Ahead(_tasks(work, n_again > 0))
        ahead = n_ahead(loader) if work.order is None else 0
        tasks.take_until(ahead)
        batches = _numbered(tasks, work.first - n_again)
        if isinstance(self._dataset, PartlyCompiled):
            batches = (_keyed(one, work.epoch, loader._auto_collation) for one in batches)
        stream = self._workers.epoch(batches, epoch=work.epoch)
        meter = self._workers.meter
        first = work.first - n_again
        source = PythonSource(stream, meter, first, tasks, ahead, note=self._noting())
        for _ in range(n_again):
            next(source)
        return source

    def _make(self, loader: Any, seeding: workers.Seeding) -> workers.Workers:
        is_iterable = loader._order_kind == "iterable"
        job = workers.Job(
            self._dataset,
            loader.collate_fn,
            iterable=is_iterable,
            auto_collate=loader._auto_collation,
            batch_size=loader.batch_size,
            drop_last=loader.drop_last,
            worker_init=loader.worker_init_fn,
            seeding=seeding,
        )
        asked = loader._asked_workers
        if self._asked != (now := (asked, loader._asked_prefetch, loader.memory_budget)):
            self._asked, self._settings = now, None  # what was turned since gives way
        made = workers.Workers(
            job,
            loader.num_workers if asked != "auto" or loader.order == "torch" else asked,
            context=loader.multiprocessing_context,
            prefetch_factor=loader._asked_prefetch,
            timeout=loader.timeout,
            persistent=loader.persistent_workers,
            memory_budget=budget_bytes(loader.memory_budget) or None,
            settings=self._settings,
            meter=self._meter,
        )
        self._settings, self._meter = made.settings, made.meter
        made.hold(self._policy == "fixed")
        made.meter.each_while = self._shown
        if self._log is not None:
            self._log.begin(made)
        return made

    def _noting(self) -> Callable[[], None] | None:
        """What is to be called after each batch."""
        return None if self._log is None else self._note

    def _note(self) -> None:
        if self._log is not None and self._workers is not None:
            self._log.batch_came(self._workers, self._policy)

    def go_on_for(self, older: Engine | None) -> None:
        """Of the same loader: what was turned and counted is not the dataset's."""
        if isinstance(older, PythonEngine) and older._settings is not None:
            self._settings, self._meter = older._settings, older._meter
            self._settings.largest = 0  # batches may have another size now
            self._settings.whole_because = ""  # and be of other items
            self._asked = older._asked
            if older._log is not None and self._log is not None:  # its periods are counted on
                self._log = older._log

    def set_policy(self, policy: Policy) -> None:
        """ "fixed": nobody changes the number of workers; all others let the tuner."""
        self._policy = policy
        if self._workers is not None:
            self._workers.hold(policy == "fixed")

    def account(self, policy: Policy) -> workers.Account:
        if self._workers is None:
            raise RuntimeError("there are no figures before the first iteration")
        return workers.Account(self._workers, policy, self._log)

    def shown_account(self) -> workers.Account | None:
        """For `penstock top`, which shows loaders that have a policy; one without workers has
        nothing to turn, and is not worth a thread."""
        made = self._workers
        is_shown = made is not None and made.num_workers > 0 and self._policy != "fixed"
        return self.account(self._policy) if is_shown else None

    def identity(self) -> dict[str, Any]:
        return {"dataset": type(self._dataset).__qualname__}

    def n_bad(self) -> int:
        return 0

    def close(self) -> None:
        self._shown.close()
        if self._workers is not None:
            self._workers.close()


class PythonSource:
    """A stream of worker processes, its batches counted from the epoch's start: also one that
    raised an error in its place, because the next one follows it."""

    def __init__(
        self,
        stream: workers.Stream,
        meter: workers.Meter,
        first: int,
        tasks: Ahead | None = None,
        ahead: int = 0,
        note: Callable[[], None] | None = None,
    ) -> None:
        self.delivered = first
        self._note = note
        self._meter = meter
        meter.rest()
        self.is_superseded = False
        self._stream = stream
        self._tasks = tasks
        self._n_asked = ahead

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self.is_superseded:
            raise RuntimeError("another iteration has begun on these persistent workers")
        self._meter.begin()
        try:
            batch = next(self._stream)
        except StopIteration:
            self._meter.rest()
            raise
        except Exception:
            self._one_more(is_error=True)
            raise
        self._one_more()
        return batch

    def _one_more(self, is_error: bool = False) -> None:
        self._meter.end(is_error, self._stream.n_items)
        if self._note is not None:
            self._note()
        self._meter.control.end()
        self.delivered += 1
        if self._tasks is not None and self._n_asked:
            self._n_asked += 1
            self._tasks.take_until(self._n_asked)

    def state(self) -> Any:
        return self._stream.state()


def _tasks(work: Work, is_again: bool) -> Iterator[Task]:
    """What is left of the epoch, or all of it again."""
    if work.order is not None:
        return work.order.run(work.epoch, 0 if is_again else work.first)
    return itertools.chain(work.skipped if is_again else (), work.tasks or ())


def _numbered(tasks: Iterable[Task], first: int) -> Iterator[workers.Batch]:
    for number, task in enumerate(tasks, first):
        yield workers.Batch(task.index, number, task.occurrences)


def _keyed(batch: workers.Batch, epoch: int, is_batched: bool) -> workers.Batch:
    """The native part's random key travels with every index: a worker may be of any age."""
    indices = batch.indices if is_batched else [batch.indices]
    times = batch.occurrences or [0] * len(indices)
    keys = [Key(int(one), epoch, n) for one, n in zip(indices, times, strict=True)]
    return batch._replace(indices=keys if is_batched else keys[0])


def _seeding(loader: Any, work: Work) -> workers.Seeding:
    """Every item by itself, or as torch does: a worker at a time, and nobody without workers."""
    if loader.order == "torch" or loader._order_kind == "iterable":
        if loader.num_workers == 0:
            return workers.NoSeeding()
        return workers.TorchSeeding(work.base_seed)
    return workers.ItemSeeding(work.seed)


# Choosing


def choose(loader: Any) -> Engine | None:
    """The engine for a loader whose arguments are in place; warns of what stays in Python."""
    dataset = loader.dataset
    if isinstance(dataset, IterDataPipe | MapDataPipe):
        if loader.decision_log is not None:
            raise ValueError(
                "decision_log: nobody decides anything for DataPipes, which are torch's"
            )
        if loader.metrics not in NATIVE_ONLY["metrics"]:
            raise ValueError("metrics: nobody counts anything for DataPipes, which are torch's")
        return None
    obstacle = why_not_native(loader)
    if isinstance(dataset, Dataset):
        if obstacle:
            raise ValueError(f"{obstacle}, and a penstock.Dataset is only loaded natively")
        return NativeEngine(loader, dataset, _operations(loader), None, loader.dtype)
    if loader._order_kind == "iterable" or not loader.compile:
        return _python_engine(loader, dataset, "it is not compiled")
    result = compile_dataset(dataset, loader.transform, exact=loader.order == "torch")
    if isinstance(result, NotCompiled):
        if result.is_known:
            warn_of_python(result, stacklevel=3)
        return _python_engine(loader, dataset, result.reason)
    if loader.worker_init_fn is not None:
        warnings.warn(
            f"{type(dataset).__qualname__} and its transforms run in Python, because of "
            "worker_init_fn; without one they can run natively",
            stacklevel=3,
        )
        return _python_engine(loader, dataset, obstacle or "")
    if not result.is_native:
        warn_of_python(result, stacklevel=3)
        return _python_engine(loader, PartlyCompiled(result), "some of it runs in Python")
    if obstacle:
        return _python_engine(loader, PartlyCompiled(result), obstacle)
    dtype = loader.dtype or result.dtype
    return NativeEngine(loader, result.native(), result.ops, result.target_transform, dtype)


def fingerprint(loader: Any) -> tuple[Any, ...]:
    """Differs when a dataset has other files or transforms, or the loader another collate_fn,
    than when its engine was made: people set `loader.dataset.transform` between epochs."""
    return id(loader.collate_fn), *_fingerprints(loader.dataset, MAX_NESTED)


def _fingerprints(dataset: Any, depth: int) -> Iterator[Any]:
    parts = vars(dataset) if hasattr(dataset, "__dict__") else {}
    for name, part in parts.items():
        if isinstance(part, list):
            yield id(part), len(part)
        elif "transform" in name:
            yield id(part), repr(part)
    inner = parts.get("datasets")  # ConcatDataset's
    for one in (parts.get("dataset"), *(inner if isinstance(inner, list) else ())):
        if one is not None and depth:
            yield from _fingerprints(one, depth - 1)


MAX_NESTED = 8


def why_not_native(loader: Any) -> str | None:
    """What about the loader, whatever its dataset, needs Python for every batch."""
    if not loader._auto_collation:
        return "batch_size=None asks for single samples"
    if loader.collate_fn is not default_collate:
        return "collate_fn is a Python function"
    if loader.worker_init_fn is not None:
        return "worker_init_fn wants worker processes"
    return None


def _operations(loader: Any) -> list[Transform]:
    """A path's transforms: ours, or torchvision's that can all be translated."""
    calls: list[Any] = list(flat(loader.transform))
    ops = [call for call in calls if isinstance(call, Transform)]
    if len(ops) == len(calls):
        return ops
    line = translate(calls, loader.order == "torch")
    if line.rest or line.kind == "pil":
        why = line.reason or "they end with a PIL image"
        raise ValueError(f"these transforms cannot all run natively ({why}): use an ImageFolder")
    return line.ops


def _python_engine(loader: Any, dataset: Any, why: str) -> PythonEngine:
    """Refuses what only the native engine can do, and says why it is not that one."""
    for name, harmless in NATIVE_ONLY.items():
        if getattr(loader, name) not in harmless:
            raise ValueError(f"{name} is for datasets that are loaded natively; here {why}")
    if loader.transform is not None and not isinstance(dataset, PartlyCompiled):
        if loader._order_kind == "iterable":
            raise ValueError(
                "transform is for datasets with indices: an IterableDataset has its own"
            )
        dataset = Transformed(dataset, loader.transform)
    engine = PythonEngine(dataset, loader.decision_log)
    engine.set_policy(loader.policy)
    return engine


NATIVE_ONLY: dict[str, tuple[Any, ...]] = {  # and the values that ask for nothing
    "on_error": ("raise",),
    "ledger": (None,),
    "metrics": (None, "off"),
    "dtype": (None,),
    "layout": ("NCHW",),
    "batch_ops": ((),),
}


class Transformed:
    """A map-style dataset whose samples' first part goes through a callable."""

    def __init__(self, dataset: Any, transform: Any) -> None:
        if not callable(transform):
            raise TypeError(
                "transform must be callable for a dataset that runs in Python; "
                "penstock.transforms are for images that are read from files"
            )
        self._dataset = dataset
        self._transform = transform

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: Any) -> Any:
        sample = self._dataset[index]
        if isinstance(sample, tuple):
            return (self._transform(sample[0]), *sample[1:])
        return self._transform(sample)
