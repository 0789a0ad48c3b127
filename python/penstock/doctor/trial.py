"""The same dataset with torch's loader and with Penstock's, for some seconds each, without training."""

import contextlib
import signal
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch.utils.data as torch_data

from penstock.torch import DataLoader

N_WARM = 2  # batches before the clock starts
PATIENCE_SECONDS = 10  # for starting, and for a batch that never comes
AGAIN_SECONDS = 1  # a dataset may catch what is to end it


@dataclass(frozen=True)
class Rate:
    """Batches a second; or, with `problem`, why there is none."""

    batches_per_s: float = 0.0
    n_batches: int = 0
    problem: str | None = None


class _TooLong(BaseException):
    """Ends a trial.  Not an Exception, which a dataset may catch and go on."""


def rate_of(loader: Any, seconds: float) -> Rate:
    """Iterate over and over until the time is up."""
    try:
        with _at_most(3 * seconds + PATIENCE_SECONDS):
            return _rate_of(loader, seconds)
    except Exception as error:
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


@contextlib.contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    """TimeoutError after that long.  A loader whose worker could not send a batch waits for ever.
    Only the main thread gets signals; elsewhere there is no limit."""
    n_spared = 0
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(signum: int, frame: FrameType | None) -> None:
        """Again and again, for it may be caught; but what cleans up after it is given time."""
        nonlocal n_spared
        if isinstance(sys.exc_info()[1], _TooLong) and n_spared < PATIENCE_SECONDS:
            n_spared += 1
        else:
            raise _TooLong

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN_SECONDS)
    try:
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
    except _TooLong:
        raise TimeoutError(f"no end after {seconds:.0f} s") from None


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


def compare(loader: Any, seconds: float) -> tuple[Rate, Rate]:
    """torch's rate and ours.  In turns, so that a machine that changes is unjust to neither."""
    try:
        ours = like(loader)
    except Exception as error:
        return rate_of(loader, seconds), Rate(problem=f"{type(error).__name__}: {error}")
    halves: list[list[Rate]] = [[], []]
    with ours:
        for _ in range(2):
            for rates, each in zip(halves, (loader, ours), strict=True):
                if not any(rate.problem for rate in rates):  # it would only happen again
                    rates.append(rate_of(each, seconds / 2))
    return _best(halves[0]), _best(halves[1])


def _best(rates: list[Rate]) -> Rate:
    return max(rates, key=lambda rate: rate.batches_per_s)
