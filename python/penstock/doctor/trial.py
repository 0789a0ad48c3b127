"""The same dataset with torch's loader and with Penstock's, for some seconds each, without training."""

import itertools
import time
from dataclasses import dataclass
from typing import Any

import torch.utils.data as torch_data

from penstock.torch import DataLoader

N_WARM = 2  # batches before the clock starts


@dataclass(frozen=True)
class Rate:
    """Batches a second; or, with `problem`, why there is none."""

    batches_per_s: float = 0.0
    n_batches: int = 0
    problem: str | None = None


def rate_of(loader: Any, seconds: float) -> Rate:
    """Iterate over and over until the time is up."""
    started: float | None = None
    n = 0
    try:
        while True:
            n_before = n
            for _ in loader:
                now = time.perf_counter()
                if started is None and n >= N_WARM:
                    started, n = now, 0
                    n_before = 0
                elif started is not None and now - started > seconds:
                    return Rate((n + 1) / (now - started), n + 1)
                n += 1
            if started is None and n == n_before:
                return Rate(problem="it has no batches")
            if started is None:  # fewer batches than the warm-up wants
                started = time.perf_counter()
                n = 0
    except Exception as error:
        return Rate(problem=f"{type(error).__name__}: {error}")


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
        for _ in itertools.repeat(None, 2):
            halves[0].append(rate_of(loader, seconds / 2))
            halves[1].append(rate_of(ours, seconds / 2))
    return _best(halves[0]), _best(halves[1])


def _best(rates: list[Rate]) -> Rate:
    return max(rates, key=lambda rate: rate.batches_per_s)
