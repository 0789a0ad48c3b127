"""The same dataset with torch's loader and with Penstock's, for some seconds each, without training."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch.utils.data as torch_data

from penstock.doctor.alarm import AGAIN_SECONDS, Alarm
from penstock.torch import DataLoader

N_WARM = 2  # batches before the clock starts
PATIENCE_SECONDS = 10  # for starting, and for a batch that never comes


@dataclass(frozen=True)
class Rate:
    """Batches a second; or, with `problem`, why there is none."""

    batches_per_s: float = 0.0
    n_batches: int = 0
    problem: str | None = None


class _TooLong(BaseException):
    """Ends a trial.  Not an Exception, which a dataset may catch and go on."""


def rate_of(loader: Any, seconds: float, held_up: Callable[[], object] | None = None) -> Rate:
    """Iterate over and over until the time is up.  In the main thread.

    A loader whose worker could not send a batch waits for ever, so there is a limit; `held_up` is
    called where that does not help, as Alarm says.
    """
    limit = 3 * seconds + PATIENCE_SECONDS
    try:
        with Alarm(_TooLong, limit, PATIENCE_SECONDS, AGAIN_SECONDS, held_up):
            return _rate_of(loader, seconds)
    except _TooLong:
        return Rate(problem=f"TimeoutError: no end after {limit:.0f} s")
    except (Exception, SystemExit) as error:
        return Rate(problem=f"{type(error).__name__}: {error}")


def _rate_of(loader: Any, seconds: float) -> Rate:
    started: float | None = None
    n = 0  # since then
    n_warm = 0
    while True:
        is_empty = True
        for _ in loader:
            is_empty = False
            now = time.perf_counter()
            if started is not None:
                n += 1
                if now - started > seconds:
                    return Rate(n / (now - started), n)
            else:
                n_warm += 1
                if n_warm > N_WARM:
                    started = now
        if is_empty and started is not None and n:  # an iterable that can be read once
            return Rate(n / (now - started), n)
        if is_empty:
            few = "it has few batches, and none the second time"
            return Rate(problem=few if n_warm else "it has no batches")
        if started is None:  # fewer batches than the warm-up wants
            started = time.perf_counter()


def like(loader: Any) -> DataLoader:
    """Penstock's loader with the arguments that torch's one was given, where they say what comes;
    how many workers make it is for Penstock to find out."""
    keywords: dict[str, Any] = {"timeout": loader.timeout, "worker_init_fn": loader.worker_init_fn}
    collate = loader.collate_fn
    defaults = (
        torch_data._utils.collate.default_collate,
        torch_data._utils.collate.default_convert,
    )
    if collate not in defaults:
        keywords["collate_fn"] = collate
    if isinstance(loader.dataset, torch_data.IterableDataset):
        return DataLoader(loader.dataset, loader.batch_size, drop_last=loader.drop_last, **keywords)
    if loader.batch_size is None and loader.batch_sampler is not None:
        return DataLoader(loader.dataset, batch_sampler=loader.batch_sampler, **keywords)
    if type(loader.sampler) in (torch_data.RandomSampler, torch_data.SequentialSampler):
        keywords["shuffle"] = isinstance(loader.sampler, torch_data.RandomSampler)
    else:
        keywords["sampler"] = loader.sampler
    return DataLoader(loader.dataset, loader.batch_size, drop_last=loader.drop_last, **keywords)


def compare(
    loader: Any, seconds: float, held_up: Callable[[], object] | None = None
) -> tuple[Rate, Rate]:
    """torch's rate and ours.  In turns, so that a machine that changes is unjust to neither."""
    try:
        ours = like(loader)
    except (Exception, SystemExit) as error:
        problem = Rate(problem=f"{type(error).__name__}: {error}")
        return rate_of(loader, seconds, held_up), problem
    halves: list[list[Rate]] = [[], []]
    with ours:
        for _ in range(2):
            for rates, each in zip(halves, (loader, ours), strict=True):
                if not any(rate.problem for rate in rates):  # it would only happen again
                    rates.append(rate_of(each, seconds / 2, held_up))
    return _best(halves[0]), _best(halves[1])


def _best(rates: list[Rate]) -> Rate:
    return max(rates, key=lambda rate: rate.batches_per_s)
